# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess

import pytest

from metal_lab import mirror_tools

PROGRAM = '#!/bin/sh\necho "$1" "$LD_LIBRARY_PATH"\n'


def test_commands_find_their_libraries_from_anywhere(tmp_path):
    for name in mirror_tools.COMMANDS:
        path = tmp_path / "root/usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM)
        path.chmod(0o755)
    mirror_tools.write_commands(tmp_path / "bin")
    for name in mirror_tools.COMMANDS:
        link = tmp_path / f"link-{name}"
        link.symlink_to(tmp_path / "bin" / name)
        for command in (tmp_path / "bin" / name, link):
            said = subprocess.run([command, "a b"], check=True, capture_output=True, text=True)
            assert said.stdout.startswith("a b ")
            assert f"{tmp_path}/bin/../root/usr/lib/x86_64-linux-gnu" in said.stdout


def test_machine_that_lacks_a_program_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="this machine lacks curl, gpg, perl, wget, xz"):
        mirror_tools.build()
