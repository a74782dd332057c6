# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages follow the kernel, by what apt's simulation says?

The texts are those of apt 2.6.1 with the indexes of 2026-11-23, shortened.
"""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages import follow
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.follow import Answer
from ansible_collections.metal.gpu.tests.unit.support.recordings import parse_scene, recording

HEADERS = "linux-headers-amd64"
GONE = Answer(False, "", "E: Version '6.12.113-1' for 'linux-headers-amd64' was not found")
KERNEL = Answer(
    True,
    "Inst linux-image-6.12.117+deb13-amd64 (6.12.117-1 Debian-Security:13/stable [amd64])\n"
    "Inst linux-headers-amd64 (6.12.117-1 Debian-Security:13/stable [amd64])\n"
    "Conf linux-headers-amd64 (6.12.117-1 Debian-Security:13/stable [amd64])\n",
)
UPGRADE = Answer(True, "Inst linux-image-amd64 [6.12.107-1] (6.12.117-1 Debian:13 [amd64])\n")
WELL = Answer(True, "Inst linux-headers-amd64 (6.12.107-1 Debian:13.7/stable [amd64])\n")
REMOVES = Answer(True, "Remv dkms [3.2.2-1]\nInst linux-headers-amd64 (1 Debian:13 [amd64])\n")
UNMET = Answer(
    False,
    "The following packages have unmet dependencies:\n"
    " linux-modules-nvidia-580-server-generic : Depends: nvidia-kernel-common-580-server "
    "(>= 580.178.04) but 580.173.02-0ubuntu0.24.04.1 is to be installed\n",
    "E: Unable to correct problems, you have held broken packages.",
)


def asked(answers: dict[str, Answer], log: list[str]) -> follow.Decision:
    def ask(name: str) -> Answer:
        log.append(name)
        return answers[name]

    return follow.decide(answers, ask)


@pytest.mark.parametrize(
    ("first", "second", "names", "why"),
    [
        pytest.param(WELL, WELL, [f"{HEADERS}=1"], "", id="the best version"),
        pytest.param(GONE, WELL, [HEADERS], "", id="the next best"),
        pytest.param(
            GONE,
            KERNEL,
            [],
            "Version '6.12.113-1' for 'linux-headers-amd64' was not found; "
            "it would install linux-image-6.12.117+deb13-amd64",
            id="a new kernel",
        ),
        pytest.param(
            UPGRADE,
            REMOVES,
            [],
            "it would install linux-image-amd64; it would remove dkms",
            id="more",
        ),
    ],
)
def test_the_kernel_stays(first: Answer, second: Answer, names: list[str], why: str) -> None:
    log: list[str] = []
    found = asked({f"{HEADERS}=1": first, HEADERS: second}, log)
    assert found.names == names
    assert found.left == ({HEADERS: why} if why else {})
    assert len(log) == (1 if first == WELL else 2)


def test_what_is_left_out_is_named() -> None:
    modules = "linux-modules-nvidia-580-server-generic"
    found = asked({HEADERS: GONE, modules: UNMET}, [])
    headers, signed = follow.findings("gpu-1", found)
    assert (headers["code"], signed["code"]) == ("KERNEL_HEADERS_LEFT", "KERNEL_MODULES_LEFT")
    assert "was not found" in headers["message"]
    assert "nvidia-kernel-common-580-server (>= 580.178.04) but 580.173.02" in signed["message"]


def test_newer_apt() -> None:
    apt = parse_scene(recording("packages/apt-2.8.4-3.0.4.txt"))

    def problem(scene: str, *, is_possible: bool = False) -> str | None:
        streams = (apt.get(f"{scene}-{stream}", "") for stream in ("stdout", "stderr"))
        return follow.problem(Answer(is_possible, *streams))

    assert problem("2.8.4-follow", is_possible=True) is None
    assert problem("2.8.4-unmet") == (
        "linux-modules-nvidia-580-server-open-6.8.0-138-generic : Depends: nvidia-kernel-"
        "common-580-server (<= 580.173.02-1) but 580.178.04-0ubuntu0.24.04.1 is to be installed"
    )
    assert problem("3.0.4-unmet") == (
        "nvidia-smi : Depends: libnvidia-ml1 (= 550.163.01-2) but it is not going to be installed"
    )
    assert problem("3.0.4-version") == "Version '580.*' for 'nvidia-smi' was not found"
    assert str(problem("3.0.4-missing")).startswith(
        "Unable to locate package linux-headers-6.12.113"
    )
