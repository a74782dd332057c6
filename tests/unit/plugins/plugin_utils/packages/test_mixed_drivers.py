# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Would apt install parts of different drivers?"""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages import mixed_drivers

PATTERNS = "Package: *nvidia* libcuda1"
OF_VERSION = {"path": "x", "block": f"{PATTERNS}\nPin: version 580.178.04-*\nPin-Priority: 999\n"}
OF_DEBIAN = {"path": "x", "block": f"{PATTERNS}\nPin: release o=Debian,n=trixie*\n"}
# As apt-get --simulate prints it: apt 2.6.1.
SIMULATED = """\
Inst libcuda1 (595.71.05-1 NVIDIA:/ [amd64])
Inst nvidia-driver-cuda (580.178.04-1 NVIDIA:/ [amd64])
Inst libnvidia-egl-wayland1 (1:1.1.13-1 NVIDIA:/ [amd64])
Inst dkms (3.0.10-8+deb12u1 Debian:12 [all])
Conf libcuda1 (595.71.05-1 NVIDIA:/ [amd64])
"""


def test_parts_of_two_drivers() -> None:
    """An admin removed NVIDIA's package that pins 595, and did not purge it."""
    found = mixed_drivers.mixed("gpu-1", OF_VERSION, SIMULATED)
    assert found is not None
    assert found["code"] == "DRIVER_PARTS_MIXED"
    assert "libcuda1 595.71.05-1 would be beside driver 580.178.04" in found["message"]


@pytest.mark.parametrize(
    ("pin", "printed"),
    [
        pytest.param(OF_VERSION, SIMULATED.replace("595.71.05", "580.178.04"), id="one driver"),
        pytest.param(OF_DEBIAN, SIMULATED, id="one source"),
        pytest.param(None, SIMULATED, id="no pin"),
        pytest.param(OF_VERSION, "", id="nothing to do"),
    ],
)
def test_parts_of_one_driver(pin: dict[str, str] | None, printed: str) -> None:
    assert mixed_drivers.mixed("gpu-1", pin, printed) is None
