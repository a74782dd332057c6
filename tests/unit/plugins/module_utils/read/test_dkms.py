# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import dkms
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

RECORDED = Path(__file__).parents[5] / "tests" / "recorded"
LOG = "/var/lib/dkms/nvidia/590.48.01/build/make.log"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", None, id="empty"),
        pytest.param("CC [M] nvidia/nv.o\nwarning: odd\n", None, id="cut off"),
        pytest.param(
            recording("dkms/make-log-headers.txt"),
            "ERROR: Kernel configuration is invalid.",
            id="incomplete headers",
        ),
        pytest.param(
            recording("dkms/make-log-gcc-11.txt"),
            "cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'",
            id="the same error of several files",
        ),
        pytest.param(
            recording("dkms/make-log-no-compiler.txt"),
            "/var/lib/dkms/nvidia-current/535.309.01/build/conftest.sh: 7133: gcc-12: not found",
            id="no compiler",
        ),
        pytest.param(
            "/bin/sh: 1: gcc-12: not found\nmake[2]: *** [Makefile.build:243: toy.o] Error 127\n",
            "/bin/sh: 1: gcc-12: not found",
            id="no compiler, Ubuntu 22.04",
        ),
        pytest.param(
            "<command-line>: fatal error: linux/autoconf.h: No such file or directory\n",
            "<command-line>: fatal error: linux/autoconf.h: No such file or directory",
            id="no autoconf.h",
        ),
        pytest.param(
            "x.o: final close failed: No space left on device\nmake: *** [x.o] Error 1\n",
            "x.o: final close failed: No space left on device; make: *** [x.o] Error 1",
            id="full disk",
        ),
        pytest.param(
            "/bin/sh: line 1: g++: command not found\nmake[1]: *** [Makefile:219: x.o] Error 127\n",
            "/bin/sh: line 1: g++: command not found",
            id="no compiler",
        ),
        pytest.param(
            "a.c:1: error: one\nb.c:1: error: two\nc.c:1: error: three\nd.c:1: error: four\n",
            "a.c:1: error: one; b.c:1: error: two; c.c:1: error: three",
            id="the first three",
        ),
        pytest.param("error: \x1b[31m" + "x" * 300, f"error: ?[31m{'x' * 188}", id="long, odd"),
    ],
)
def test_the_words_of_the_compiler(text: str, expected: str | None) -> None:
    assert dkms.parse_log(text) == expected


@pytest.mark.parametrize(
    ("start", "kernel"),
    [
        pytest.param(recording("dkms/make-log-headers.txt"), "7.0.0-1011-gcp", id="DKMS 2"),
        pytest.param(recording("dkms/make-log-gcc-11.txt"), "6.8.0-60-generic", id="DKMS 3"),
        pytest.param(recording("dkms/make-log-no-compiler.txt"), "6.1.0-56-amd64", id="Debian 12"),
        pytest.param("make: nothing\n", None, id="another form"),
    ],
)
def test_the_kernel_of_a_failed_build(start: str, kernel: str | None) -> None:
    found = dkms.parse([LOG], "6.1.0-26-amd64", {LOG: {"start": start, "end": ""}})
    assert (found["failed"], found["log"]) == (kernel, LOG)


def test_names_of_sources() -> None:
    """Ubuntu's source of the driver for servers has a name of its own, and builds nvidia.ko."""
    release = "6.8.0-149-generic"
    folder = "/var/lib/dkms/nvidia-srv/580.178.04"
    paths = [f"{folder}/source", f"{folder}/{release}/x86_64/module/nvidia.ko"]
    found = dkms.parse(paths, release, {})
    assert (found["sources"], found["built"]) == (["nvidia-srv/580.178.04"], True)


def test_sources_that_dkms_does_not_have() -> None:
    names = ("nvidia-580.178.04", "nvidia-srv-580.178.04", "nvidia-current-open-550.163.01")
    others = ("nvidia-tesla-470-470.256.02", "nvidia-fs-2.25.7", "nvidia-gds-1.0")
    paths = ["/var/lib/dkms/nvidia/580.178.04/source"]
    paths += [f"/usr/src/{name}/dkms.conf" for name in (*names, *others)]
    found = dkms.parse(paths, "6.8.0-149-generic", {})
    assert (found["sources"], found["built"]) == (["nvidia/580.178.04"], False)
    assert found["addable"] == [
        *("nvidia-current-open/550.163.01", "nvidia-srv/580.178.04"),
        "nvidia-tesla-470/470.256.02",
    ]


def test_the_words_of_the_record() -> None:
    """The first telling line of each recorded failure is quoted."""
    rows = yaml.safe_load((RECORDED / "dkms.yml").read_text())["failed_builds"]
    said = {row["name"]: dkms.parse_log("\n".join(row["printed"])) for row in rows}
    assert said == {
        "compiler-missing": "/bin/sh: line 1: g++: command not found",
        "compiler-old": (
            "cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'"
        ),
        "kernel-changed": (
            "nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'"
        ),
        "headers-incomplete": "ERROR: Kernel configuration is invalid.",
        "no-space": (
            "nvidia/nv-pci.c:218:1: fatal error: error writing to /tmp/cclDw8UE.s: "
            "No space left on device"
        ),
    }


def test_build_that_was_interrupted() -> None:
    """DKMS has stored the log, and no module."""
    source = "/var/lib/dkms/nvidia/580.178.04"
    paths = [
        f"{source}/source",
        f"{source}/6.1.0-51-amd64/x86_64/log",
        f"{source}/6.1.0-51-amd64/x86_64/module/nvidia.ko",
        f"{source}/6.1.0-52-amd64/x86_64/log",
    ]
    found = dkms.parse(paths, "6.1.0-52-amd64", {})
    assert found["built"] is False
    assert (found["kernels"], found["unfinished"]) == (["6.1.0-51-amd64"], ["6.1.0-52-amd64"])
