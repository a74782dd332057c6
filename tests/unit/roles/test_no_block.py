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


def play(path: Path, **more: object) -> list[dict[str, object]]:
    variables: dict[str, object] = {
        "preflight_block_step": "Remove",
        "preflight_block_path": str(path),
        "preflight_block_marker": "# {mark} managed by Ansible, role r",
        "ansible_python_interpreter": sys.executable,
        **more,
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
    file = tmp_path / "metal-gpu.conf"
    file.write_text(before)
    carried_out(tmp_path, play(file))
    assert (file.read_text() if file.exists() else None) == after


def test_passwords_are_in_no_difference(tmp_path: Path) -> None:
    file = tmp_path / "metal-gpu-proxy.env"
    file.write_text(BLOCK)
    assert "blacklist nouveau" in carried_out(tmp_path, play(file), "--diff")
    file.write_text(BLOCK)
    printed = carried_out(tmp_path, play(file, preflight_block_secret=True), "--diff", "-vvv")
    assert "blacklist nouveau" not in printed
    assert not file.exists()


def carried_out(folder: Path, plays: list[dict[str, object]], *options: str) -> str:
    """Return what a playbook prints."""
    playbook = folder / "play.yml"
    playbook.write_text(yaml.safe_dump(plays))
    command = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [command, "-i", "localhost,", playbook, *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_LOCAL_TEMP": str(folder), "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
