# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node whose power fails in the middle of an edit, before any system call of the module.

Between two system calls that change a file or a folder, it makes no difference when it fails. So a
run is ended once for each change, before the next system call. Afterwards, each file is the old or
the new one, and the next run ends as if nothing had happened.
"""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.action.config_document import ActionModule
from ansible_collections.metal.gpu.plugins.modules import config_document
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history
from ansible_collections.metal.gpu.tests.unit.support.module_args import patch_module_args
from ansible_collections.metal.gpu.tests.unit.support.power_cut import run_until

ADMIN = 'version = 3  # mine\n\n# the mirror\n[debug]\nlevel = "info"\n'
NVIDIA = {"merge": {"version": 3, "plugins": {"cri": {"runtimes": {"nvidia": {"type": "x"}}}}}}
MORE = {"merge": {"plugins": {"cri": {"enable_cdi": True}}}}
# A folder of which a program reads every file, whatever its name.
IN_CONF = {**NVIDIA, "format": "toml", "aside": "etc"}
ABSENT = {"state": "absent"}


class Case(NamedTuple):
    path: str
    content: str | None  # the admin's file
    before: tuple[dict[str, Any], ...]  # the tasks that ran before
    task: dict[str, Any]


CASES = {
    "first edit": Case("etc/config.toml", ADMIN, (), NVIDIA),
    "second edit": Case("etc/config.toml", ADMIN, (NVIDIA,), MORE),
    "new file": Case("etc/conf.d/99-metal-gpu.toml", None, (), NVIDIA),
    "new file aside": Case("etc/conf.d/99-metal-gpu.conf", None, (), IN_CONF),
    "new file in new folders": Case("etc/a/b/99-metal-gpu.toml", None, (), NVIDIA),
    "removal": Case("etc/config.toml", ADMIN, (NVIDIA, MORE), ABSENT),
    "removal of the file": Case("etc/conf.d/99-metal-gpu.toml", None, (NVIDIA,), ABSENT),
    "removal of folders": Case("etc/a/b/99-metal-gpu.toml", None, (NVIDIA,), ABSENT),
    "undo": Case("etc/config.toml", ADMIN, (NVIDIA, MORE), {"state": "previous"}),
    "keep": Case("etc/config.toml", ADMIN, (NVIDIA,), {"state": "kept"}),
}


class Node:
    """A folder that stands for a node, and the action on it."""

    def __init__(self, root: Path, path: str) -> None:
        self.root, self.path = root, path

    def run(self, task: dict[str, Any], *, cut: int | None = None) -> int:
        """Run a task, as Ansible does. Return the number of changes.

        `cut` ends the write after this number of changes.
        """
        states: list[object] = []

        def is_over() -> bool:
            found = self._changes()
            if not states or states[-1] != found:
                states.append(found)
            return len(states) - 1 == cut

        def execute(module_name: str, module_args: dict[str, Any], task_vars: Any) -> Any:
            args = json.loads(json.dumps(module_args))
            with patch_module_args(args):
                module = AnsibleModule(
                    {**config_document.ARGUMENT_SPEC, "_write": config_document._WRITE}
                )
            names = ("path", "actor", "history_dir")
            place = config_document.Place(*(module.params[name] for name in names))
            if "_write" not in args:
                config_document.sweep(place, module.params["aside"])
                return config_document.read(place)
            request = json.loads(args["_write"])
            is_cut = run_until(is_over, lambda: config_document.write(place, request, module))
            assert is_cut is (cut is not None)
            return {"changed": True}

        args = {
            "path": str(self.root / self.path),
            "history_dir": str(self.root / "var/lib/history"),
            **task,
        }
        if "aside" in task:
            args["aside"] = str(self.root / task["aside"])
        described = SimpleNamespace(
            args=args, check_mode=False, async_val=0, diff=False, action="x", environment=[]
        )
        action = ActionModule(described, *(MagicMock() for _mock in range(5)))
        action._load_name = "metal.gpu.config_document"
        action._execute_module = execute
        action.run(task_vars={})
        return len(states)

    def _changes(self) -> object:
        """Return everything that a system call can change."""
        return {
            (str(one), status.st_ino, status.st_mode, status.st_size, status.st_ctime_ns)
            for one in self.root.rglob("*")
            for status in [one.lstat()]
        }

    def content(self) -> str | None:
        file = self.root / self.path
        return file.read_text() if file.exists() else None

    def state(self) -> dict[str, tuple[object, int]]:
        """Return the content and the mode of every file and folder; histories as data."""
        return {
            str(one.relative_to(self.root)): (
                self._read(one) if one.is_file() else "",
                stat.S_IMODE(one.stat().st_mode),
            )
            for one in self.root.rglob("*")
        }

    def _read(self, file: Path) -> object:
        text = file.read_text()
        return history.recall(text, self.content()) if file.suffix == ".json" else text


def temporary(node: Node) -> set[str]:
    """Return what waits in the folder of the histories, which only root reads, to be swept."""
    return {name for name in node.state() if name.startswith("var/lib/history/.metal-gpu-")}


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder without a disk: each run waits for it several times."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_system_call_can_be_the_last_one(in_memory, case):
    node, template = Node(in_memory / "node", case.path), in_memory / "template"
    (node.root / "etc/conf.d").mkdir(parents=True)
    (node.root / "var/lib").mkdir(parents=True)
    if case.content is not None:
        (node.root / case.path).write_text(case.content)
        (node.root / case.path).chmod(0o640)
    untouched = node.state()
    for task in case.before:
        node.run(task)
    shutil.copytree(node.root, template)
    old = node.content()
    count = node.run(case.task)
    assert count > 1
    new, after = node.content(), node.state()

    for cut in range(count):
        shutil.rmtree(node.root)
        shutil.copytree(template, node.root)
        node.run(case.task, cut=cut)
        assert node.content() in (old, new), cut
        # No program reads what is left in a folder of configuration files.
        read = "*" if "aside" in case.task else "*.toml"
        names = {one.name for one in (node.root / case.path).parent.glob(read)}
        assert names <= {Path(case.path).name}, cut
        node.run(case.task)
        assert node.content() == new, cut
        if "state" not in case.task:
            assert {*node.state()} - temporary(node) == {*after}, cut
            node.run(ABSENT)
            assert node.state() == untouched, cut
        elif case.task == ABSENT:
            # The last step of all removes the folder of the histories, if it is empty.
            left = {**untouched, "var/lib/history": ("", 0o700)}
            assert node.state() in (untouched, left), cut
        else:
            assert node.state() == after, cut
