# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines of known_hosts, compared with what ssh-keygen makes of them."""

from __future__ import annotations

import base64
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from metal_gpu.ssh import known_hosts

ROOT = Path(__file__).parents[3]
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIJ1y6sJ0rOmC8n3bmPz1b1Q6Jb6dkC2u1Tn1Jm9iSxQp"
BLOB = base64.b64decode(KEY)


def write(folder: Path, *lines: str) -> Path:
    path = folder / "known_hosts"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.mark.parametrize(
    ("patterns", "address", "port", "is_known"),
    [
        ("gpu-1", "gpu-1", 22, True),
        ("GPU-1", "gpu-1", 22, True),
        ("gpu-1,10.0.0.7", "10.0.0.7", 22, True),
        ("gpu-*", "gpu-17", 22, True),
        ("gpu-?", "gpu-17", 22, False),
        ("gpu-*,!gpu-17", "gpu-17", 22, False),
        ("[gpu-1]:2222", "gpu-1", 2222, True),
        ("[gpu-1]:2222", "gpu-1", 22, False),
        ("gpu-1", "gpu-1", 2222, True),  # as ssh, which looks without the port then
        ("fe80::1", "fe80::1", 22, True),
        ("|1|broken", "gpu-1", 22, False),
    ],
)
def test_patterns(tmp_path, patterns, address, port, is_known):
    entries = known_hosts.read([write(tmp_path, f"{patterns} ssh-ed25519 {KEY} comment")])
    assert bool(known_hosts.find(entries, known_hosts.names_of(address, port))) is is_known


def test_lines_that_say_nothing(tmp_path):
    lines = (
        "# comment",
        "",
        "gpu-1",
        f"gpu-1 ssh-ed25519 {KEY[:-3]}!",
        f"@cert-authority * x {KEY}",
    )
    entries = known_hosts.read([write(tmp_path, *lines), tmp_path / "none"])
    assert known_hosts.find(entries, ["gpu-1"]) == []


def test_line_and_marker_are_kept(tmp_path):
    path = write(tmp_path, "# comment", f"@revoked gpu-1 ssh-ed25519 {KEY}")
    [entry] = known_hosts.read([path])
    assert (entry.line, entry.marker, entry.blob) == (2, "@revoked", BLOB)


@pytest.mark.parametrize("hashed", [False, True])
def test_added_key_is_found_by_ssh_keygen(tmp_path, hashed):
    path = write(tmp_path, f"other ssh-ed25519 {KEY}")
    path.write_text(path.read_text().rstrip("\n"))  # somebody's editor
    path.chmod(0o644)
    known_hosts.add(path, "[gpu-1]:2222", "ssh-ed25519", BLOB, hashed=hashed)
    command = ["ssh-keygen", "-l", "-f", path, "-F"]
    for name in ("[gpu-1]:2222", "other"):
        found = subprocess.run([*command, name], capture_output=True, text=True, check=True)
        assert known_hosts.fingerprint(BLOB) in found.stdout
    assert ("gpu-1" in path.read_text()) is not hashed
    assert path.stat().st_mode & 0o777 == 0o644
    assert known_hosts.find(known_hosts.read([path]), ["[gpu-1]:2222"])
    before = path.read_text()
    known_hosts.add(path, "[gpu-1]:2222", "ssh-ed25519", BLOB, hashed=hashed)
    assert path.read_text() == before


def test_names_hashed_by_ssh_keygen_are_found(tmp_path):
    path = write(tmp_path, f"gpu-1,10.0.0.7 ssh-ed25519 {KEY}")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", path], check=True, capture_output=True)
    assert "gpu-1" not in path.read_text()
    assert known_hosts.find(known_hosts.read([path]), ["10.0.0.7"])
    assert not known_hosts.find(known_hosts.read([path]), ["10.0.0.8"])


def test_full_disk_leaves_the_file_as_it_is(tmp_path, monkeypatch):
    path = write(tmp_path, f"other ssh-ed25519 {KEY}")
    before = path.read_bytes()

    def full(_handle):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        known_hosts.add(path, "gpu-1", "ssh-ed25519", BLOB, hashed=False)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir() if "known_hosts." in one.name] == []


def test_link_stays_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real" / "known_hosts")
    known_hosts.add(link, "gpu-1", "ssh-ed25519", BLOB, hashed=False)
    assert link.is_symlink()
    assert (tmp_path / "real" / "known_hosts").read_text() == f"gpu-1 ssh-ed25519 {KEY}\n"


def test_device_is_not_replaced_by_a_file(tmp_path):
    """A named pipe stands for it, which needs no root."""
    device = tmp_path / "null"
    os.mkfifo(device)
    with pytest.raises(OSError, match="no file in which a host key can be kept"):
        known_hosts.add(device, "gpu-1", "ssh-ed25519", BLOB, hashed=False)
    assert device.is_fifo()


def test_file_keeps_its_owner(tmp_path, monkeypatch):
    """With sudo, the file of the user must not become one of root."""
    path = write(tmp_path, f"other ssh-ed25519 {KEY}")
    asked = []
    monkeypatch.setattr(os, "fchown", lambda _file, user, group: asked.append((user, group)))
    known_hosts.add(path, "gpu-1", "ssh-ed25519", BLOB, hashed=False)
    assert asked == [(os.getuid(), os.getgid())]


def test_another_program_adds_a_key_at_the_same_time(tmp_path):
    """It has the lock, and replaces the file. So the key goes into the new file."""
    path = write(tmp_path, f"first ssh-ed25519 {KEY}")
    with path.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        arguments = (path, "gpu-1", "ssh-ed25519", BLOB)
        adding = threading.Thread(target=known_hosts.add, args=arguments, kwargs={"hashed": False})
        adding.start()
        (tmp_path / "new").write_text(f"{path.read_text()}second ssh-ed25519 {KEY}\n")
        (tmp_path / "new").replace(path)
    adding.join(10)
    names = [line.split()[0] for line in path.read_text().splitlines()]
    assert names == ["first", "second", "gpu-1"]


def test_two_programs(tmp_path):
    path = tmp_path / "new" / "known_hosts"
    code = (
        "import sys\nfrom pathlib import Path\nfrom metal_gpu.ssh import known_hosts\n"
        "for number in range(20):\n"
        "    known_hosts.add(Path(sys.argv[1]), f'{sys.argv[2]}-{number}', 'ssh-ed25519',"
        f" {BLOB!r}, hashed=False)\n"
    )
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / '.ansible' / 'collections'}"}
    programs = [
        subprocess.Popen([sys.executable, "-c", code, path, name], env=environment) for name in "ab"
    ]
    assert [one.wait() for one in programs] == [0, 0]
    names = sorted(line.split()[0] for line in path.read_text().splitlines())
    assert names == sorted(f"{name}-{number}" for name in "ab" for number in range(20))
    assert path.stat().st_mode & 0o777 == 0o600
    assert [*path.parent.iterdir()] == [path]


def test_lock_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setattr(known_hosts, "_LOCK_S", 0.05)
    path = write(tmp_path)
    with path.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another program has locked the file"):
            known_hosts.add(path, "gpu-1", "ssh-ed25519", BLOB, hashed=False)
    assert path.read_text() == ""


def test_read_only_file_stays_as_it_is(tmp_path):
    path = write(tmp_path, f"other ssh-ed25519 {KEY}")
    path.chmod(0o444)
    with pytest.raises(PermissionError):
        known_hosts.add(path, "gpu-1", "ssh-ed25519", BLOB, hashed=False)
    assert "gpu-1" not in path.read_text()
