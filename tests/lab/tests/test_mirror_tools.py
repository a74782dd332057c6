# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from metal_lab import mirror_tools
from metal_lab.description import Description

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
        mirror_tools.build(Description(()))


def test_dnf_has_its_own_python_and_writes_into_the_home_of_its_user(tmp_path):
    """As root, it would write into the cache, the logs and the database of this machine."""
    system = tmp_path / "system/usr/lib/x86_64-linux-gnu"
    system.mkdir(parents=True)
    loader = system / "ld-linux-x86-64.so.2"
    loader.write_text('#!/bin/sh\nprintf "%s\\n" "$PYTHONHOME" "$@"\n')
    loader.chmod(0o755)
    (tmp_path / "bin").mkdir()
    rootfs = tmp_path / "rootfs.tar"
    subprocess.run(["tar", "-C", tmp_path / "system", "-cf", rootfs, "./usr"], check=True)
    mirror_tools.write_dnf(rootfs, tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    command = [tmp_path / "bin/dnf", "reposync", "a b"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    usr = f"{tmp_path}/bin/../dnf/usr"
    root = f"--installroot={tmp_path}/home/.cache/dnf-root"
    library = ["--library-path", f"{usr}/lib/x86_64-linux-gnu"]
    plugins = f"--setopt=pluginpath={usr}/lib/python3/dist-packages/dnf-plugins"
    program = [f"{usr}/bin/python3", f"{usr}/bin/dnf"]
    no_plugin = "--disableplugin=generate_completion_cache"
    words = [*library, *program, root, plugins, no_plugin, "reposync", "a b"]
    assert said.stdout.splitlines() == [usr, *words]
    assert Path(root.partition("=")[2]).is_dir()
