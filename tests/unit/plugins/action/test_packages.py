# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""In which order an operation runs its modules, and what comes of their results.

The modules' results are given. That apt and dpkg answer like this is tested in the laboratory, and
what is printed in test_verbosity.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ansible_collections.metal.gpu.plugins.action.packages import ActionModule
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import Call
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.dnf import VERSIONLOCK
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repository_key import (
    KeyUnavailable,
)
from ansible_collections.metal.gpu.tests.unit.support.recordings import parse_scene, recording

KEY = "ansible_collections.metal.gpu.plugins.action.packages.read_signing_key"
NODE = {
    "os": {"family": "debian", "version_id": "12"},
    "kernel": {"release": "6.1.0-50-amd64"},
    "packages": {},
    "package_manager": {"lock": None, "interrupted": False, "unfinished": {}, "automatic": []},
    "package_sources": [],
}
ROCKY = {
    **NODE,
    "os": {"family": "redhat", "version_id": "9.6"},
    "packages": {VERSIONLOCK: {"held": False}, "containerd.io": {"held": True}},
}
OBSERVED = {**NODE, "packages": {"cri-dockerd": {"version": "0.4.3"}}}
RECORD = {
    "path": "/r.json",
    "packages": {
        "docker-ce": {"version": "29.8.1-*", "before": None},
        "cri-dockerd": {"version": "", "before": None},
        "not-installed": {"version": "", "before": None},
    },
}
REPOSITORY = {
    "name": "metal-gpu-docker",
    "url": "http://mirror.example/docker",
    "suite": "bookworm",
    "components": "stable",
    "key": "http://mirror.example/gpg",
    "fingerprint": "F" * 40,
    "signs": "metadata",
    "key_file": "/etc/pki/rpm-gpg/RPM-GPG-KEY-metal-gpu-docker",
    "new": True,
}
FILE = {
    "url": "https://host.example/cri-dockerd/",
    "checksum": "sha256:0",
    "record": {"path": "/var/lib/metal-gpu/packages/docker_ce.json"},
}
NO_KEY = "E: GPG error: http://mirror.example/docker bookworm InRelease: NO_PUBKEY 4B66779006D76BF0"
Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


def well(module: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a module that has nothing to complain about."""
    if module == "metal.gpu.node_info":
        return {"changed": False, "gpu_node": OBSERVED}
    if module == "metal.gpu.packages":
        return {"changed": False, "lock": None, "error": None}
    return {"changed": True, **({"rc": 0} if module == "ansible.builtin.command" else {})}


@pytest.fixture
def act(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run an operation. Return its result, and the modules that ran, with their words."""
    monkeypatch.setattr(KEY, lambda *_args: "the key")

    def run(
        answer: Answer = well,
        *,
        node: dict[str, Any] = NODE,
        check: bool = False,
        found: str = "",
        variables: dict[str, Any] | None = None,
        unlogged: list[str] | None = None,
        environments: list[Any] | None = None,
        **args: Any,
    ) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
        ran: list[tuple[str, Any]] = []

        def execute(
            module_name: str, module_args: dict[str, Any], task_vars: Any = None
        ) -> dict[str, Any]:
            name = module_name.removeprefix("ansible.builtin.").removeprefix("metal.gpu.")
            ran.append((name, module_args))
            if environments is not None:
                environments.append([*task.environment])
            if unlogged is not None and (task_vars or {}).get("ansible_no_target_syslog"):
                unlogged.append(name)
            return answer(module_name, module_args)

        task = SimpleNamespace(
            args=args, check_mode=check, async_val=0, diff=True, action="x", environment=[]
        )
        action = ActionModule(task, *(MagicMock() for _mock in range(5)))
        if found:
            action._discovered_interpreter_key = "discovered_interpreter_python"
            action._discovered_interpreter = found
        action._load_name = "metal.gpu.packages"  # as the loader of plugins does
        action._templar.template = lambda value: value
        action._execute_module = execute
        action._run_action = lambda call: execute(call.module, call.options)
        known = {
            "inventory_hostname": "gpu-1",
            "metal_gpu_lock_timeout": 0,
            "metal_gpu": {"node": node},
            **(variables or {}),
        }
        return action.run(task_vars=known), ran

    return run


def names(ran: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _options in ran]


def codes(result: dict[str, Any]) -> list[str]:
    return [line.split()[0] for line in result["msg"].splitlines() if not line.startswith(" ")]


def test_the_record_comes_first_and_the_versions_last(act: Any) -> None:
    """Without a version, the record would claim any version that an admin installs."""
    of: list[Any] = []
    wanted = {"operation": "install", "names": ["docker-ce=29.8.1-*"], "record": RECORD}
    result, ran = act(environments=of, **wanted)
    assert names(ran) == ["packages", "apt", "packages"]
    noted = dict(ran[0][1]["_note"])
    # apt reads this file: an apt.conf of the node may permit unsigned packages.
    assert [*noted.pop("files")] == ["/var/lib/metal-gpu/apt.conf"]
    assert of[:2] == [[], [{"APT_CONFIG": "/var/lib/metal-gpu/apt.conf"}]]
    assert noted == {"path": "/r.json", "packages": RECORD["packages"]}
    assert ran[2][1]["_note"]["installed"] == ["cri-dockerd", "not-installed"]
    assert result["changed"] is True
    assert "failed" not in result


def test_nothing_is_installed_without_the_record(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        is_note = "_note" in options
        return {"failed": True, "msg": "read-only"} if is_note else well(module, options)

    result, ran = act(answer, operation="install", names=["x"], record=RECORD)
    assert names(ran) == ["packages"]
    assert (result["failed"], result["msg"]) == (True, "read-only")


def test_packages_for_ansible_itself_are_not_recorded(act: Any) -> None:
    _result, ran = act(operation="install", names=["python3-debian"])
    assert names(ran) == ["apt"]


def test_index_is_read_again_if_it_lacks_the_packages(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module == "ansible.builtin.apt" and options["cache_valid_time"]:
            return {"failed": True, "msg": "No package matching 'x' is available"}
        return well(module, options)

    result, ran = act(answer, operation="install", names=["x"])
    assert names(ran) == ["apt", "packages", "apt"]
    assert "failed" not in result


@pytest.mark.parametrize(("has_index", "age"), [(True, 3600), (False, 0)])
def test_index_is_read_at_once_if_the_node_has_none(act: Any, has_index: bool, age: int) -> None:
    """The index of the new repository alone is not enough for what its packages depend on."""

    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        return {**well(module, options), **({"has_index": has_index} if "_note" in options else {})}

    repository = {**REPOSITORY, "url": "http://mirror.example/docker"}
    result, ran = act(
        answer, operation="install", names=["x"], record=RECORD, repository=repository
    )
    assert "failed" not in result
    assert names(ran) == ["packages", "apt", "packages"]
    assert ran[0][1]["_note"]["source"] == "http://mirror.example/docker"
    assert ran[1][1]["cache_valid_time"] == age


def test_only_what_has_credentials_is_not_in_the_nodes_log(act: Any) -> None:
    unlogged: list[str] = []
    url = "https://me:secret@mirror.example/docker"
    options = {"operation": "repository", "repository": {**REPOSITORY, "url": url}}
    _result, ran = act(node=ROCKY, unlogged=unlogged, **options)
    assert names(ran) == ["copy", "file", "yum_repository", "command"]
    assert unlogged == ["yum_repository"]
    install = {"operation": "install", "names": ["x"], "repository": options["repository"]}
    act(node=ROCKY, check=True, unlogged=unlogged, **install)
    assert unlogged == ["yum_repository", "packages"]


@pytest.mark.parametrize(
    ("signed_by", "expected"),
    [
        pytest.param(
            "/usr/share/keyrings/x.gpg", {"signed_by": "/usr/share/keyrings/x.gpg"}, id="keyring"
        ),
        pytest.param("", {}, id="every key"),
    ],
)
def test_source_of_an_archive_has_the_key_of_the_admins(
    act: Any, monkeypatch: pytest.MonkeyPatch, signed_by: str, expected: dict[str, str]
) -> None:
    """And nothing is fetched: the key is on the node."""

    def fetch(*_: object) -> str:
        raise KeyUnavailable("nothing is to be fetched")

    monkeypatch.setattr(KEY, fetch)
    repository = {**REPOSITORY, "key": "", "fingerprint": "", "signed_by": signed_by}
    result, ran = act(operation="repository", repository=repository)
    assert "failed" not in result
    assert {name: one for name, one in ran[0][1].items() if name == "signed_by"} == expected


@pytest.mark.parametrize(
    ("printed", "installed"),
    [
        pytest.param("Inst linux-headers-amd64 (1)", ["linux-headers-amd64=1"], id="possible"),
        pytest.param("Inst linux-image-7-amd64 (1)", [], id="another kernel"),
    ],
)
def test_what_follows_the_kernel_is_no_condition(
    act: Any, printed: str, installed: list[str]
) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"changed": True, "rc": 0, "stdout": printed}

    result, ran = act(answer, operation="follow_kernel", names=["linux-headers-amd64=1"])
    assert "failed" not in result
    (_name, question), *changes = ran
    assert "--simulate" in question["argv"]
    assert [one["argv"][-1:] for _name, one in changes] == ([installed] if installed else [])
    # Otherwise, apt upgrades the kernel's meta package with its headers.
    expected = "APT::Get::Upgrade-By-Source-Package=false"
    assert all(expected in one["argv"] for _name, one in ran)
    assert result["changed"] is bool(installed)
    warnings = "\n".join(result.get("warnings", []))
    assert ("KERNEL_HEADERS_LEFT" in warnings) is not bool(installed)


def test_repository_whose_index_fails_is_taken_back(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module == "ansible.builtin.command":
            return {"failed": True, "rc": 100, "msg": "non-zero return code", "stderr": NO_KEY}
        return well(module, options)

    result, ran = act(answer, operation="repository", repository=REPOSITORY)
    assert codes(result) == ["REPOSITORY_UNTRUSTED", "REPOSITORY_REMOVED"]
    *_rest, (module, options) = ran
    assert (module, options) == (
        "deb822_repository",
        {"name": "metal-gpu-docker", "state": "absent"},
    )
    assert names(ran[:3]) == ["deb822_repository", "command", "packages"]
    assert "output" not in result  # the default callback would print it after the message


def test_repository_that_cannot_be_taken_back(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module == "ansible.builtin.command":
            return {"failed": True, "rc": 100, "msg": "non-zero return code", "stderr": NO_KEY}
        if options.get("state") == "absent":
            return {"failed": True, "msg": "read-only file system"}
        return well(module, options)

    result, _ran = act(answer, operation="repository", repository=REPOSITORY)
    assert codes(result) == ["REPOSITORY_UNTRUSTED", "PACKAGES_FAILED"]
    assert "read-only file system" in result["msg"]


@pytest.mark.parametrize("failing", [None, "ansible.builtin.get_url", "ansible.builtin.apt"])
def test_downloaded_package_does_not_stay(act: Any, failing: str | None) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"failed": True, "msg": "broken"} if module == failing else well(module, options)

    result, ran = act(answer, operation="install_file", **FILE)
    path = "/var/lib/metal-gpu/packages/docker_ce.deb"  # whatever the URL
    assert ran[0][1]["dest"] == path
    assert ("file", {"path": path, "state": "absent"}) in ran
    assert bool(result.get("failed")) is bool(failing)
    if failing == "ansible.builtin.get_url":
        assert result["msg"] == "broken"  # no package manager can explain it
        assert "apt" not in names(ran)
    if failing == "ansible.builtin.apt":
        assert codes(result) == ["PACKAGES_FAILED"]


RUN = {
    "url": "https://u:p4ss@host.example/NVIDIA-Linux-x86_64-580.178.04.run",
    "checksum": "0" * 64,
    "arguments": ["--silent"],
    "record": {"path": "/var/lib/metal-gpu/packages/nvidia_driver.json"},
}
SUMS = "The checksum for /x did not match sha256:000; it was sha256:111."


@pytest.mark.parametrize(
    ("operation", "failing", "said", "code"),
    [
        ("fetch_runfile", {"url": RUN["url"]}, "HTTP Error 404: Not Found", "RUNFILE_UNAVAILABLE"),
        ("fetch_runfile", {"checksum": f"sha256:{'0' * 64}"}, SUMS, "RUNFILE_CHECKSUM"),
        ("runfile", {"argv": None}, "ERROR: the compiler is too new", "RUNFILE_FAILED"),
        ("no_runfile", {"argv": None}, "ERROR: no list of files", "RUNFILE_NOT_REMOVED"),
    ],
)
def test_run_file_that_fails(
    act: Any, operation: str, failing: dict[str, Any], said: str, code: str
) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        ((key, value),) = failing.items()
        if key in options and value in (None, options[key]):
            return {"failed": True, "msg": said}
        return well(module, options)

    result, ran = act(answer, operation=operation, **(RUN if operation != "no_runfile" else {}))
    assert codes(result) == [code]
    assert said in result["msg"]
    gone = ("file", {"path": "/var/lib/metal-gpu/packages/nvidia_driver.run", "state": "absent"})
    if operation == "runfile":
        assert ran[-1] == gone
    if operation == "fetch_runfile":
        assert ran[-2] == gone


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param({"changed": True}, None, id="there"),
        pytest.param(
            {"failed": True, "msg": "Request failed", "status_code": 404},
            "RUNFILE_UNAVAILABLE",
            id="not there",
        ),
        pytest.param(
            {"failed": True, "msg": "<urlopen error [Errno 111]>", "status_code": -1},
            "RUNFILE_UNAVAILABLE",
            id="nobody answers",
        ),
        pytest.param(
            {"failed": True, "msg": "Request failed", "status_code": 403},
            None,
            id="a server that answers only GET",
        ),
    ],
)
def test_check_mode_asks_for_the_run_file(
    act: Any, answer: dict[str, Any], code: str | None
) -> None:
    result, ran = act(
        lambda _module, _options: answer, check=True, operation="fetch_runfile", **RUN
    )
    assert names(ran) == ["get_url"]
    assert codes(result) == [code] if code else result["changed"]


@pytest.mark.parametrize(
    ("checksum", "code"),
    [
        pytest.param(hashlib.sha256(b"driver").hexdigest().upper(), None, id="right"),
        pytest.param("0" * 64, "RUNFILE_CHECKSUM", id="wrong"),
        pytest.param("", "RUNFILE_UNAVAILABLE", id="no file"),
    ],
)
def test_check_mode_checks_the_run_file_of_the_controller(
    act: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, checksum: str, code: str | None
) -> None:
    path = tmp_path / "driver.run"
    if checksum:
        path.write_bytes(b"driver")
    found = str(path) if checksum else None
    monkeypatch.setattr(ActionModule, "_find_file", lambda _self, _name: found)
    options = {**RUN, "url": str(path), "checksum": checksum}
    result, ran = act(check=True, operation="fetch_runfile", **options)
    assert ran == []
    assert codes(result) == [code] if code else result["changed"]


def test_file_that_cannot_be_fetched_waits_for_no_lock(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module == "metal.gpu.packages":
            return {"changed": False, "lock": {"pid": 7, "command": "apt", "started": None}}
        is_fetch = module == "ansible.builtin.get_url"
        return {"failed": True, "msg": "404"} if is_fetch else well(module, options)

    result, ran = act(answer, operation="install_file", **FILE)
    assert result["msg"] == "404"
    assert names(ran) == ["get_url", "file"]


def test_error_stays_beside_the_lock(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module == "metal.gpu.packages":
            return {"changed": False, "lock": {"pid": 7, "command": "apt", "started": None}}
        return {"failed": True, "msg": "E: no space left"}

    result, _ran = act(answer, operation="release", names=["x"])
    assert codes(result) == ["PACKAGE_MANAGER_LOCKED", "PACKAGES_FAILED"]
    assert "no space left" in result["msg"]


def test_no_second_failure_hides_the_first(act: Any) -> None:
    """A full disk also keeps the modules that would explain it from running."""

    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module in ("metal.gpu.packages", "metal.gpu.node_info"):
            raise AnsibleConnectionFailure("Failed to create temporary directory")
        is_apt = module == "ansible.builtin.apt"
        return {"failed": True, "msg": "E: no space left"} if is_apt else well(module, options)

    result, ran = act(answer, operation="install_file", **FILE)
    assert codes(result) == ["PACKAGES_FAILED"]
    assert "no space left" in result["msg"]
    assert names(ran)[-1] == "file"


def test_key_that_cannot_be_fetched_changes_nothing(
    act: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the repository may have been there before, and may be good."""
    message = "cannot fetch the signing key http://mirror.example/gpg: HTTP Error 404: Not Found"

    def fail(*_args: Any) -> str:
        raise KeyUnavailable(message)

    monkeypatch.setattr(KEY, fail)
    result, ran = act(operation="repository", repository=REPOSITORY)
    assert (codes(result), ran) == (["REPOSITORY_UNREACHABLE"], [])


def test_file_does_not_stay_on_a_node_that_answers_again(act: Any) -> None:
    ran: list[str] = []

    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        ran.append(module)
        if module == "ansible.builtin.apt":
            raise AnsibleConnectionFailure("timed out")
        return well(module, options)

    with pytest.raises(AnsibleConnectionFailure, match="timed out"):
        act(answer, operation="install_file", **FILE)
    assert ran[-1] == "ansible.builtin.file"


def test_failed_change_leaves_packages_held(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        is_dnf = "install" in options.get("argv", ())
        return {"failed": True, "msg": "Error: no"} if is_dnf else well(module, options)

    wanted = ["containerd.io-2.4.1", "docker-ce-3:29.8.1-1.el9"]
    result, ran = act(answer, node=ROCKY, operation="install", names=wanted, change_held=True)
    assert result["failed"]
    locks = [options["argv"][-2:] for name, options in ran if "versionlock" in str(options)]
    assert locks == [["delete", "containerd.io"], ["add", "containerd.io"]]


@pytest.mark.parametrize("operation", ["release", "remove"])
def test_hold_that_cannot_be_released_is_a_failure(act: Any, operation: str) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        is_command = module == "ansible.builtin.command"
        crash = {"failed": True, "rc": 1, "msg": "MODULE FAILURE"}
        return crash if is_command else well(module, options)

    result, _ran = act(answer, node=ROCKY, operation=operation, names=["containerd.io"])
    assert result["failed"]
    assert "MODULE FAILURE" in result["msg"]


def test_dnf_that_holds_none_of_the_packages(act: Any) -> None:
    result, ran = act(node=ROCKY, operation="release", names=["docker-ce"])
    assert (result["changed"], ran) == (False, [])


@pytest.mark.parametrize("node", [NODE, ROCKY])
@pytest.mark.parametrize(
    "error",
    [
        pytest.param("E: Failed to fetch http://x.example/Packages  404", id="in other words"),
        pytest.param("E: Could not get lock /var/lib/apt/lists/lock", id="a lock"),
    ],
)
def test_new_repository_is_taken_back_whatever_the_reason(
    act: Any, node: dict[str, Any], error: str
) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module == "metal.gpu.node_info":
            raise AnsibleConnectionFailure("Failed to create temporary directory")
        is_command = module == "ansible.builtin.command"
        return {"failed": True, "msg": error} if is_command else well(module, options)

    result, ran = act(answer, node=node, operation="repository", repository=REPOSITORY)
    assert codes(result)[-1] == "REPOSITORY_REMOVED"
    assert "absent" in [options.get("state") for _name, options in ran]
    kept, ran = act(
        answer, node=node, operation="repository", repository={**REPOSITORY, "new": False}
    )
    assert "REPOSITORY_REMOVED" not in codes(kept)
    assert "absent" not in [options.get("state") for _name, options in ran]


@pytest.mark.parametrize("is_new", [True, False])
def test_repository_that_stops_apt_is_taken_back_by_the_installation(
    act: Any, is_new: bool
) -> None:
    """An admin has the same address with another key. Only apt as a whole notices that."""
    twice = "E:Conflicting values set for option Signed-By regarding source {} bookworm: a != b"

    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        error = {"failed": True, "msg": twice.format(REPOSITORY["url"])}
        return error if module == "ansible.builtin.apt" else well(module, options)

    repository = {**REPOSITORY, "new": is_new}
    result, ran = act(answer, operation="install", names=["x"], repository=repository)
    assert codes(result) == ["REPOSITORY_TWICE", *["REPOSITORY_REMOVED"] * is_new]
    assert ("deb822_repository" in names(ran)) is is_new


def test_versions_are_in_question_only_for_an_installation(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        is_apt = module == "ansible.builtin.apt"
        return {"failed": True, "msg": "E: prerm"} if is_apt else well(module, options)

    _result, ran = act(answer, operation="remove", names=["cri-dockerd"])
    assert "madison" not in str(ran)


def test_interpreter_is_searched_for_once(act: Any) -> None:
    result, _ran = act(operation="remove", names=["x"], found="/usr/bin/python3.11")
    assert result["ansible_facts"] == {"discovered_interpreter_python": "/usr/bin/python3.11"}


STREAM = {"operation": "stream", "stream": "nvidia-driver:580-open"}


def test_results_of_the_modules_are_handed_on(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "changed": False,
            "diff": {"before": module},
            "warnings": [f"of {module}"],
            "results": ["Installed: x"],
            "stdout": "a\nb",
        }

    result, _ran = act(answer, node=ROCKY, **STREAM)
    assert result == {
        "changed": False,
        "diff": [{"before": "ansible.builtin.command"}] * 2,
        "warnings": ["of ansible.builtin.command"] * 2,
        "output": ["a", "b", "Installed: x"] * 2,
    }


def test_lock_that_stays(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module == "metal.gpu.packages":
            return {"changed": False, "lock": {"pid": 7, "command": "apt", "started": None}}
        return {"failed": True, "msg": "Failed to lock apt for exclusive operation"}

    result, ran = act(answer, operation="release", names=["x"])
    assert codes(result) == ["PACKAGE_MANAGER_LOCKED"]
    assert names(ran)[:2] == ["command", "packages"]
    assert ran[1][1] == {"operation": "release", "_wait": 0}


@pytest.mark.parametrize(
    ("lock", "expected"),
    [
        (None, ""),
        ({"pid": 7, "command": "apt", "started": None}, "PACKAGE_MANAGER_LOCKED"),
    ],
)
def test_nothing_is_installed_while_a_node_reboots(act: Any, lock: Any, expected: Any) -> None:
    result, ran = act(lambda *_call: {"changed": False, "lock": lock}, operation="await_lock")
    assert result.get("msg", "").split(" ")[0] == expected
    assert result["changed"] is False
    assert {*names(ran)} == {"packages"}


def asked(printed: str = "", error: str | None = None, **more: Any) -> Answer:
    """Return a node whose package manager is only asked."""

    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if "_rehearse" in options:
            return {"changed": False, "printed": printed, "error": error, "answers": {}, **more}
        return well(module, options)

    return answer


def programs(ran: list[tuple[str, Any]]) -> list[list[str]]:
    """Return the programs of all rehearsals."""
    found = [options["_rehearse"]["programs"] for _name, options in ran if "_rehearse" in options]
    return [one["argv"] for programs_ in found for one in programs_]


def test_check_mode_asks_once(act: Any) -> None:
    result, ran = act(asked("Inst x"), check=True, operation="install", names=["x"], record=RECORD)
    assert (names(ran), result["changed"], result.get("failed")) == (["packages"], True, None)
    assert programs(ran)[-1][-2:] == ["install", "x"]


@pytest.mark.parametrize(
    "args",
    [
        {"operation": "hold", "names": ["x"]},
        {"operation": "repository", "repository": REPOSITORY},
    ],
    ids=["hold", "repository"],
)
def test_check_mode_without_a_question(act: Any, args: dict[str, Any]) -> None:
    result, ran = act(check=True, **args)
    assert (result, ran) == ({"changed": True}, [])


@pytest.mark.parametrize(
    "manager", [{"interrupted": True}, {"unfinished": {"nvidia-dkms-580": {"state": "unpacked"}}}]
)
def test_check_mode_does_not_ask_before_the_repair(act: Any, manager: dict[str, Any]) -> None:
    node = {**NODE, "package_manager": {**NODE["package_manager"], **manager}}
    result, ran = act(node=node, check=True, operation="install", names=["x"])
    assert (result, ran) == ({"changed": True}, [])


def test_check_mode_reads_a_planned_repository_with_its_key(act: Any) -> None:
    install = {"operation": "install", "names": ["x"], "repository": REPOSITORY}
    _result, ran = act(asked(), check=True, **install)
    files = ran[0][1]["_rehearse"]["files"]
    assert "Signed-By: the key" in files["sources/metal-gpu-docker.sources"]
    _result, ran = act(asked(), check=True, node=ROCKY, **install)
    assert ran[0][1]["_rehearse"]["files"]["key"] == "the key"


def test_check_mode_with_a_repository_of_another_key(act: Any) -> None:
    install = {"operation": "install", "names": ["x"], "repository": REPOSITORY}
    result, ran = act(asked(error=NO_KEY), check=True, **install)
    assert codes(result) == ["REPOSITORY_UNTRUSTED"]
    assert {*names(ran)} == {"packages"}  # nothing to take back


def test_check_mode_with_a_key_that_cannot_be_fetched(
    act: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any) -> str:
        raise KeyUnavailable("cannot fetch the signing key http://mirror.example/gpg: HTTP 404")

    monkeypatch.setattr(KEY, fail)
    install = {"operation": "install", "names": ["x"], "repository": REPOSITORY}
    result, ran = act(check=True, **install)
    assert (codes(result), ran) == (["REPOSITORY_UNREACHABLE"], [])


def test_check_mode_finds_the_version_missing_that_a_real_run_would(act: Any) -> None:
    error = "E: Version '2.4.9' for 'containerd.io' was not found"
    lists = {"versions": "containerd.io | 2.4.1-2 | x\ncontainerd.io | 2.3.0-1 | x"}
    node = asked(error=error, answers=lists)
    result, ran = act(node, check=True, operation="install", names=["containerd.io=2.4.9"])
    assert codes(result) == ["PACKAGE_VERSION_MISSING"]
    assert "available versions: 2.4.1-2, 2.3.0-1" in result["msg"]
    assert len(ran) == 1


def test_check_mode_reads_the_indexes_again_like_a_real_run(act: Any) -> None:
    error = "E: Unable to locate package x"
    result, ran = act(asked(error=error), check=True, operation="install", names=["x"])
    assert result["failed"]
    updates = [one for one in ran if not one[1]["_rehearse"]["programs"][0]["if_old"]]
    assert (len(ran), len(updates)) == (2, 1)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("family", [NODE, ROCKY], ids=["apt", "dnf"])
def test_nothing_goes_that_the_plan_does_not_name(
    act: Any, family: dict[str, Any], check: bool
) -> None:
    printed = {
        "debian": "Remv docker.io [20.10]\nRemv podman [4.3]\nInst docker-ce (5:29.8.1)",
        "redhat": "Removing:\n docker.io  x86_64 20.10 @x 1 M\n podman  x86_64 4.3 @x 1 M\n\n",
    }[family["os"]["family"]]
    install = {"operation": "install", "names": ["docker-ce"], "may_remove": ["docker.io"]}
    result, ran = act(asked(printed), node=family, check=check, **install)
    assert codes(result) == ["PACKAGES_DISPLACED"]
    assert "does not name: podman" in result["msg"]
    assert not any("install" in options.get("argv", ()) or "name" in options for _, options in ran)


DNF_REMOVES = parse_scene(recording("packages/dnf-remove.txt"))
APT_REMOVES = "Remv drv-meta [1]\nRemv drv [1]\nRemv cuda-13 [1]\nPurg drv-lib [1]\n"


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("node", "printed", "chosen"),
    [
        pytest.param(NODE, APT_REMOVES, "", id="apt"),
        pytest.param(ROCKY, DNF_REMOVES["clean-stdout"], "", id="dnf"),
        pytest.param(
            ROCKY, DNF_REMOVES["kept-stdout"], DNF_REMOVES["userinstalled-stdout"],
            id="dnf that keeps dependencies",
        ),
    ],
)  # fmt: skip
def test_a_removal_takes_nothing_of_the_admin_along(
    act: Any, node: dict[str, Any], printed: str, chosen: str, check: bool
) -> None:
    """A dependency goes: nothing needs it without the others."""
    node = {**node, "package_manager": {**node["package_manager"], "automatic": ["drv-lib"]}}
    told = asked(printed, answers={"chosen": chosen})
    remove = {"operation": "remove", "names": ["drv", "drv-meta"], "check": check}
    result, ran = act(told, node=node, **remove)
    assert codes(result) == ["PACKAGES_NEEDED"]
    assert "did not install: cuda-13\n" in result["msg"]
    assert not any("argv" in options or "name" in options for _, options in ran)
    result, _ran = act(told, node=node, **remove, also_release=["cuda-13"])
    assert "failed" not in result


def test_check_mode_names_the_source_that_wins(
    act: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    scenes = parse_scene(recording("packages/apt-policy.txt"))
    node = asked(scenes["simulated"], answers={"policy": scenes["policy"]})
    repository = {**REPOSITORY, "url": "http://mirror.example/toolkit/", "new": False}
    result, _ran = act(
        node, check=True, operation="install", names=["foo=1.0-1"], repository=repository
    )
    assert "failed" not in result
    assert "PACKAGE_SOURCES gpu-1: several sources have foo" in capsys.readouterr().err


@pytest.mark.parametrize("check", [True, False])
def test_modules_of_another_driver_are_not_installed(act: Any, check: bool) -> None:
    """apt would install them, because their package accepts any newer driver."""
    name = "linux-modules-nvidia-580-server-6.8.0-138-generic"
    common = "nvidia-kernel-common-580-server"
    simulated = f"Inst {common} (580.178.04-0ubuntu0.24.04.1 x)\nInst {name} (6.8.0-138.138 x)\n"
    shown = f"Package: {name}\nVersion: 6.8.0-138.138\nDepends: {common} (>= 580.173.02)\n"
    node = asked(simulated, answers={"modules": shown})
    result, ran = act(node, check=check, operation="install", names=[f"{name}=*"])
    assert codes(result) == ["KERNEL_OUTDATED"]
    assert "was built for driver 580.173.02, and the driver is 580.178.04" in result["msg"]
    assert not any("name" in options for _, options in ran)


@pytest.mark.parametrize("record", [None, RECORD], ids=["headers", "recorded"])
def test_dnf_always_tells_first_what_would_go(act: Any, record: Any) -> None:
    """Check mode asks in any case, so the real run does, too."""
    table = "Removing:\n podman x86_64 2:5.4.0 @appstream 50 M\n\nTransaction Summary\n"
    install = {"operation": "install", "names": ["kernel-devel-matched-5.14.0"], "record": record}
    result, ran = act(asked(table), node=ROCKY, **install)
    assert codes(result) == ["PACKAGES_DISPLACED"]
    assert "command" not in names(ran)


@pytest.mark.parametrize("names_", [None, "", [], ",", [None]], ids=str)
def test_admin_permits_nothing(act: Any, names_: object) -> None:
    """An empty variable is no permission, and no defect."""
    permitted = {"metal_gpu_removable_packages": names_}
    result, ran = act(variables=permitted, operation="install", names=["docker-ce"])
    assert "failed" not in result
    assert ran[-1][1]["fail_on_autoremove"] is True


@pytest.mark.parametrize(
    "names_", [["podman"], "buildah,podman", "buildah, podman"], ids=["list", "-e", "text"]
)
def test_admin_permits_what_goes(act: Any, names_: object) -> None:
    install = {"operation": "install", "names": ["docker-ce"], "may_remove": ["docker.io"]}
    permitted = {"metal_gpu_removable_packages": names_}
    result, ran = act(asked("Remv podman [4.3]"), variables=permitted, **install)
    assert "failed" not in result
    assert ran[-1][1]["fail_on_autoremove"] is False


def test_apt_itself_removes_nothing(act: Any) -> None:
    _result, ran = act(operation="install", names=["x"])
    assert ran[-1][1]["fail_on_autoremove"] is True


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({"operation": "stream", "stream": "nvidia-driver:580"}, id="apt, stream"),
        pytest.param({"operation": "install"}, id="no names"),
        pytest.param({"operation": "upgrade"}, id="unknown"),
    ],
)
def test_operations_that_make_no_sense(act: Any, args: dict[str, Any]) -> None:
    with pytest.raises(AnsibleActionFail):
        act(**args)


def test_folder_that_an_action_makes_for_modules_is_removed_with_the_task() -> None:
    """Without pipelining: its files have the passwords of addresses."""
    action = ActionModule(MagicMock(), *(MagicMock() for _mock in range(5)))
    action._variables = {}
    nested = SimpleNamespace(_cleanup_remote_tmp=True, run=lambda task_vars: {})
    loader = MagicMock()
    loader.action_loader.get.return_value = nested
    action._shared_loader_obj = loader
    action._run_action(Call("ansible.builtin.copy", {}))
    assert action._cleanup_remote_tmp


def test_sources_without_streams_are_enough(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if "list" in options.get("argv", ()):
            return {"failed": True, "rc": 1, "stderr": "Error: No matching Modules to list"}
        return well(module, options)

    result, ran = act(answer, node=ROCKY, operation="stream", stream="x:1", repository={})
    assert result["changed"] is False
    assert "failed" not in result
    assert [options["argv"][-3:] for _name, options in ran] == [["module", "list", "x:1"]]


def test_other_failures_of_a_list_of_streams_are_failures(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if "list" in options.get("argv", ()):
            return {"failed": True, "rc": 1, "stderr": "Error: something else"}
        return well(module, options)

    result, _ran = act(answer, node=ROCKY, operation="stream", stream="x:1", repository={})
    assert codes(result) == ["PACKAGES_FAILED"]


def test_installed_packages_of_a_version_are_held_with_the_others(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if "rpm" in options.get("argv", ()):
            return {"rc": 0, "stdout": "a-1:2-3\nlib-1:2-3\nother-0:2-3\n"}
        return well(module, options)

    _result, ran = act(answer, node=ROCKY, operation="hold", names=["a-1:2"], alike=["*-1:2-*"])
    assert ran[-1][1]["argv"][-4:] == ["versionlock", "add", "a-1:2", "lib-1:2-3"]


def test_check_mode_tells_what_the_next_kernel_will_lack(act: Any) -> None:
    """apt's words: Debian 13 would install a kernel with the headers."""
    headers = ["linux-headers-amd64=6.12.1-1", "linux-headers-amd64"]
    said = {
        f"following {headers[0]}": "E: Version '6.12.1-1' for 'linux-headers-amd64' was not found",
        f"following {headers[1]}": "Inst linux-image-6.12.107+deb13-amd64 (6.12.107-1 x [amd64])",
    }

    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        return {**well(module, options), "printed": "", "answers": said}

    result, ran = act(answer, check=True, operation="install", names=["x"], following=headers)
    (warning,) = (line for line in result["warnings"] if "KERNEL_HEADERS_LEFT" in line)
    assert "was not found" in warning
    assert "linux-image-6.12.107+deb13-amd64" in warning
    assert names(ran) == ["packages"]


@pytest.mark.parametrize(("repository", "is_asked"), [(None, False), ({}, True)])
def test_packages_of_the_system_may_have_several_sources(
    act: Any, capsys: Any, repository: dict[str, str] | None, is_asked: bool
) -> None:
    scene = parse_scene(recording("packages/dnf-sources.txt"))

    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        said = {"printed": scene["transaction"], "answers": {"offers": scene["offers"]}}
        return {**well(module, options), **said}

    names = ["nvidia-container-toolkit-1.20.1-1"]
    more = {"repository": repository} if repository is not None else {}
    act(answer, node=ROCKY, check=True, operation="install", names=names, **more)
    assert ("dnf takes site-b" in capsys.readouterr().err) is is_asked
