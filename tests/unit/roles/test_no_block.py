# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tasks by which roles take their files away, carried out on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
BLOCK = "# BEGIN managed by Ansible, role r\nblacklist nouveau\n# END managed by Ansible, role r\n"


def play(path: Path) -> list[dict[str, object]]:
    variables = {
        "preflight_block_step": "Remove",
        "preflight_block_path": str(path),
        "preflight_block_marker": "# {mark} managed by Ansible, role r",
        "ansible_python_interpreter": sys.executable,
    }
    tasks = ROOT / "roles" / "preflight" / "tasks" / "no_block.yml"
    include = {"ansible.builtin.include_tasks": {"file": str(tasks)}}
    return [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": variables,
            "tasks": [include],
        }
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(BLOCK, None, id="nothing but the block"),
        pytest.param(f"# mine\n{BLOCK}blacklist snd\n", "# mine\nblacklist snd\n", id="more"),
    ],
)
def test_the_admins_lines_stay(tmp_path: Path, before: str, after: str | None) -> None:
    file, playbook = tmp_path / "metal-gpu.conf", tmp_path / "play.yml"
    file.write_text(before)
    playbook.write_text(yaml.safe_dump(play(file)))
    command = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [command, "-i", "localhost,", playbook],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_LOCAL_TEMP": str(tmp_path), "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (file.read_text() if file.exists() else None) == after
