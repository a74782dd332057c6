# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which driver does a machine get? One table over systems, GPUs, Secure Boot and kernels.

N: NVIDIA's repository. D: the archive of the distribution. o: open, p: proprietary module.
-: refused as DRIVER_BRANCH_MISSING. S: refused as SECURE_BOOT_ON. ?: DRIVER_PACKAGES_UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.gpu_models import generation
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import known
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import Machine, Wish
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.source import (
    Choice,
    Refused,
    choose_source,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS

GPUS = {
    "Fermi": "06d2",
    "Kepler": "102d",
    "Maxwell": "13f2",
    "Pascal": "15f8",
    "Volta": "1db4",
    "Turing": "1eb8",
    "Ampere": "20b0",
    "Ada": "26b5",
    "Hopper": "2330",
    "Blackwell": "2901",
    "Blackwell Ultra": "3182",
}
# Sources are tried in this order where the wish is `auto`. The kernel matters only on Ubuntu.
TABLE = """
system        boot  kernel                  Fermi Kepler Maxwell Pascal Volta Turing Ampere Ada   Hopper Blackwell BlackwellUltra
debian-12     off   6.1.0-50-amd64          -     D470p  N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
debian-12     off   6.1.0-50-cloud-amd64    -     D470p  N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
debian-12     on    6.1.0-50-amd64          -     S      S       S      S     S      S      S     S      S         S
debian-13     off   6.12.107+deb13-amd64    -     -      D550p   D550p  D550p N595o  N595o  N595o N595o  N595o     N595o
debian-13     on    6.12.107+deb13-amd64    -     -      S       S      S     S      S      S     S      S         S
ubuntu-22.04  off   6.8.0-60-generic        -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
ubuntu-22.04  on    6.8.0-60-generic        -     -      D580p   D580p  D580p D580o  D580o  D580o D580o  D580o     D580o
ubuntu-24.04  off   6.8.0-60-generic        -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
ubuntu-24.04  off   6.11.0-custom           -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
ubuntu-24.04  on    6.8.0-60-generic        -     -      D580p   D580p  D580p D580o  D580o  D580o D580o  D580o     D580o
ubuntu-24.04  on    6.8.0-1032-aws          -     -      D580p   D580p  D580p D580o  D580o  D580o D580o  D580o     D580o
ubuntu-24.04  on    6.11.0-custom           -     -      S       S      S     S      S      S     S      S         S
ubuntu-26.04  off   7.0.0-15-generic        -     -      D580p   D580p  D580p N595o  N595o  N595o N595o  N595o     N595o
ubuntu-26.04  off   7.1.0-custom            -     -      -+?     -+?    -+?   N595o  N595o  N595o N595o  N595o     N595o
ubuntu-26.04  on    7.0.0-15-generic        -     -      D580p   D580p  D580p D580o  D580o  D580o D580o  D580o     D580o
rhel-9        off   5.14.0-570.el9.x86_64   -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
rhel-9        on    5.14.0-570.el9.x86_64   -     -      S       S      S     S      S      S     S      S         S
rhel-10       off   6.12.0-124.el10.x86_64  -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
rhel-10       on    6.12.0-124.el10.x86_64  -     -      S       S      S     S      S      S     S      S         S
rocky-9       off   5.14.0-570.el9.x86_64   -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
rocky-9       on    5.14.0-570.el9.x86_64   -     -      S       S      S     S      S      S     S      S         S
rocky-10      off   6.12.0-124.el10.x86_64  -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
rocky-10      on    6.12.0-124.el10.x86_64  -     -      S       S      S     S      S      S     S      S         S
almalinux-9   off   5.14.0-570.el9.x86_64   -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
almalinux-9   on    5.14.0-570.el9.x86_64   -     -      S       S      S     S      S      S     S      S         S
almalinux-10  off   6.12.0-124.el10.x86_64  -     -      N580p   N580p  N580p N580o  N580o  N580o N580o  N580o     N580o
almalinux-10  on    6.12.0-124.el10.x86_64  -     -      S       S      S     S      S      S     S      S         S
"""  # noqa: E501
BY_NAME = {f"{system.id}-{system.version}": system for system in SYSTEMS}
REFUSALS = {
    "DRIVER_BRANCH_MISSING": "-",
    "SECURE_BOOT_ON": "S",
    "DRIVER_PACKAGES_UNKNOWN": "?",
}
KERNELS = {
    "debian": "6.1.0-50-amd64",
    "ubuntu": "6.8.0-60-generic",
    "rhel": "5.14.0-570.el9.x86_64",
    "rocky": "5.14.0-570.el9.x86_64",
    "almalinux": "5.14.0-570.el9.x86_64",
}


def machine(system: str, *names: str, kernel: str = "", boot: bool = False) -> Machine:
    gpus: dict[Any, list[Any]] = {}
    for number, name in enumerate(names):
        row = {"address": f"0000:0{number}:00.0", "device": GPUS.get(name, name)}
        gpus.setdefault(generation(row["device"]), []).append(row)
    return Machine(BY_NAME[system], kernel or KERNELS[system.split("-")[0]], gpus, boot)


def short(found: Choice | Refused) -> str:
    if isinstance(found, Refused):
        return "+".join(REFUSALS.get(reason.code, reason.code) for reason in found.reasons)
    return f"{found.source[0].upper()}{found.branch}{found.flavour[0]}"


def rows() -> Iterator[Any]:
    heading, *lines = TABLE.strip().splitlines()
    names = heading.split()[3:]
    for line in lines:
        system, boot, kernel, *cells = line.split()
        yield pytest.param(
            system,
            boot == "on",
            kernel,
            dict(zip(names, cells, strict=True)),
            id=f"{system}, Secure Boot {boot}, {kernel}",
        )


@pytest.mark.parametrize(("system", "boot", "kernel", "expected"), [*rows()])
def test_every_generation_on_every_system(
    system: str, boot: bool, kernel: str, expected: Mapping[str, str]
) -> None:
    chosen = {
        name.replace(" ", ""): short(
            choose_source(machine(system, name, kernel=kernel, boot=boot), Wish())
        )
        for name in GPUS
    }
    assert chosen == expected


def test_the_table_has_every_system_with_and_without_secure_boot() -> None:
    found = {(row.values[0], row.values[1]) for row in rows()}
    assert found == {(name, boot) for name in BY_NAME for boot in (False, True)}


@pytest.mark.parametrize(
    ("system", "gpus", "wish", "expected"),
    [
        # What users set before there was a choice.
        pytest.param("debian-12", ("Pascal",), {"version": "580.178.04"}, "N580p", id="580.178.04"),
        pytest.param("debian-13", ("Pascal",), {"version": "580.178.04"}, "-", id="not there"),
        pytest.param(
            "debian-13",
            ("Pascal",),
            {"version": "580.178.04", "mirror": "your mirror"},
            "N580p",
            id="not there, but in a mirror",
        ),
        pytest.param("debian-13", ("Pascal",), {"mirror": "your mirror"}, "N580p", id="mirror"),
        pytest.param(
            "debian-13", ("Turing",), {"mirror": "your mirror"}, "N595o", id="mirror, a copy"
        ),
        pytest.param(
            "ubuntu-26.04",
            ("Turing",),
            {"mirror": "your mirror"},
            "N595o",
            id="mirror, names unknown",
        ),
        pytest.param("debian-12", ("Turing",), {"version": "595.99.01"}, "N595o", id="unseen"),
        pytest.param("debian-12", ("Turing",), {"version": "470.256.02"}, "D470p", id="archive's"),
        pytest.param("debian-12", ("Kepler",), {"version": "470.300.1"}, "D470p", id="its next"),
        # An archive has the newest version of a branch only.
        pytest.param("debian-12", ("Kepler",), {"version": "470.1.1"}, "-", id="no longer there"),
        pytest.param("debian-13", ("Pascal",), {"version": "550.90.07"}, "-", id="nor there"),
        pytest.param("ubuntu-26.04", ("Turing",), {"version": "580.105.08"}, "-", id="nor Ubuntu"),
        # Branches.
        pytest.param("debian-13", ("Ampere",), {"branch": 615}, "N615o", id="615"),
        pytest.param("debian-13", ("Ampere",), {"branch": 590}, "-", id="590, no version seen"),
        pytest.param("debian-13", ("Ampere",), {"branch": 550}, "D550p", id="550"),
        pytest.param(
            "debian-12", ("Pascal",), {"branch": 595}, "GPU_UNSUPPORTED_BY_DRIVER", id="595, old"
        ),
        pytest.param(
            "debian-12",
            ("Blackwell",),
            {"branch": 550},
            "GPU_UNSUPPORTED_BY_DRIVER",
            id="550, new",
        ),
        # Sources.
        pytest.param("debian-12", ("Pascal",), {"source": "distribution"}, "D535p", id="Debian 12"),
        pytest.param("debian-12", ("Turing",), {"source": "distribution"}, "D535p", id="its order"),
        pytest.param("debian-13", ("Turing",), {"source": "distribution"}, "D550p", id="Debian 13"),
        pytest.param("debian-13", ("Pascal",), {"source": "nvidia"}, "-", id="not NVIDIA's"),
        pytest.param("debian-13", ("Blackwell",), {"source": "distribution"}, "-", id="too new"),
        pytest.param("rocky-9", ("Turing",), {"source": "distribution"}, "-", id="no own driver"),
        pytest.param("ubuntu-24.04", ("Hopper",), {"source": "distribution"}, "D580o", id="Ubuntu"),
        pytest.param("debian-12", ("Kepler",), {"source": "runfile"}, "R470p", id="runfile"),
        pytest.param("debian-12", ("Fermi",), {"source": "runfile"}, "R390p", id="runfile, Fermi"),
        pytest.param(
            "debian-12", ("Turing",), {"source": "present"}, "DRIVER_NOT_PRESENT", id="present"
        ),
        # Modules.
        pytest.param("debian-12", ("Turing",), {"flavour": "proprietary"}, "N580p", id="closed"),
        pytest.param(
            "debian-12", ("Pascal",), {"flavour": "open"}, "FLAVOUR_UNSUPPORTED", id="open, old"
        ),
        pytest.param(
            "debian-12",
            ("Turing",),
            {"flavour": "proprietary", "version": "620.10.01"},
            "FLAVOUR_UNSUPPORTED",
            id="620 has no proprietary module",
        ),
        # A device id that is newer than the table.
        pytest.param("debian-12", ("3000",), {}, "N580o", id="unknown GPU, the newest recorded"),
        pytest.param("debian-13", ("3000",), {}, "N615o", id="unknown GPU"),
        pytest.param("debian-12", ("3000",), {"source": "runfile"}, "R615o", id="unknown, .run"),
        pytest.param("rhel-9", ("Turing",), {"branch": 575}, "-", id="575 does not build on 9.8"),
        # Several generations in one machine.
        pytest.param("debian-12", ("Pascal", "Turing"), {}, "N580p", id="Pascal, Turing"),
        pytest.param("debian-13", ("Pascal", "Turing"), {}, "D550p", id="both from Debian"),
        pytest.param("debian-12", ("Turing", "Blackwell"), {}, "N580o", id="Turing, Blackwell"),
        pytest.param("debian-12", ("Kepler", "Turing"), {}, "D470p", id="Kepler, Turing"),
        pytest.param(
            "debian-12", ("Kepler", "Hopper"), {}, "GPUS_INCOMPATIBLE", id="Kepler, Hopper"
        ),
        pytest.param(
            "debian-12", ("Pascal", "Blackwell"), {}, "FLAVOUR_UNSUPPORTED", id="two modules"
        ),
        pytest.param(
            "debian-12",
            ("Kepler", "Blackwell"),
            {},
            "GPUS_INCOMPATIBLE+FLAVOUR_UNSUPPORTED",
            id="both reasons",
        ),
        pytest.param("ubuntu-24.04", ("2342",), {}, "ARM64_UNSUPPORTED", id="Grace Hopper"),
    ],
)
def test_wishes(system: str, gpus: tuple[str, ...], wish: dict[str, Any], expected: str) -> None:
    assert short(choose_source(machine(system, *gpus), Wish(**wish))) == expected


@pytest.mark.parametrize(
    ("system", "gpu", "boot", "expected"),
    [
        pytest.param(
            "debian-12", "Pascal", False, "NVIDIA's repository for Debian 12 has branch 580", id="N"
        ),
        pytest.param(
            "debian-13",
            "Pascal",
            False,
            "Pascal (0000:00:00.0) needs branch 580 or older: NVIDIA's repository for Debian 13 "
            "starts with branch 590; the archive of Debian 13 has branch 550",
            id="D",
        ),
        pytest.param(
            "ubuntu-24.04",
            "Hopper",
            True,
            "NVIDIA's repository for Ubuntu 24.04 has only modules that are built on the node; the "
            "archive of Ubuntu 24.04 has branch 580 with signed modules",
            id="Secure Boot",
        ),
    ],
)
def test_a_choice_says_why(system: str, gpu: str, boot: bool, expected: str) -> None:
    found = choose_source(machine(system, gpu, boot=boot), Wish())
    assert isinstance(found, Choice)
    assert found.why == expected


@pytest.mark.parametrize(
    ("system", "gpu", "boot", "wish", "alternatives"),
    [
        pytest.param(
            "rocky-9",
            "Turing",
            False,
            {"source": "distribution"},
            [
                "set `nvidia_driver_source: nvidia`, for driver 580.178.04 (open) from NVIDIA's "
                "repository for Rocky Linux 9",
                "set nvidia_driver_repository_url to a mirror that has branch 580 and "
                "nvidia_driver_version to the version there and set `nvidia_driver_source: nvidia`",
                "set `nvidia_driver_source: runfile`, and nvidia_driver_runfile_url to NVIDIA's "
                ".run file, for example of branch 580",
                "install a driver yourself: the role keeps a driver that works",
            ],
            id="Rocky Linux has none",
        ),
        pytest.param(
            "ubuntu-24.04",
            "Turing",
            True,
            {"source": "nvidia", "branch": 595, "flavour": "proprietary"},
            [
                "set `nvidia_driver_source: distribution` and remove nvidia_driver_branch and "
                "nvidia_driver_flavour, for driver of branch 580 (open) from the archive of Ubuntu "
                "24.04",
                "install a driver yourself, with a signed module: the role keeps a driver that "
                "works",
            ],
            id="Secure Boot",
        ),
        pytest.param(
            "rocky-9",
            "Turing",
            True,
            {"source": "distribution"},
            [
                "install a driver yourself, with a signed module: the role keeps a driver that "
                "works",
                "enrol the key of DKMS in the firmware, or turn Secure Boot off, and then: set "
                "`nvidia_driver_source: nvidia`, for driver 580.178.04 (open) from NVIDIA's "
                "repository for Rocky Linux 9",
                "set nvidia_driver_repository_url to a mirror that has branch 580 and "
                "nvidia_driver_version to the version there and set `nvidia_driver_source: nvidia`",
                "set `nvidia_driver_source: runfile`, and nvidia_driver_runfile_url to NVIDIA's "
                ".run file, for example of branch 580",
            ],
            id="Secure Boot, and no signed modules anywhere",
        ),
        pytest.param(
            "debian-12",
            "Hopper",
            False,
            {"source": "nvidia", "branch": 595},
            [
                "set `nvidia_driver_source: nvidia` and remove nvidia_driver_branch, for driver "
                "580.178.04 (open) from NVIDIA's repository for Debian 12",
                "set `nvidia_driver_source: distribution` and remove nvidia_driver_branch, for "
                "driver of branch 535 (proprietary) from the archive of Debian 12",
                "set nvidia_driver_version to the version of branch 595 that NVIDIA's repository "
                "for Debian 12 has: nobody has recorded one",
                "set nvidia_driver_repository_url to a mirror that has branch 595 and "
                "nvidia_driver_version to the version there",
                "set `nvidia_driver_source: runfile`, and nvidia_driver_runfile_url to NVIDIA's "
                ".run file, for example of branch 595",
                "install a driver yourself: the role keeps a driver that works",
            ],
            id="a branch without a recorded version",
        ),
        pytest.param(
            "debian-12",
            "Fermi",
            False,
            {},
            [
                "set `nvidia_driver_source: runfile`, and nvidia_driver_runfile_url to NVIDIA's "
                ".run file, for example of branch 390, whose module may not build for the kernel",
                "install a driver yourself: the role keeps a driver that works",
            ],
            id="Fermi",
        ),
        pytest.param(
            "debian-12",
            "0191",
            False,
            {},
            ["install a driver yourself: the role keeps a driver that works"],
            id="older than every recorded installer",
        ),
    ],
)
def test_a_refusal_has_every_way_out(
    system: str, gpu: str, boot: bool, wish: dict[str, Any], alternatives: list[str]
) -> None:
    found = choose_source(machine(system, gpu, boot=boot), Wish(**wish))
    assert isinstance(found, Refused)
    (reason,) = found.reasons
    ways = "; or ".join(alternatives)
    assert f"{reason.evidence['signed']}{reason.evidence['alternatives']}" == ways
    # The words of SECURE_BOOT_ON have the key and the firmware between the two.
    is_boot = reason.code == "SECURE_BOOT_ON"
    assert str(reason.evidence["signed"]).startswith(alternatives[0] if is_boot else "")
    assert is_boot or not reason.evidence["signed"]


def test_foreign_repositories_are_named() -> None:
    found = choose_source(machine("rocky-9", "Turing"), Wish("distribution"))
    assert isinstance(found, Refused)
    assert found.reasons[0].evidence["reasons"] == (
        "Rocky Linux 9 has no driver of its own, and RPM Fusion, ELRepo and negativo17 are not used"
    )


def test_the_default_version_is_580_where_it_exists() -> None:
    for name, system in BY_NAME.items():
        found = choose_source(machine(name, "Hopper"), Wish())
        if isinstance(found, Choice) and 580 in known.repository(system).seen:
            assert (found.source, found.version) == ("nvidia", "580.178.04")


def test_versions_of_an_archive_are_those_of_the_branch() -> None:
    found = choose_source(machine("debian-13", "Pascal"), Wish())
    assert isinstance(found, Choice)
    assert (found.version, found.driver) == ("550.*", "of branch 550")
    assert found.fits("550.163.01")
    assert not found.fits("595.71.05")
    assert not found.fits(None)


def test_secure_boot_and_a_kernel_without_signed_modules() -> None:
    """Both sentences: the other kernel is a way out, too."""
    strange = machine("ubuntu-24.04", "Hopper", kernel="6.8.0-60-realtime", boot=True)
    found = choose_source(strange, Wish())
    assert isinstance(found, Refused)
    (reason,) = found.reasons
    assert reason.code == "SECURE_BOOT_ON"
    assert "only modules that are built on the node" in str(reason.evidence["reasons"])
    assert "signed modules for the kernel 6.8.0-60-realtime" in str(reason.evidence["reasons"])


@pytest.mark.parametrize(
    "kernel", ["6.8.0-1040-nvidia", "6.8.0-1030-azure-fde", "6.8.0-60-lowlatency"]
)
def test_kernels_with_signed_modules(kernel: str) -> None:
    found = choose_source(machine("ubuntu-24.04", "Hopper", kernel=kernel, boot=True), Wish())
    assert isinstance(found, Choice)
    assert found.source == "distribution"


def test_debians_open_module_is_not_offered() -> None:
    """It does not compile with the kernels of Debian 12 and 13."""
    for name in ("debian-12", "debian-13"):
        found = choose_source(machine(name, "Turing"), Wish("distribution", flavour="open"))
        assert isinstance(found, Refused)
        (reason,) = found.reasons
        assert "only the proprietary module can be used" in str(reason.evidence["reasons"])


def test_an_archive_has_replaced_older_versions() -> None:
    found = choose_source(machine("debian-13", "Pascal"), Wish(version="550.90.07"))
    assert isinstance(found, Refused)
    assert "it has replaced 550.90.07 by 550.163.01" in str(found.reasons[0].evidence["reasons"])
