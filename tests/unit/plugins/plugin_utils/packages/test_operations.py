# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What tests/unit/golden/packages, with the modules of every operation, does not show."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    Request,
    completed_record,
    repository_mode,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.dnf import alike
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.operations import (
    OperationUnknown,
    questions,
    steps,
)
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("https://me:CANARY@mirror.example/", "0600"),
        ("https://token@mirror.example/", "0600"),
        ("https://mirror.example/a@b", "0644"),
    ],
)
def test_only_root_reads_a_password(url: str, mode: str) -> None:
    assert repository_mode(url) == mode


@pytest.mark.parametrize(
    ("version", "created", "completed"),
    [
        pytest.param("", {}, {"installed": ["b"], "created": {}}, id="any version"),
        pytest.param("2", {"b": "/b"}, {"installed": [], "created": {"b": "/b"}}, id="a file"),
        pytest.param("2", {}, None, id="nothing that is not known before"),
    ],
)
def test_what_is_recorded_after_the_installation(
    version: str, created: dict[str, str], completed: dict[str, object] | None
) -> None:
    packages = {"a": {"version": "1"}, "b": {"version": version}}
    record = {"path": "/r.json", "packages": packages, "created": created}
    calls = completed_record(Request({"operation": "install", "record": record}))
    noted = [call.options["_note"] for call in calls]
    assert noted == ([{"path": "/r.json", **completed}] if completed else [])


def test_without_names_only_the_repositories_are_in_question() -> None:
    assert [*questions("debian", [])] == ["update"]


@pytest.mark.parametrize(("operation", "family"), [("stream", "debian"), ("repair", "redhat")])
def test_what_a_package_manager_does_not_have(operation: str, family: str) -> None:
    with pytest.raises(OperationUnknown, match=f"no operation {operation} on .* {family}"):
        steps(operation, family, Request({}))


LISTED = """\
nvidia-driver-cuda-3:580.178.04-1.el9
nvidia-driver-cuda-libs-3:580.178.04-1.el9
libnvidia-ml-3:580.178.04-1.el9
nvidia-settings-3:575.57.08-1.el9
nvidia-container-toolkit-0:1.20.1-1
systemd-0:252-1
"""


def test_what_matches_is_held_once() -> None:
    names = ["nvidia-driver-cuda-3:580.178.04"]
    assert alike(names, ["*nvidia*-3:580.178.04-*"], LISTED) == [
        *names,
        "libnvidia-ml-3:580.178.04-1.el9",
        "nvidia-driver-cuda-libs-3:580.178.04-1.el9",
    ]


_REQUEST: dict[str, Any] = {
    **{"names": ["a=1"], "newest": False, "change_held": False, "may_remove": [], "purge": False},
    **{"url": "https://x/a.deb", "checksum": "", "earlier": [], "following": [], "pin": None},
    "record": {"path": "/var/lib/metal-gpu/packages/role.json", "packages": {"a": {}}},
    "repository": {"name": "n", "url": "https://x", "suite": "s", "components": "", "new": True},
}


@pytest.mark.parametrize(
    "options",
    [
        {"operation": "install"},
        {"operation": "install", "newest": True},
        {"operation": "install", "keep_kernel": True},
        {"operation": "install", "may_remove": ["b"]},
        {"operation": "install", "names": ["linux-modules-nvidia-580-server-6.8.0-1-generic"]},
        {"operation": "install_file"},
        {"operation": "repository"},
    ],
    ids=str,
)
def test_no_apt_conf_of_the_node_lets_unsigned_packages_in(options: dict[str, Any]) -> None:
    record = yaml.safe_load((ROOT / "tests/recorded/apt_pins.yml").read_text())["unsigned"]
    found = steps(options["operation"], "debian", Request({**_REQUEST, **options}))
    told = [one.options["_note"].get("files") for one in found.first]
    for call in found.work:
        argv = call.options.get("argv", ())
        if call.module == "ansible.builtin.apt" and {"name", "deb"} & call.options.keys():
            assert [[*one.values()] for one in told] == [[record["setting"]]]
        elif {"apt-get", "install"} <= {*argv}:
            assert record["option"] in argv
        elif {"apt-get", "update"} <= {*argv}:
            assert {*record["index"]} <= {*argv}


def test_removal_ends_the_holds_of_dependencies() -> None:
    options = {"operation": "remove", "names": ["a"], "also_release": ["b", "c"]}
    found = steps("remove", "redhat", Request(options, held=["a", "b"]))
    assert [call.options["argv"][-2:] for call in found.first] == [["a", "b"]]
    assert [call.options["argv"][-2:] for call in found.undo] == [["a", "b"]]
    assert found.work[-1].options["argv"][-2:] == ["remove", "a"]


@pytest.mark.parametrize(("repository", "count"), [({"name": "x"}, 1), ({}, 2)])
def test_stream_of_own_sources_need_not_exist(repository: dict[str, str], count: int) -> None:
    options = {"operation": "stream", "stream": "nvidia-driver:580-open", "repository": repository}
    work = steps("stream", "redhat", Request(options)).work
    assert len(work) == count
    assert [call.enough for call in work] == ["No matching Modules to list", ""][-count:]
