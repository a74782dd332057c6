# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command with which CRI-O checks a new drop-in, run by a real shell."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[3]
VARS = ROOT / "roles" / "nvidia_container_runtime" / "vars" / "main.yml"
FOLDER = "/etc/crio/crio.conf.d"
# It fails as CRI-O does for a file that it cannot read, and shows what it was given.
CRIO = """#!/bin/sh
for file in "$2"/*; do
  cat "$file" >> "$0.seen" || { echo "level=fatal msg=no file $file" >&2; exit 1; }
done
"""


def test_new_file_is_checked_with_the_others_also_behind_links(tmp_path: Path) -> None:
    folder, shared = tmp_path / "crio.conf.d", tmp_path / "shared"
    for one in (folder, shared):
        one.mkdir()
    (folder / "10-crio.conf").write_text("plain\n")
    (shared / "site.conf").write_text("linked\n")
    (folder / "20-site.conf").symlink_to("../shared/site.conf")
    new, crio = tmp_path / "new", tmp_path / "crio"
    new.write_text("ours\n")
    crio.write_text(CRIO)
    crio.chmod(0o755)
    command = yaml.safe_load(VARS.read_text())["__nvidia_container_runtime_validate_crio"]
    script = command[2].replace(FOLDER, str(folder))
    argv = [*command[:2], script, str(crio), str(new), "99-metal-gpu.conf"]
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert (tmp_path / "crio.seen").read_text().split() == ["plain", "linked", "ours"]
    (shared / "site.conf").unlink()
    run = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "20-site.conf" in run.stderr
