# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests/unit/golden/packages, with the question about the container toolkit, does not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.rehearsal import (
    FOLDER,
    Question,
    rehearse,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import Request
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.rehearsal import (
    before_removals,
    in_check_mode,
)

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nabc\n-----END PGP PUBLIC KEY BLOCK-----\n"
REPOSITORY = {
    "name": "metal-gpu-x",
    "url": "http://mirror.example/x",
    "suite": "trixie trixie-updates",
    "components": "non-free",
    "key": "",
    "fingerprint": "",
    "signs": "packages",
    "key_file": "/etc/pki/rpm-gpg/RPM-GPG-KEY-metal-gpu-x",
    "new": True,
}


def request(**options: Any) -> Request:
    known = {"operation": "install", "names": ["x"], "repository": None, "stream": None}
    lists: dict[str, Any] = {
        "may_remove": [],
        "earlier": [],
        "more_repositories": [],
        "pin": None,
        "following": [],
        "change_held": False,
    }
    return Request({**known, **lists, **options}, key=KEY, held=["x"])


def asked(family: str, **options: Any) -> Any:
    return in_check_mode(request(**options), family).options["_rehearse"]


@pytest.mark.parametrize(
    ("signed_by", "expected"),
    [
        (
            None,
            "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
            " -----END PGP PUBLIC KEY BLOCK-----\n",
        ),
        ("/usr/share/keyrings/a.gpg", "Signed-By: /usr/share/keyrings/a.gpg\n"),
        ("", "Enabled: yes\n"),
    ],
    ids=["the pinned key", "the admin's", "every key"],
)
def test_source_has_its_key(signed_by: str | None, expected: str) -> None:
    repository = {**REPOSITORY, "signed_by": signed_by}
    text = asked("debian", repository=repository)["files"]["sources/metal-gpu-x.sources"]
    assert text.startswith("Types: deb\nURIs: http://mirror.example/x\n")
    assert text.endswith(expected)


def test_source_that_is_there_already_is_not_written() -> None:
    question = asked("debian", repository={**REPOSITORY, "new": False})
    assert [*question["files"]] == ["apt.conf"]
    assert [one["argv"][-1] for one in question["programs"]] == ["update", "x"]


def test_earlier_packages_are_in_the_same_question() -> None:
    question = asked("debian", earlier=["python3-debian"])
    assert question["programs"][-1]["argv"][-3:] == ["install", "python3-debian", "x"]


def test_planned_pin_takes_the_place_of_the_nodes_file(tmp_path: Path) -> None:
    """The folder has links to the node's preferences. A file of the request replaces one."""
    pin = {"path": "/etc/apt/preferences.d/x.pref", "block": "Package: x\n"}
    question = asked("debian", pin=pin)
    assert question["files"]["preferences/x.pref"] == pin["block"]
    folder = f'Dir::Etc::preferencesparts "{FOLDER}/preferences";'
    assert folder in question["files"]["apt.conf"]
    node = tmp_path / "node"
    node.mkdir()
    (node / "x.pref").write_text("the node's")
    read: list[str] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        read.append((Path(argv[0]) / "preferences/x.pref").read_text())
        return 0, "", ""

    request = {
        "links": [("preferences", str(node))],
        "files": question["files"],
        "programs": [{"argv": [FOLDER]}],
    }
    rehearse(cast(Question, request), run, 0.0, tmp_path)
    assert read == [pin["block"]]
    assert (node / "x.pref").read_text() == "the node's"


def test_planned_stream_has_to_exist_and_is_visible() -> None:
    programs = asked("redhat", repository=REPOSITORY, stream="nvidia-driver:580-open")["programs"]
    _read, listing, install = (one["argv"] for one in programs)
    assert listing[-3:] == ["module", "list", "nvidia-driver:580-open"]
    assert "--setopt=metal-gpu-x.module_hotfixes=1" in install


def test_own_sources_may_have_no_streams() -> None:
    """Those that they have are visible, whatever the names of the repositories are."""
    programs = asked("redhat", repository={}, stream="nvidia-driver:580-open")["programs"]
    listing, install = programs
    assert listing["success"] == "No matching Modules to list"
    assert "--setopt=*.module_hotfixes=1" in install["argv"]


def test_streams_of_an_admins_source_with_the_same_address_are_visible() -> None:
    repository = {**REPOSITORY, "new": False}
    programs = asked("redhat", repository=repository, stream="nvidia-driver:580-open")["programs"]
    assert "success" not in programs[0]
    assert "--setopt=*.module_hotfixes=1" in programs[-1]["argv"]


def test_what_follows_the_kernel_is_asked_in_the_same_operation() -> None:
    following = ["linux-headers-amd64=6.1.176-1", "linux-headers-amd64"]
    tells = asked("debian", following=following)["tells"]
    assert [*tells] == ["policy", *(f"following {one}" for one in following)]
    assert tells["following linux-headers-amd64"][-1] == "linux-headers-amd64"
    assert "APT::Get::Upgrade-By-Source-Package=false" in tells["following linux-headers-amd64"]


@pytest.mark.parametrize("ask", [in_check_mode, before_removals])
@pytest.mark.parametrize(("repository", "is_asked"), [(None, False), ({}, True)])
def test_dnf_tells_who_else_has_the_packages(
    ask: Any, repository: dict[str, str] | None, is_asked: bool
) -> None:
    call = ask(request(repository=repository, names=["x-1.0-1"]), "redhat")
    tells = call.options["_rehearse"].get("tells", {})
    assert [*tells] == (["offers"] if is_asked else [])
    assert all(argv[-1] == "x" for argv in tells.values())


def test_key_of_dnf_is_in_the_folder() -> None:
    files = asked("redhat", repository=REPOSITORY)["files"]
    assert files["key"] == KEY
    assert f"gpgkey=file://{FOLDER}/key\n" in files["repos/metal-gpu-x.repo"]


@pytest.mark.parametrize(
    ("options", "flag", "is_there"),
    [
        ({"change_held": True}, "--disableplugin=versionlock", True),
        ({"change_held": True, "names": ["y"]}, "--disableplugin=versionlock", False),
        ({}, "--disableplugin=versionlock", False),
        ({"may_remove": ["runc"]}, "--allowerasing", True),
        ({}, "--allowerasing", False),
    ],
)
def test_options_of_dnf_are_those_of_the_real_run(
    options: dict[str, Any], flag: str, is_there: bool
) -> None:
    assert (flag in asked("redhat", **options)["programs"][-1]["argv"]) is is_there


@pytest.mark.parametrize("family", ["debian", "redhat"])
def test_real_run_asks_with_the_files_of_the_node(family: str) -> None:
    call = before_removals(request(earlier=["early"], change_held=True), family)
    (program,) = call.options["_rehearse"]["programs"]
    assert {*call.options["_rehearse"]} <= {"programs", "tells"}
    assert FOLDER not in str(program)
    assert "early" not in program["argv"]


@pytest.mark.parametrize("is_check", [True, False])
def test_modules_of_ubuntu_are_asked_about(is_check: bool) -> None:
    """apt accepts proprietary modules of another driver: see outdated.py."""
    names = ["linux-modules-nvidia-580-server-6.8.0-151-generic=*", "nvidia-utils-580-server=580.*"]
    if is_check:
        told = asked("debian", names=names)["tells"]["modules"]
    else:
        call = before_removals(request(names=names), "debian")
        told = call.options["_rehearse"]["tells"]["modules"]
    assert told[-2:] == ["show", "linux-modules-nvidia-580-server-6.8.0-151-generic"]
    assert ("-c" in told) is is_check
