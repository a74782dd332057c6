# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""In which order an operation runs its modules, and what comes of their results.

The modules' results are given. That apt and dpkg answer like this is tested in the laboratory, and
what is printed in test_verbosity.py.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.metal.gpu.plugins.action.packages import ActionModule
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.dnf import VERSIONLOCK

KEY = "ansible_collections.metal.gpu.plugins.action.packages.read_signing_key"
NODE = {"os": {"family": "debian", "version_id": "12"}, "packages": {}}
ROCKY = {"os": {"family": "redhat", "version_id": "9.6"}, "packages": {VERSIONLOCK: {}}}
OBSERVED = {
    **NODE,
    "package_manager": {"lock": None, "interrupted": False},
    "package_sources": [],
    "packages": {"cri-dockerd": {"version": "0.4.3"}},
}
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
    "new": True,
}
FILE = {"url": "https://host.example/x.deb", "checksum": "sha256:0"}
NO_KEY = "E: GPG error: http://mirror.example/docker bookworm InRelease: NO_PUBKEY 4B66779006D76BF0"
Answer = Callable[[str, dict[str, Any]], dict[str, Any]]


def well(module: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a module that has nothing to complain about."""
    if module == "metal.gpu.node_info":
        return {"changed": False, "gpu_node": OBSERVED}
    if module == "metal.gpu.packages":
        return {"changed": False, "lock": None}
    return {"changed": True, **({"rc": 0} if module == "ansible.builtin.command" else {})}


@pytest.fixture
def act(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run an operation. Return its result, and the modules that ran, with their words."""
    monkeypatch.setattr(KEY, lambda *_args: "the key")

    def run(
        answer: Answer = well, *, node: dict[str, Any] = NODE, check: bool = False, **args: Any
    ) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
        ran: list[tuple[str, Any]] = []

        def execute(
            module_name: str, module_args: dict[str, Any], task_vars: Any = None
        ) -> dict[str, Any]:
            name = module_name.removeprefix("ansible.builtin.").removeprefix("metal.gpu.")
            ran.append((name, module_args))
            return answer(module_name, module_args)

        task = SimpleNamespace(
            args=args, check_mode=check, async_val=0, diff=True, action="x", environment=[]
        )
        action = ActionModule(task, *(MagicMock() for _mock in range(5)))
        action._load_name = "metal.gpu.packages"  # as the loader of plugins does
        action._templar.template = lambda value: value
        action._execute_module = execute
        action._run_action = lambda call: execute(call.module, call.options)
        variables = {
            "inventory_hostname": "gpu-1",
            "metal_gpu_lock_timeout": 0,
            "metal_gpu": {"node": node},
        }
        return action.run(task_vars=variables), ran

    return run


def names(ran: list[tuple[str, Any]]) -> list[str]:
    return [name for name, _options in ran]


def codes(result: dict[str, Any]) -> list[str]:
    return [line.split()[0] for line in result["msg"].splitlines() if not line.startswith(" ")]


def test_the_record_comes_first_and_the_versions_last(act: Any) -> None:
    """Without a version, the record would claim any version that an admin installs."""
    result, ran = act(operation="install", names=["docker-ce=29.8.1-*"], record=RECORD)
    assert names(ran) == ["packages", "apt", "packages"]
    assert ran[0][1]["_note"] == {"path": "/r.json", "packages": RECORD["packages"]}
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
    assert result["output"] == [NO_KEY, NO_KEY]  # of the operation, and of the question


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
    assert ("file", {"path": "/root/x.deb", "state": "absent"}) in ran
    assert bool(result.get("failed")) is bool(failing)
    if failing == "ansible.builtin.get_url":
        assert result["msg"] == "broken"  # no package manager can explain it
        assert "apt" not in names(ran)
    if failing == "ansible.builtin.apt":
        assert codes(result) == ["PACKAGES_FAILED"]


@pytest.mark.parametrize(("rc", "changed"), [(0, True), (1, False)])
def test_dnf_that_holds_none_of_the_packages(act: Any, rc: int, changed: bool) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        return {"failed": rc != 0, "changed": True, "rc": rc, "msg": "x"}

    result, _ran = act(answer, node=ROCKY, operation="release", names=["containerd.io"])
    assert not result.get("failed")
    assert result["changed"] is changed


def test_results_of_the_modules_are_handed_on(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "changed": False,
            "diff": {"before": module},
            "warnings": [f"of {module}"],
            "results": ["Installed: x"],
            "stdout": "a\nb",
        }

    result, _ran = act(answer, node=ROCKY, operation="remove", names=["x"])
    assert result == {
        "changed": False,
        "diff": [{"before": "ansible.builtin.dnf"}, {"before": "ansible.builtin.command"}],
        "warnings": ["of ansible.builtin.dnf", "of ansible.builtin.command"],
        "output": ["a", "b", "Installed: x"] * 2,
    }


def test_lock_that_stays(act: Any) -> None:
    def answer(module: str, options: dict[str, Any]) -> dict[str, Any]:
        if module == "metal.gpu.packages":
            return {"changed": False, "lock": {"pid": 7, "command": "apt", "started": None}}
        return {"failed": True, "msg": "Failed to lock apt for exclusive operation"}

    result, ran = act(answer, operation="remove", names=["x"])
    assert codes(result) == ["PACKAGE_MANAGER_LOCKED"]
    assert names(ran)[:2] == ["apt", "packages"]
    assert ran[1][1] == {"operation": "remove", "_wait": 0}


def test_check_mode_touches_nothing(act: Any) -> None:
    result, ran = act(check=True, operation="install", names=["x"], record=RECORD)
    assert (result, ran) == ({"changed": True}, [])


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
