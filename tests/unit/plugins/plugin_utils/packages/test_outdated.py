# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules of another driver: the relations are those of noble's index, 2026-11-23."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.outdated import (
    of_another_driver,
    of_modules,
)

KERNEL = "6.8.0-138-generic"
LINKED = f"linux-modules-nvidia-580-server-{KERNEL}"
COMMON = "nvidia-kernel-common-580-server"
SHOWN = f"""\
Package: {LINKED}
Architecture: amd64
Version: 6.8.0-138.138
Priority: optional
Depends: debconf (>= 0.5) | debconf-2.0, linux-image-{KERNEL} | linux-image-unsigned-{KERNEL}, \
linux-signatures-nvidia-{KERNEL} (= 6.8.0-138.138), {COMMON} (>= 580.173.02)

Package: {LINKED}
Version: 6.8.0-138.138+1
Depends: {COMMON} (>= 580.178.04)
"""


def inst(*rows: tuple[str, str]) -> str:
    return "".join(f"Inst {name} ({version} Ubuntu:24.04 [amd64])\n" for name, version in rows)


@pytest.mark.parametrize(
    ("printed", "installed", "expected"),
    [
        pytest.param(
            inst((COMMON, "580.178.04-0ubuntu0.24.04.1"), (LINKED, "6.8.0-138.138")),
            {},
            "580.178.04",
            id="apt accepts a newer driver",
        ),
        pytest.param(
            inst((LINKED, "6.8.0-138.138")),
            {COMMON: "580.178.04-0ubuntu0.24.04.1"},
            "580.178.04",
            id="the newer driver is installed",
        ),
        pytest.param(
            f"Inst {COMMON} [580.173.02-0ubuntu0.24.04.1] (580.178.04-0ubuntu0.24.04.1 Ubuntu)\n"
            + inst((LINKED, "6.8.0-138.138")),
            {COMMON: "580.173.02-0ubuntu0.24.04.1"},
            "580.178.04",
            id="the driver is updated with them",
        ),
        pytest.param(
            inst((COMMON, "580.173.02-0ubuntu0.24.04.1"), (LINKED, "6.8.0-138.138")),
            {},
            None,
            id="their driver",
        ),
        pytest.param(
            inst((COMMON, "580.178.04-0ubuntu0.24.04.1"), (LINKED, "6.8.0-138.138+1")),
            {},
            None,
            id="modules that were built again",
        ),
        pytest.param(inst((COMMON, "580.178.04-0ubuntu0.24.04.1")), {}, None, id="no modules"),
        pytest.param("", {}, None, id="nothing"),
    ],
)
def test_modules_have_to_be_of_the_driver(printed, installed, expected):
    found = of_another_driver("gpu-1", KERNEL, printed, SHOWN, installed)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found["code"] == "KERNEL_OUTDATED"
    assert (
        f"kernel {KERNEL}: {LINKED} was built for driver 580.173.02, and the driver is {expected}"
    ) in found["message"]


def test_packages_of_modules_among_the_arguments():
    names = [f"{LINKED}=*", "nvidia-utils-580-server=580.*", "linux-modules-6.8.0-138-generic"]
    assert of_modules(names) == [LINKED]
