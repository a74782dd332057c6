# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.failure import (
    Explanation,
    explain,
    is_locked,
    is_passing,
    is_stale,
    nearest,
    parse_dnf_list,
    parse_madison,
    split,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import parse_scene, recording

FREE = {"lock": None, "interrupted": False}
LOCK = {"path": "/var/lib/dpkg/lock-frontend", "pid": 812, "command": "apt-get upgrade"}
REPOSITORY = {
    "name": "metal-gpu-docker",
    "url": "http://mirror.example/toolkit/",
    "fingerprint": "F" * 40,
    "new": False,
}
CHOICES = {
    "host": "gpu-1",
    "names": ["containerd.io=2.4.9-1~debian.12~bookworm"],
    "lock_timeout": 300,
    "repository": REPOSITORY,
}
MADISON = """\
containerd.io | 2.4.2-1~debian.12~bookworm | http://mirror.example/docker bookworm/stable amd64
containerd.io | 2.3.6-1~debian.12~bookworm | http://mirror.example/docker bookworm/stable amd64
"""


def update(version: str, scene: str) -> str:
    return parse_scene(recording(f"packages/apt-update-{version}.txt"))[scene]


def explained(
    text: str = "", answers: Any = None, manager: Any = None, printed: str = "", **desired: Any
) -> Explanation:
    node = {
        "package_manager": manager or FREE,
        "os": {"id": "debian", "family": desired.pop("family", "debian"), "version_id": "12"},
        "pci": [{"address": "0000:03:00.0", "device": "2330"}],
        "secure_boot": False,
        "package_sources": desired.pop("sources", []),
        "kernel": {"release": desired.pop("kernel", "6.1.0-50-amd64")},
        "driver": {
            "next_kernel": None,
            "dkms": {"builds": desired.pop("builds", {})},
            "signing": None,
        },
    }
    return explain(text, answers or {}, node, {**CHOICES, **desired}, printed)


def said(text: str = "", answers: Any = None, manager: Any = None, **more: Any) -> list[str]:
    """Return code and message of each finding."""
    found = explained(text, answers, manager, **more).findings
    return [f"{one['code']} {one['message'].removeprefix('gpu-1: ')}" for one in found]


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        pytest.param(
            "half-synced",
            "REPOSITORY_INCOMPLETE the files of the repository http://mirror.example/toolkit do "
            "not match its index: File has unexpected size (212 != 999). Mirror sync in progress? "
            "[IP: 192.0.2.7 80]",
            id="half-synced mirror",
        ),
        pytest.param(
            "clock-in-the-past",
            "REPOSITORY_CLOCK the repository http://mirror.example/toolkit is not valid at the "
            "time of the node: is not valid yet (invalid for another 4421d 21h 21min 47s)",
            id="clock in the past",
        ),
        pytest.param(
            "old-mirror",
            "REPOSITORY_CLOCK the repository http://mirror.example/toolkit is not valid at the "
            "time of the node: is expired (invalid since 2486d 2h 38min 3s)",
            id="mirror that nobody renews",
        ),
    ],
)
def test_index_and_time(scene: str, expected: str) -> None:
    assert said("Failed to update apt cache", {"update": update("2.6.1", scene)}) == [expected]


def test_package_that_the_index_names_and_the_mirror_lacks() -> None:
    """The words of apt 2.6.1 with a flat repository; the file had been deleted."""
    error = (
        "E: Failed to fetch http://mirror.example/toolkit/./foo_1.0-1_amd64.deb  404  Not Found\n"
        "E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?"
    )
    assert said(error, {"update": "", "versions": MADISON.replace("2.4.2", "2.4.9")}) == [
        "REPOSITORY_INCOMPLETE the files of the repository http://mirror.example/toolkit do not "
        "match its index: 404  Not Found foo_1.0-1_amd64.deb"
    ]


def test_server_that_has_no_answer_for_a_package() -> None:
    error = "E: Failed to fetch http://mirror.example/toolkit/foo_1.0-1_amd64.deb  503  Unavailable"
    (found,) = said(error, {"versions": MADISON.replace("2.4.2", "2.4.9")})
    assert found.startswith("REPOSITORY_UNREACHABLE")


# Source: NVIDIA/cuda-repo-management#34, 2025-12-25: NVIDIA's repository for Debian 12 with sqv.
SHA1 = """\
W: OpenPGP signature verification failed: http://mirror.example/toolkit  InRelease: Sub-process \
/usr/bin/sqv returned an error code (1), error message is: Signing key on \
EB693B3035CD5710E231E123A4B469963BF863CC is not bound:
            No binding signature at time 2026-01-29T20:38:07Z
     because: Policy rejected non-revocation signature (PositiveCertification) requiring second \
pre-image resistance
     because: SHA1 is not considered secure since 2026-02-01T00:00:00Z
E: The repository 'http://mirror.example/toolkit  InRelease' is not signed.
"""


def test_signature_of_the_future() -> None:
    """sqv knows no repository of the future, only a signature that it does not take for one."""
    text = update("3.0.3", "clock-in-the-past")
    assert said("Failed to update apt cache", {"update": text}) == [
        "REPOSITORY_CLOCK the repository http://mirror.example/toolkit is not valid at the time of "
        "the node: Sub-process /usr/bin/sqv returned an error code (1), error message is: "
        "Verifying signature: Not live until 2029-12-31T23:30:00Z"
    ]


def test_key_that_is_too_weak_in_one_line() -> None:
    (found,) = said("Failed to update apt cache", {"update": update("3.0.3", "weak-key")})
    assert found == (
        "REPOSITORY_KEY_WEAK apt does not accept the key of the repository "
        "http://mirror.example/toolkit, although it is the right one: Sub-process /usr/bin/sqv "
        "returned an error code (1), error message is: Signing key on "
        "9DE7CCD316CBA75620647FE48946F84F5956D56D is not bound: SHA1 is not considered secure "
        "since 2026-02-01T00:00:00Z (key: 9DE7CCD316CBA75620647FE48946F84F5956D56D)"
    )


def test_key_whose_own_signature_is_too_weak() -> None:
    assert said("Failed to update apt cache", {"update": SHA1}) == [
        "REPOSITORY_KEY_WEAK apt does not accept the key of the repository "
        "http://mirror.example/toolkit, although it is the right one: Sub-process /usr/bin/sqv "
        "returned an error code (1), error message is: Signing key on "
        "EB693B3035CD5710E231E123A4B469963BF863CC is not bound: SHA1 is not considered secure "
        "since 2026-02-01T00:00:00Z (key: EB693B3035CD5710E231E123A4B469963BF863CC)"
    ]


OUT_OF_STEP = parse_scene(recording("packages/dnf-out-of-step.txt"))
PRIMARY = "ac3d8cc95612acde7d3c6b1f740f33620b24d17dcd45bf9312332860764bb2c9-primary.xml.gz"
UNLIKE = "do not match its index:"
OTHER = "Downloading successful, but checksum doesn't match"


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (
            "index-404",
            f"REPOSITORY_INCOMPLETE the files of the repository metal-gpu-docker {UNLIKE} Status "
            f"code: 404 for {PRIMARY} (IP: 192.0.2.7)",
        ),
        (
            "index-checksum",
            f"REPOSITORY_INCOMPLETE the files of the repository metal-gpu-docker {UNLIKE} {OTHER}. "
            "Calculated: 2f67",
        ),
        (
            "package-404",
            "REPOSITORY_INCOMPLETE the files of the repository http://mirror.example/toolkit "
            f"{UNLIKE} Status code: 404 foo-1.0-1.noarch.rpm",
        ),
        (
            "package-checksum",
            "REPOSITORY_INCOMPLETE the files of the repository of foo-1.0-1.noarch.rpm "
            f"{UNLIKE} {OTHER} foo-1.0-1.noarch.rpm",
        ),
        (
            "no-server",
            "REPOSITORY_UNREACHABLE the repository metal-gpu-docker cannot be used: Curl error "
            "(7): Couldn't connect to server for repomd.xml [Failed to connect to mirror.example "
            "port 8443 after 0 ms: Couldn't connect to server]",
        ),
        (
            "clock",
            "REPOSITORY_CLOCK the repository metal-gpu-docker is not valid at the time of the "
            "node: Curl error (60): SSL peer certificate or SSH remote key was not OK for "
            "repomd.xml [SSL certificate problem: certificate is not yet valid]",
        ),
    ],
)
def test_index_files_and_time_with_dnf(scene: str, expected: str) -> None:
    error = OUT_OF_STEP.get(scene) or OUT_OF_STEP[f"{scene}-stderr"]
    printed = OUT_OF_STEP.get(f"{scene}-stdout", "")
    (found,) = said(error, {"versions": ""}, printed=printed, family="redhat", names=["foo"])
    assert found.startswith(expected)
    if scene != "index-checksum":
        assert found == expected


def test_dnf_does_not_say_that_a_key_is_of_the_future() -> None:
    """So the remedy of the repository that is not trusted asks for the clock."""
    (found,) = explained(OUT_OF_STEP["key-of-the-future"], family="redhat").findings
    assert found["code"] == "REPOSITORY_UNTRUSTED"
    assert "metal-gpu-docker is not trusted: repomd.xml GPG signature" in found["message"]
    assert "`date` on the node" in found["remedy"]


def test_dnf_says_what_is_wrong_below_its_word_error() -> None:
    error = "Error: \n Problem: conflicting requests\n  - package x is filtered out by exclude\n"
    assert said(error, {}, family="redhat", names=["x"]) == [
        "PACKAGES_FAILED the package manager failed: Problem: conflicting requests; - package x is "
        "filtered out by exclude"
    ]


def test_packages_that_dnf_may_not_remove() -> None:
    scenes = parse_scene(recording("packages/dnf-install-removes.txt"))
    assert said(scenes["conflict-stderr"], {}, family="redhat", names=["x"]) == [
        "PACKAGES_DISPLACED the installation of x would remove packages that the plan does not "
        "name: kmod-nvidia-latest-dkms"
    ]


def test_packages_that_would_go_besides() -> None:
    scenes = parse_scene(recording("packages/apt-install-removes.txt"))
    (found,) = said(
        scenes["no-remove-stderr"], {}, printed=scenes["no-remove-stdout"], names=["foo=1.0-1"]
    )
    assert found == (
        "PACKAGES_DISPLACED the installation of foo=1.0-1 would remove packages that the plan does "
        "not name: build-essential, dpkg-dev, less, patch, tcl-dev, tcl8.6-dev, tk-dev, tk8.6-dev, "
        "xxd"
    )


def test_repository_that_never_ends() -> None:
    """The words of coreutils 9.1. A limit on a question is no finding about the repository."""
    error = "non-zero return code: timeout: sending signal TERM to command 'apt-get'"
    assert said(error) == [
        "REPOSITORY_UNREACHABLE the repository http://mirror.example/toolkit cannot be used: "
        "apt-get did not end in time"
    ]


@pytest.mark.parametrize(
    ("version", "scene", "expected"),
    [
        pytest.param(
            "2.6.1",
            "wrong-key",
            "REPOSITORY_UNTRUSTED the repository http://mirror.example/toolkit/stable/deb/amd64 "
            "is not trusted: The following signatures couldn't be verified because the public "
            "key is not available: NO_PUBKEY 4B66779006D76BF0 (key: 4B66779006D76BF0; pinned key: "
            f"{'F' * 40})",
            id="wrong key, gpgv",
        ),
        pytest.param(
            "3.0.3",
            "wrong-key",
            "REPOSITORY_UNTRUSTED the repository http://mirror.example/toolkit/stable/deb/amd64 "
            "is not trusted: Sub-process /usr/bin/sqv returned an error code (1), error message "
            "is: Missing key DB7E9F4CEFFD43D87D278AE74B66779006D76BF0, which is needed to verify "
            f"signature. (key: DB7E9F4CEFFD43D87D278AE74B66779006D76BF0; pinned key: {'F' * 40})",
            id="wrong key, sqv",
        ),
        pytest.param(
            "2.6.1",
            "expired",
            "REPOSITORY_UNTRUSTED the repository http://mirror.example/exp is not trusted: The "
            "following signatures were invalid: EXPKEYSIG E1CF4930D4AE61C7 expired (key: "
            f"E1CF4930D4AE61C7; pinned key: {'F' * 40})",
            id="expired key",
        ),
        *(
            pytest.param(version, scene, f"REPOSITORY_UNREACHABLE {expected}", id=f"{scene}, {id_}")
            for version, id_, scene, expected in (
                (
                    "2.6.1",
                    "apt 2",
                    "refused",
                    "the repository http://mirror.example:1/toolkit cannot be used: Could not "
                    "connect to mirror.example:1 (mirror.example). - connect (111: Connection "
                    "refused)",
                ),
                (
                    "3.0.3",
                    "apt 3",
                    "refused",
                    "the repository http://mirror.example:1/toolkit cannot be used: Unable to "
                    "connect to mirror.example:1:",
                ),
                (
                    "2.6.1",
                    "apt 2",
                    "unresolved",
                    "the repository http://mirror.invalid/toolkit cannot be used: Could not "
                    "resolve 'mirror.invalid'",
                ),
                (
                    "3.0.3",
                    "apt 3",
                    "notfound",
                    "the repository http://mirror.example/nowhere cannot be used: does not have a "
                    "Release file",
                ),
            )
        ),
    ],
)
def test_repositories(version: str, scene: str, expected: str) -> None:
    assert said("Failed to update apt cache", {"update": update(version, scene)}) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "http://mirror.example/gpg is the key 06D76BF0, expected 9DC85822",
            "REPOSITORY_UNTRUSTED the repository http://mirror.example/gpg is not trusted: is "
            f"the key 06D76BF0 (key: not named; pinned key: {'F' * 40})",
            id="look-up of another key",
        ),
        pytest.param(
            f"the lookup failed: http://mirror.example/gpg is the key {'A' * 40}, which "
            "expired on 2020-01-02",
            "REPOSITORY_UNTRUSTED the repository http://mirror.example/gpg is not trusted: is "
            f"the key {'A' * 40}, which expired on 2020-01-02 (key: {'A' * 40}; pinned key: "
            f"{'F' * 40})",
            id="look-up of an expired key",
        ),
        pytest.param(
            "http://mirror.example/gpg is not a trustworthy key: it contains a second "
            f"primary key, {'B' * 40}",
            "REPOSITORY_UNTRUSTED the repository http://mirror.example/gpg is not trusted: is "
            f"not a trustworthy key: it contains a second primary key, {'B' * 40} (key: "
            f"{'B' * 40}; pinned key: {'F' * 40})",
            id="look-up of two keys",
        ),
        pytest.param(
            "cannot fetch the signing key http://mirror.example/gpg: timed out",
            "REPOSITORY_UNREACHABLE the repository http://mirror.example/gpg cannot be used: timed "
            "out",
            id="look-up without answer",
        ),
        pytest.param(
            "W: GPG error: http://mirror.example/docker bookworm InRelease: The following "
            "signatures couldn't be verified: NO_PUBKEY 4B66779006D76BF0",
            "REPOSITORY_UNTRUSTED the repository http://mirror.example/docker is not trusted: The "
            "following signatures couldn't be verified: NO_PUBKEY 4B66779006D76BF0 (key: "
            f"4B66779006D76BF0; pinned key: {'F' * 40})",
            id="apt, wrong key of a repository with suites",
        ),
        pytest.param(
            "E:Failed to fetch http://me:x@mirror.example/toolkit/InRelease  401  Unauthorized "
            "[IP: 10.0.0.1 80]\nE:The repository 'http://mirror.example/toolkit  InRelease' is not "
            "signed.",
            "REPOSITORY_UNREACHABLE the repository http://mirror.example/toolkit cannot be used: "
            "401  Unauthorized [IP: 10.0.0.1 80]",
            id="apt, no password or a wrong one",
        ),
        pytest.param(
            "E: Failed to fetch http://mirror.example/toolkit/./InRelease  Could not connect",
            "REPOSITORY_UNREACHABLE the repository http://mirror.example/toolkit cannot be used: "
            "Could not connect",
            id="apt, flat repository with the suite ./",
        ),
        pytest.param(
            "Failed to download metadata for repo 'metal-gpu-docker': Cannot download repomd.xml: "
            "Cannot download repodata/repomd.xml: All mirrors were tried",
            "REPOSITORY_UNREACHABLE the repository metal-gpu-docker cannot be used: Cannot "
            "download repomd.xml: Cannot download repodata/repomd.xml: All mirrors were tried",
            id="dnf, no answer",
        ),
        pytest.param(
            "Failed to download metadata for repo 'metal-gpu-docker': repomd.xml GPG signature "
            "verification error: Bad GPG signature",
            "REPOSITORY_UNTRUSTED the repository metal-gpu-docker is not trusted: repomd.xml "
            "GPG signature verification error: Bad GPG signature (key: not named; pinned key: "
            f"{'F' * 40})",
            id="dnf, wrong key",
        ),
        pytest.param(
            "Error: \n Problem: conflicting requests\n  - nothing provides dkms >= 3.1.8 needed by "
            "kmod-nvidia-open-dkms-3:580.178.04-1.el9.noarch from metal-gpu-nvidia\n"
            "(try to add '--skip-broken' to skip uninstallable packages)",
            "DEPENDENCY_MISSING no enabled repository has dkms >= 3.1.8, which "
            "kmod-nvidia-open-dkms-3:580.178.04-1.el9.noarch needs",
            id="dnf, a dependency",
        ),
        pytest.param(
            "warning: /var/cache/x.rpm: Header V4 RSA/SHA256 Signature, key ID 621e9f35: NOKEY\n"
            "Public key for nvidia-driver-cuda-580.178.04-1.el9.x86_64.rpm is not installed. "
            "Failing package is: nvidia-driver-cuda-3:580.178.04-1.el9.x86_64\n"
            "Error: GPG check FAILED",
            "REPOSITORY_UNTRUSTED the repository http://mirror.example/toolkit is not trusted: "
            "Public key for nvidia-driver-cuda-580.178.04-1.el9.x86_64.rpm is not installed (key: "
            f"not named; pinned key: {'F' * 40})",
            id="dnf, package with another signature",
        ),
        pytest.param(
            "dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct",
            "DPKG_INTERRUPTED dpkg was interrupted during an operation",
            id="interrupted",
        ),
        pytest.param(
            "'apt-get install' failed: E: Sub-process /usr/bin/dpkg returned an error code (1)",
            "PACKAGES_FAILED the package manager failed: 'apt-get install' failed: E: Sub-process "
            "/usr/bin/dpkg returned an error code (1)",
            id="something else",
        ),
    ],
)
def test_failures(text: str, expected: str) -> None:
    assert said(text, {"versions": "containerd.io | 2.4.9-1~debian.12~bookworm | x"}) == [expected]


def test_the_line_that_tells_is_in_the_output_of_dpkg() -> None:
    """apt's own last words are: Sub-process /usr/bin/dpkg returned an error code (1)."""
    error = (
        "'/usr/bin/apt-get install' failed: E: Sub-process /usr/bin/dpkg returned an error code (1)"
    )
    (found,) = said(
        error,
        {"versions": "nvidia-driver-cuda | 1 | x"},
        printed=recording("packages/dpkg-build-failed.txt"),
        names=["nvidia-driver-cuda=1"],
    )
    assert found == (
        "PACKAGES_UNCONFIGURED dpkg could not finish installing a package: Error! Bad return "
        "status for module build on kernel: 6.12.107+deb13-amd64 (x86_64); Consult "
        "/var/lib/dkms/nvidia-current-open/550.163.01/build/make.log for more information; dpkg: "
        "error processing package nvidia-kernel-open-dkms (--configure); installed "
        "nvidia-kernel-open-dkms package post-installation script subprocess returned error exit "
        "status 10; dpkg: error processing package nvidia-driver-cuda (--configure)"
    )


DPKG = parse_scene(recording("packages/dpkg-failed.txt"))
SOURCE = "nvidia-current-open/550.163.01"
BUILD_LOG = f"/var/lib/dkms/{SOURCE}/build/make.log"
COMPILER = "nv.c:7:1: error: too few arguments to function 'f'"


@pytest.mark.parametrize(
    ("scene", "reason"),
    [
        (
            "full",
            "cannot copy extracted data for './small/libbig.so' to '/small/libbig.so.dpkg-new': "
            "failed to write (No space left on device)",
        ),
        ("full-script", "cp: error writing '/small/blob': No space left on device"),
        (
            "full-database",
            "unable to fill /var/lib/dpkg/updates/tmp.i with padding: No space left on device",
        ),
        (
            "full-dnf",
            "installing package nvidia-driver-cuda-libs-3:580.178.04-1.el9.x86_64 needs 412MB more "
            "space on the / filesystem",
        ),
    ],
)
@pytest.mark.parametrize("interrupted", [False, True])
def test_full_disk(scene: str, reason: str, *, interrupted: bool) -> None:
    """A full disk interrupts dpkg, too; that is not the reason."""
    manager = {**FREE, "interrupted": interrupted}
    found = said(DPKG[scene], {"versions": ""}, manager)
    assert found == [f"DISK_FULL a disk of the node has no space for the packages: {reason}"]


def test_file_of_another_package_is_named() -> None:
    assert said(DPKG["conflict"]) == [
        "PACKAGES_UNCONFIGURED dpkg could not finish installing a package: dpkg: error processing "
        "archive /w/r/./two.deb (--unpack): trying to overwrite "
        "'/usr/lib/systemd/system/fabric.service', which is also in package one 1.0-1"
    ]


@pytest.mark.parametrize(
    ("builds", "codes"),
    [
        pytest.param(
            {SOURCE: {"kernels": [], "log": BUILD_LOG, "failed": None, "error": COMPILER}},
            ["DKMS_BUILD_FAILED", "PACKAGES_UNCONFIGURED"],
            id="of the driver",
        ),
        pytest.param({}, ["PACKAGES_UNCONFIGURED"], id="of another module"),
        pytest.param(
            {SOURCE: {"log": BUILD_LOG, "error": None}},
            ["PACKAGES_UNCONFIGURED"],
            id="without words",
        ),
    ],
)
def test_words_of_the_compiler_come_in_the_run_that_fails(
    builds: dict[str, Any], codes: list[str]
) -> None:
    printed = recording("packages/dpkg-build-failed.txt")
    found = said("E: Sub-process /usr/bin/dpkg returned an error code (1)", builds=builds,
                 printed=printed)  # fmt: skip
    assert [one.partition(" ")[0] for one in found] == codes
    if len(codes) > 1:
        assert found[0] == (
            "DKMS_BUILD_FAILED DKMS could not build the module of driver 550.163.01 for kernel "
            f"6.12.107+deb13-amd64: {COMPILER}; the log is {BUILD_LOG}"
        )


@pytest.mark.parametrize(
    ("kernel", "left_out"), [("6.12.107+deb13-amd64", True), ("6.1.0-50-amd64", False)]
)
def test_what_failed_for_the_same_kernel_is_not_proposed(kernel: str, left_out: bool) -> None:
    """dpkg's script builds for the newest kernel, too."""
    failed = {"kernels": [], "log": BUILD_LOG, "failed": None, "error": COMPILER}
    former = {**failed, "log": "/var/lib/dkms/nvidia/575.57.08/build/make.log", "failed": kernel}
    printed = recording("packages/dpkg-build-failed.txt")
    builds = {SOURCE: failed, "nvidia/575.57.08": former}
    found = explained("E: Sub-process", builds=builds, printed=printed).findings[0]
    assert ("575.57.08" not in found["remedy"]) == left_out


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "E: Failed to fetch http://me:CANARY@mirror.example/toolkit/x.deb  401  Unauthorized",
            id="fetch",
        ),
        pytest.param("Failed: http://me:CANARY@mirror.example/ cannot be parsed", id="other"),
        pytest.param(
            "cannot fetch the signing key http://me:CANARY@mirror.example/gpg: timed out", id="key"
        ),
        pytest.param(
            "E: The repository 'http://me:CAN@ARY@mirror.example/toolkit x' does not have a "
            "Release file.",
            id="release",
        ),
    ],
)
def test_no_credentials_are_quoted(text: str) -> None:
    answers = {"versions": "containerd.io | 2.4.9-1~debian.12~bookworm | x"}
    (found,) = said(text, answers)
    assert "mirror.example" in found
    assert not [part for part in ("CAN", "ARY") if part in found]


@pytest.mark.parametrize(
    ("text", "manager", "expected"),
    [
        pytest.param(
            "Failed to lock apt for exclusive operation",
            {**FREE, "lock": LOCK},
            "apt-get upgrade (process 812)",
            id="observed",
        ),
        pytest.param(
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 509 (apt)",
            FREE,
            "apt (process 509)",
            id="apt, gone since",
        ),
        pytest.param(
            "dpkg: error: dpkg frontend lock was locked by another process with pid 509",
            FREE,
            "a process (process 509)",
            id="dpkg of Debian 12",
        ),
        pytest.param(
            "dpkg: error: dpkg frontend lock was locked by /usr/bin/apt process with pid 286",
            FREE,
            "a process (process 286)",
            id="dpkg of Debian 13",
        ),
        pytest.param(
            "lockfile is held by another process", FREE, "a process (process unknown)", id="dnf"
        ),
        pytest.param(
            "metadata already locked by 2582\n  The application with PID 2582 is: sh",
            FREE,
            "a process (process 2582)",
            id="dnf with exit_on_lock",  # of Debian's dnf 4.14.0
        ),
    ],
)
def test_locked(text: str, manager: dict[str, Any], expected: str) -> None:
    assert said(text, {}, manager) == [
        f"PACKAGE_MANAGER_LOCKED {expected} held the package manager's lock for more than 300 s"
    ]


KINDS = {"locked": is_locked, "stale": is_stale, "passing": is_passing}


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        pytest.param("lockfile is held by another process", ["locked"], id="dnf, lock"),
        pytest.param("No package matching 'nosuch' is available", ["stale"], id="apt, name"),
        pytest.param("no available installation candidate for x=1", ["stale"], id="apt, version"),
        pytest.param(
            "'apt-get install' failed: E: Failed to fetch http://mirror.example/x_1.deb  404  Not "
            "Found [IP: 10.0.0.1 80]\nE: Unable to fetch some archives, maybe run apt-get "
            "update or try with --fix-missing?",
            ["stale"],
            id="apt, file that is gone",
        ),
        pytest.param("Error: Unable to find a match: x-1.0", ["stale"], id="dnf, name"),
        pytest.param(
            "Error: \n Problem: conflicting requests\n  - nothing provides dkms >= 3.1.8 needed by "
            "kmod-nvidia-open-dkms-3:575.57.08-1.el9.noarch from cuda-rhel9-x86_64",
            ["stale"],
            id="dnf, dependency",
        ),
        pytest.param(
            "E: Failed to fetch http://mirror.example/x.deb  Hash Sum mismatch",
            ["stale", "passing"],
            id="apt, mirror in the middle of its update",
        ),
        pytest.param(
            "E: Failed to fetch http://mirror.example/InRelease  503  Service Unavailable",
            ["stale", "passing"],
            id="apt, 503",
        ),
        pytest.param(
            "cannot fetch the signing key http://mirror.example/gpg: HTTP Error 502: Bad Gateway",
            ["passing"],
            id="key, 502",
        ),
        pytest.param(
            "cannot fetch the signing key http://mirror.example/gpg: <urlopen error timed out>",
            ["passing"],
            id="key, no answer in time",
        ),
        pytest.param(
            "cannot fetch the signing key http://mirror.example/gpg: the server ended the "
            "connection too early",
            ["passing"],
            id="key, half of it",
        ),
        pytest.param(
            "cannot fetch the signing key http://mirror.example/gpg: <urlopen error Remote end "
            "closed connection without response>",
            ["passing"],
            id="key, nothing of it",
        ),
        pytest.param("Request failed\nHTTP Error 503: Unavailable", ["passing"], id="file, 503"),
        pytest.param("Request failed\nHTTP Error 404: Not Found", [], id="file, 404"),
        pytest.param(
            "E: Failed to fetch http://mirror.example:1/InRelease  Could not connect to "
            "mirror.example:1 - connect (111: Connection refused)",
            ["stale"],
            id="apt, unreachable",
        ),
        pytest.param(
            "'apt-get install' failed: E: Sub-process /usr/bin/dpkg returned an error code (1)",
            [],
            id="dpkg",
        ),
    ],
)
def test_what_passes(error: str, kinds: list[str]) -> None:
    assert [name for name, matches in KINDS.items() if matches(error)] == kinds


@pytest.mark.parametrize(
    ("url", "is_cause"),
    [
        pytest.param("http://mirror.example/toolkit/", True, id="ours"),
        pytest.param("http://other.example/", False, id="another"),
    ],
)
@pytest.mark.parametrize("scene", ["conflict", "refused"])
def test_repository_of_the_packages_is_the_cause(scene: str, url: str, is_cause: bool) -> None:
    place = "http://mirror.example/toolkit/"
    text = update("2.6.1", scene).replace("http://mirror.example:1/toolkit/", place)
    assert explained(text, repository={**REPOSITORY, "url": url}).is_repository is is_cause


UNMET = parse_scene(recording("packages/apt-install-unmet.txt"))


@pytest.mark.parametrize("version", ["2.6.1", "3.0.3"])
def test_what_a_package_needs_is_on_stdout(version: str) -> None:
    """apt's own last words are: you have held broken packages."""
    error, printed = UNMET[f"{version}-stderr"], UNMET[f"{version}-stdout"]
    assert is_stale(error, printed)
    assert said(error, printed=printed) == [
        "PACKAGES_FAILED the package manager failed: docker-ce : Depends: iptables-nosuch but it "
        "is not installable"
    ]


APTS = parse_scene(recording("packages/apt-2.8.4-3.0.4.txt"))


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (
            "2.8.4-unmet",
            "linux-modules-nvidia-580-server-open-6.8.0-138-generic : Depends: nvidia-kernel-"
            "common-580-server (<= 580.173.02-1) but 580.178.04-0ubuntu0.24.04.1 is to be "
            "installed",
        ),
        (
            "3.0.4-unmet",
            "nvidia-smi : Depends: libnvidia-ml1 (= 550.163.01-2) but it is not going to be "
            "installed",
        ),
    ],
)
def test_dependencies_with_newer_apt(scene: str, expected: str) -> None:
    error, printed = APTS[f"{scene}-stderr"], APTS[f"{scene}-stdout"]
    assert said(error, printed=printed) == [
        f"PACKAGES_FAILED the package manager failed: {expected}"
    ]


def test_an_index_that_is_ahead_of_its_files() -> None:
    """apt 2.8.4 with Ubuntu's archive of 2026-11-23: modules of a new kernel were missing."""
    file = "linux-modules-nvidia-580-server-open-6.8.0-151-generic_6.8.0-151.151_amd64.deb"
    error = (
        f"E: Failed to fetch http://mirror.example/ubuntu/pool/restricted/l/linux-restricted-"
        f"signatures/{file}  404  Not Found [IP: 192.0.2.7 80]\n"
        "E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?"
    )
    assert said(error, repository={}) == [
        "REPOSITORY_INCOMPLETE the files of the repository http://mirror.example/ubuntu do not "
        f"match its index: 404  Not Found [IP: 192.0.2.7 80] {file}"
    ]


@pytest.mark.parametrize("scene", ["2.8.4-missing", "3.0.4-missing"])
def test_a_missing_package_with_newer_apt(scene: str) -> None:
    assert is_stale(APTS[f"{scene}-stderr"])


SIGNED = "linux-modules-nvidia-580-server-open-6.8.0-136-generic"
NEEDS = "nvidia-kernel-common-580-server (<= 580.173.02-1) but 580.178.04"
UNFIT = f"""\
Some packages could not be installed.
The following packages have unmet dependencies:
 {SIGNED} : Depends: {NEEDS} is to be installed
"""
DEVEL = "kernel-devel-5.14.0-570.12.1.el9_6.x86_64"


@pytest.mark.parametrize(
    ("error", "versions", "more", "expected"),
    [
        pytest.param(
            "No package matching 'linux-headers-6.1.0-26-amd64' is available",
            "nvidia-kernel-dkms | 535.261.03-1 | x",
            {"names": ["linux-headers-6.1.0-26-amd64"], "kernel": "6.1.0-26-amd64"},
            ["no enabled repository has linux-headers-6.1.0-26-amd64"],
            id="headers",
        ),
        pytest.param(
            "E: Unable to correct problems, you have held broken packages.",
            f"{SIGNED} | 6.8.0-136.136+1 | x",
            {"names": [SIGNED], "kernel": "6.8.0-136-generic", "printed": UNFIT},
            [NEEDS],
            id="modules of another driver",
        ),
        pytest.param(
            f"Error: Unable to find a match: {DEVEL}",
            "kernel-devel.x86_64 5.14.0-611.5.1.el9_7 appstream",
            {"names": [DEVEL], "kernel": "5.14.0-570.12.1.el9_6.x86_64", "family": "redhat"},
            [f"no enabled repository has {DEVEL}"],
            id="dnf",
        ),
        pytest.param(
            "No package matching 'linux-headers-6.1.0-26-amd64' is available",
            "",
            {"names": ["linux-headers-6.1.0-26-amd64", "x=1"], "kernel": "6.1.0-26-amd64"},
            ["no enabled repository has linux-headers-6.1.0-26-amd64", "has x in version 1"],
            id="besides another package",
        ),
    ],
)
def test_kernel_that_the_archive_has_replaced(
    error: str, versions: str, more: dict[str, Any], expected: list[str]
) -> None:
    first, *others = said(error, {"versions": versions}, **more)
    assert first.startswith("KERNEL_OUTDATED")
    assert len([first, *others]) == len(expected)
    assert all(text in one for text, one in zip(expected, [first, *others], strict=True))


ARCHIVE = "W: Failed to fetch http://archive.example/dists/noble/InRelease  Could not connect"


@pytest.mark.parametrize(
    ("missing", "versions", "code"),
    [
        pytest.param(
            "linux-headers-6.1.0-26-amd64", "x | 1 | y", "REPOSITORY_UNREACHABLE", id="headers"
        ),
        pytest.param("dkms", "x | 1 | y", "REPOSITORY_UNREACHABLE", id="dependency of ours"),
        pytest.param("dkms", "", "PACKAGE_VERSION_MISSING", id="version of ours"),
    ],
)
def test_archive_that_is_down_lacks_nothing(missing: str, versions: str, code: str) -> None:
    """Its packages are not there because of that, and not because the kernel is too old."""
    (found,) = said(
        f"E: Unable to locate package {missing}",
        {"update": ARCHIVE, "versions": versions},
        names=["x=1", missing],
        kernel="6.1.0-26-amd64",
    )
    assert found.partition(" ")[0] == code


def test_what_a_downloaded_package_needs() -> None:
    assert is_stale(UNMET["deb"])


GRAFANA = "W: Failed to fetch http://grafana.example/deb/InRelease  Could not resolve"
NO_SPACE = "E: You don't have enough free space in /var/cache/apt/archives/."
LACKS = "no available installation candidate for containerd.io=2.4.9"


@pytest.mark.parametrize(
    ("error", "more", "code"),
    [
        pytest.param(NO_SPACE, {}, "DISK_FULL", id="no space"),
        pytest.param(NO_SPACE, {"repository": {}}, "DISK_FULL", id="no space, of the system"),
        pytest.param(
            "E: Sub-process /usr/bin/dpkg returned an error code (1)",
            {"printed": recording("packages/dpkg-build-failed.txt")},
            "PACKAGES_UNCONFIGURED",
            id="DKMS",
        ),
        pytest.param(LACKS, {"lists": ""}, "PACKAGE_VERSION_MISSING", id="version"),
        pytest.param(LACKS, {}, "REPOSITORY_UNREACHABLE", id="a dependency"),
        pytest.param(LACKS, {"repository": {}}, "REPOSITORY_UNREACHABLE", id="of the system"),
        pytest.param(
            "Failed to update apt cache: unknown reason", {}, "REPOSITORY_UNREACHABLE", id="index"
        ),
    ],
)
def test_repository_of_the_admin_is_the_cause_only_if_it_can_be(
    error: str, more: dict[str, Any], code: str
) -> None:
    versions = "containerd.io | 2.4.9-1~debian.12~bookworm | x"
    answers = {"update": GRAFANA, "versions": more.pop("lists", versions)}
    (found,) = said(error, answers, **more)
    assert found.partition(" ")[0] == code


def test_signature_of_a_package_matters_only_with_a_repository_of_ours() -> None:
    text = "Package x.rpm is not signed\nError: GPG check FAILED"
    assert explained(text).is_repository
    assert said(text, repository={}) == [
        "PACKAGES_FAILED the package manager failed: Error: GPG check FAILED"
    ]


def test_versions_are_missing_only_if_they_were_asked_for() -> None:
    """A removal needs no version from a repository."""
    (found,) = said("E: unknown reason", {"update": ""})
    assert found.startswith("PACKAGES_FAILED")


def test_flat_repository_without_its_index() -> None:
    error = "E: Failed to fetch http://mirror.example/toolkit/./Packages.gz  404  Not Found"
    (found,) = said("E: unknown reason", {"update": error})
    assert found.startswith(
        "REPOSITORY_UNREACHABLE the repository http://mirror.example/toolkit cannot be used: 404"
    )


OURS = "/etc/apt/sources.list.d/metal-gpu-docker.sources"
THEIRS = "/etc/apt/sources.list.d/archive_uri-http_mirror_example_toolkit-bookworm.list"


@pytest.mark.parametrize(
    ("text", "paths", "files"),
    [
        pytest.param("", [THEIRS, OURS], f"{THEIRS}, {OURS}", id="two files"),
        pytest.param("", [OURS], OURS, id="beside deb-src"),
        pytest.param("", [], "files unknown", id="in other places"),
        pytest.param(
            "E:Conflicting values set for option Signed-By regarding source "
            "http://me:secret@mirror.example/toolkit/ /: /k.gpg != , E:The list of sources could "
            "not be read.",
            [THEIRS, OURS],
            f"{THEIRS}, {OURS}",
            id="in the words of the module",
        ),
    ],
)
def test_second_source_with_another_key(text: str, paths: list[str], files: str) -> None:
    sources = [
        {"path": path, "url": "http://mirror.example/toolkit", "suite": "/"} for path in paths
    ]
    answers = {} if text else {"update": update("2.6.1", "conflict")}
    (twice,) = said(text, answers, sources=sources)
    assert twice == (
        "REPOSITORY_TWICE apt reads no source, because these files give "
        f"http://mirror.example/toolkit / different values of Signed-By: {files}"
    )


@pytest.mark.parametrize(
    ("family", "names", "versions", "expected"),
    [
        pytest.param(
            "debian",
            ["containerd.io=2.4.9-1~debian.12~bookworm"],
            MADISON,
            ["containerd.io in version 2.4.9-1~debian.12~bookworm; available versions: "
             "2.4.2-1~debian.12~bookworm, 2.3.6-1~debian.12~bookworm"],
            id="apt, version",
        ),
        pytest.param(
            "debian", ["nosuch"], MADISON, ["nosuch; available versions: none"],
            id="apt, package",
        ),
        pytest.param(
            "redhat",
            ["containerd.io-2.4.9-1.el9", "containerd.io-2.4.2", "sudo"],
            "Available Packages\ncontainerd.io.x86_64  2.4.2-1.el9  metal-gpu-docker\n"
            "sudo.x86_64  1.9.5p2-10.el9  baseos\n",
            ["containerd.io in version 2.4.9-1.el9; available versions: 2.4.2-1.el9"],
            id="dnf, version",
        ),
    ],
)  # fmt: skip
def test_missing(family: str, names: list[str], versions: str, expected: list[str]) -> None:
    text = "no available installation candidate"
    assert said(text, {"versions": versions}, names=names, family=family) == [
        f"PACKAGE_VERSION_MISSING no enabled repository has {one}" for one in expected
    ]


@pytest.mark.parametrize(
    ("family", "name", "versions", "setting"),
    [
        ("debian", "nvidia-open=580.99.99-1", "580.178.04-1", "nvidia_driver_version: 580.178.04"),
        ("redhat", "kmod-nvidia-open-dkms-580.99.99-1.el9", "3:580.178.04-1.el9",
         "nvidia_driver_version: 580.178.04"),
        ("debian", "docker-ce=5:29.9", "5:29.8.1-1~debian.12", "docker_ce_version: 29.8.1"),
        ("debian", "containerd.io=2.9", "2.4.1-1~debian.12", "containerd_version: 2.4.1"),
        ("debian", "cri-o=1.36.9", "1.36.6-1.1", "crio_version: 1.36.6"),
        ("debian", "libnvidia-container1=1.99", "1.20.1-1",
         "nvidia_container_runtime_version: 1.20.1"),
        ("debian", "other=1.99", "1.20.1-1", None),
        ("debian", "nvidia-open=580.99.99-1", "", None),
    ],
)  # fmt: skip
def test_the_variable_of_a_missing_version_is_named(
    family: str, name: str, versions: str, setting: str | None
) -> None:
    package = split(name, family)[0]
    row = f"{package} | {versions} | x" if family == "debian" else f"{package}.x86_64 {versions} x"
    answers = {"versions": row if versions else "x | 1 | y"}
    text = "no available installation candidate"
    found = explained(text, answers, names=[name], family=family).findings[0]
    assert (f"set `{setting}`" if setting else "if the role has a variable") in found["remedy"]


def test_containerd_of_docker_has_another_variable() -> None:
    answers = {"versions": MADISON + "docker-ce | 5:29.8.1-1 | x\n"}
    names = ["docker-ce=5:29.8.1-1", *CHOICES["names"]]  # type: ignore[misc]
    (found,) = explained("no available installation candidate", answers, names=names).findings
    assert "set `docker_ce_containerd_version: 2.4.2`" in found["remedy"]


@pytest.mark.parametrize(
    ("family", "versions", "expected"),
    [
        pytest.param(
            "redhat",
            "Available Packages\n",
            [
                "DEPENDENCY_MISSING no enabled repository has dkms, which builds the driver's "
                "module",
                "PACKAGE_VERSION_MISSING no enabled repository has gcc; available versions: none",
            ],
            id="EPEL is missing",
        ),
        pytest.param(
            "redhat",
            "Available Packages\ndkms.noarch  3.4.3-1.el9  mine\n",
            ["PACKAGE_VERSION_MISSING no enabled repository has gcc; available versions: none"],
            id="a source of the admin has it",
        ),
        pytest.param(
            "debian",
            "x | 1 | y",
            [
                "PACKAGE_VERSION_MISSING no enabled repository has dkms, gcc; available versions: "
                "none"
            ],
            id="Debian has it itself",
        ),
    ],
)
def test_a_package_of_epel_is_named_with_epel(
    family: str, versions: str, expected: list[str]
) -> None:
    """The role asks for dkms by name before it runs a .run file."""
    text = "Unable to find a match: dkms gcc"
    names = ["dkms", "gcc"]
    answers = {"versions": versions}
    assert said(text, answers, names=names, family=family) == expected
    first = explained(text, answers, names=names, family=family).findings[0]
    assert ("EPEL" in first["remedy"]) is (first["code"] == "DEPENDENCY_MISSING")


def test_cause_comes_before_consequence() -> None:
    """Without its repository, a package has no version either."""
    answers = {"update": update("2.6.1", "refused"), "versions": ""}
    repository = {**REPOSITORY, "url": "http://mirror.example:1/toolkit"}
    (found,) = said("no available installation candidate", answers, repository=repository)
    assert found.startswith("REPOSITORY_UNREACHABLE")


@pytest.mark.parametrize(
    ("argument", "family", "expected"),
    [
        ("containerd.io=2.4.2-1~x", "debian", ("containerd.io", "2.4.2-1~x")),
        ("python3-debian", "debian", ("python3-debian", "")),
        (
            "nvidia-driver-cuda-3:580.178.04-1.el9",
            "redhat",
            ("nvidia-driver-cuda", "3:580.178.04-1.el9"),
        ),
        (
            "kernel-devel-5.14.0-687.51.1.el9_8.x86_64",
            "redhat",
            ("kernel-devel", "5.14.0-687.51.1.el9_8"),
        ),
        ("python3-dnf-plugin-versionlock", "redhat", ("python3-dnf-plugin-versionlock", "")),
    ],
)
def test_split(argument: str, family: str, expected: tuple[str, str]) -> None:
    assert split(argument, family) == expected


def test_lists_of_versions() -> None:
    assert parse_madison(MADISON + "N: Unable to locate package nosuch\n") == {
        "containerd.io": ["2.4.2-1~debian.12~bookworm", "2.3.6-1~debian.12~bookworm"]
    }
    assert parse_dnf_list("Available Packages\na.x86_64 1-1 r\na.x86_64 2-1 r\n") == {
        "a": ["2-1", "1-1"]
    }


_KEPT = ["590.48.01-1", "580.178.04-1", "580.173.02-1", "570.211.01-1", "550.163.01-1"]


@pytest.mark.parametrize(
    ("version", "versions", "expected"),
    [
        ("580.178.99-1", _KEPT, ["580.178.04-1", "580.173.02-1", "590.48.01-1", "570.211.01-1"]),
        pytest.param(
            "580.173.02",
            ["580.999.01-1", "580.178.04-1", "580.65.06-1"],
            ["580.178.04-1", "580.65.06-1", "580.999.01-1"],
            id="a number counts, and not its first digits",
        ),
        pytest.param(
            "580.178.03",
            ["580.178.04-1", "580.178.02-1"],
            ["580.178.04-1", "580.178.02-1"],
            id="tie",
        ),
        pytest.param(
            "575.57.08",
            ["590.48.01-1", "570.211.01-1", "580.178.04-1"],
            ["570.211.01-1", "580.178.04-1", "590.48.01-1"],
            id="no such branch",
        ),
        pytest.param(
            "3:580.178.04-1.el9",
            ["3:595.71.05-1.el9", "3:580.173.02-1.el9"],
            ["3:580.173.02-1.el9", "3:595.71.05-1.el9"],
            id="with an epoch",
        ),
        pytest.param("", ["2-1", "1-1"], ["2-1", "1-1"], id="any version"),
    ],
)
def test_nearest_first(version: str, versions: list[str], expected: list[str]) -> None:
    assert nearest(version, versions) == expected
