# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role nfs_mounts as Ansible runs it, with a program that answers as systemctl does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.playbooks.test_playbooks import inventory, play
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.nfs.test_plan import (
    READY,
    observed,
)
from ansible_collections.metal.gpu.tests.unit.support.playbooks import Run, run

SYSTEMCTL = """\
#!/bin/sh
case "$*" in
  show*) printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n' ;;
  is-*) echo enabled ;;
  *) echo "$*" >>"$CALLS" ;;
esac
case "$*" in
  "stop data.mount") echo 'Job for data.mount failed. umount: /data: target is busy.' >&2; exit 1 ;;
esac
"""


@pytest.fixture
def take_back(tmp_path: Path) -> Any:
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL)
    program.chmod(0o755)

    def take_back(**changes: Any) -> Run:
        given = {
            "metal_gpu_observation_is_fresh": True,
            "metal_gpu_given": {"node": observed(**{**READY, **changes})},
        }
        (tmp_path / "given.json").write_text(json.dumps(given))
        take = {"metal_gpu": "{{ metal_gpu_given }}"}
        mount = {"name": "Mount", "ansible.builtin.import_role": {"name": "metal.gpu.nfs_mounts"}}
        path = "{{ ansible_playbook_python | dirname }}:/usr/bin:/bin"
        environment = {"PATH": f"{program.parent}:{path}", "CALLS": str(tmp_path / "calls")}
        tasks = [{"name": "Take it", "ansible.builtin.set_fact": take}, mount]
        plays = [play(tasks=tasks, environment=environment)]
        return run(tmp_path, plays, inventory({"gpu-1": {}}), f"-e@{tmp_path / 'given.json'}")

    return take_back


def test_mount_that_a_program_uses_stays_with_its_automount(take_back, tmp_path: Path) -> None:
    """An automount that is stopped would detach what is mounted, without an error."""
    found = take_back()
    assert found.code != 0
    assert "target is busy" in found.words
    assert (tmp_path / "calls").read_text().splitlines() == ["stop data.mount"]


def test_unit_with_lines_of_the_admin_keeps_them(take_back, tmp_path: Path) -> None:
    """A unit of ours goes at once: an empty file would be one that nobody owns."""
    whole, mixed = tmp_path / "old.mount", tmp_path / "old.automount"
    marks = (f"# {mark} managed by Ansible, role metal.gpu.nfs_mounts" for mark in ("BEGIN", "END"))
    block = "\n[Automount]\n".join(marks)
    whole.write_text(f"{block}\n")
    mixed.write_text(f"{block}\n# mine\n")
    units = {str(path): ["[Automount]"] for path in (whole, mixed)}
    found = take_back(units=units, mixed=[str(mixed)])
    assert found.code == 0, found.output
    assert not whole.exists()
    assert mixed.read_text() == "# mine\n"
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "daemon-reload"


def test_mount_that_containers_keep_is_not_touched(take_back, tmp_path: Path) -> None:
    found = take_back(users={"/data": ["python3 (process 90) of container 1a2b3c4d5e6f"]})
    assert found.code != 0
    assert "NFS_MOUNT_USED gpu-1: the NFS mount at /data is to be removed" in found.words
    assert "python3 (process 90) of container 1a2b3c4d5e6f" in found.words
    assert not (tmp_path / "calls").exists()
