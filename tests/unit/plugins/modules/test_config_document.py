# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node's part: reads and replaces files. The tests of the action cover the edits."""

from __future__ import annotations

import base64
import errno
import fcntl
import hashlib
import json
import os
import resource
import shutil
import stat
import sys
import threading
from contextlib import contextmanager

import pytest

from ansible_collections.metal.gpu.plugins.modules import config_document
from ansible_collections.metal.gpu.tests.unit.support.module_args import patch_module_args


def encode(content):
    return None if content is None else base64.b64encode(content).decode()


def digest(content):
    return None if content is None else hashlib.sha256(content).hexdigest()


@pytest.fixture
def node(tmp_path):
    (tmp_path / "etc").mkdir()
    return tmp_path


@pytest.fixture
def call(node, capsys):
    def run(path="etc/daemon.json", **options):
        args = {"path": str(node / path), "history_dir": str(node / "var/lib/history"), **options}
        with patch_module_args(args), pytest.raises(SystemExit):
            config_document.main()
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def write(call):
    def run(before, after, *, path="etc/daemon.json", **request):
        names = ("history_dir", "aside", "actor")
        options = {name: request.pop(name) for name in names if name in request}
        request = {
            "expected": digest(before),
            "content": encode(after),
            "history_during": "during",
            "history_after": "after",
            "directories": [],
            "validate": None,
            "backup": False,
            "mode": "0644",
            "owner": None,
            "group": None,
            **request,
        }
        return call(path, _write=json.dumps(request), **options)

    return run


def files(node):
    return sorted(str(path.relative_to(node)) for path in node.rglob("*") if not path.is_dir())


def history(node):
    [path] = (node / "var/lib/history").glob("*.json")
    return path.read_text()


def backups(node):
    return sorted((node / "var/lib/history").glob("*.orig*"))


def test_reading_changes_nothing(call, node):
    (node / "etc/daemon.json").write_bytes(b"\xff\r\n")
    result = call()
    assert (result["content"], result["history"]) == (encode(b"\xff\r\n"), None)
    assert (result["file"], result["missing_directories"]) == (str(node / "etc/daemon.json"), [])
    assert result["changed"] is False
    assert files(node) == ["etc/daemon.json"]


def test_reading_a_missing_file_tells_the_missing_directories(call, node):
    result = call("etc/a/b/c.toml")
    assert result["content"] is None
    assert result["missing_directories"] == [str(node / "etc/a"), str(node / "etc/a/b")]


def test_only_regular_files_are_read(call, node):
    os.mkfifo(node / "etc/pipe")  # reading one would wait for ever
    for name, what in (("etc", "a directory, not a file"), ("etc/pipe", "not a regular file")):
        assert call(name)["msg"] == f"{node}/{name} is {what}. Move it away"


def test_replacing_keeps_mode_and_backs_up(write, call, node):
    path = node / "etc/daemon.json"
    path.write_bytes(b"old")
    path.chmod(0o640)
    result = write(b"old", b"new", backup=True)
    assert result["changed"] is True
    [backup] = backups(node)
    assert result["backup_file"] == str(backup)
    assert backup.name == f"{str(path).replace('/', '%2F')}@metal.gpu.orig"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert backup.read_bytes() == b"old"
    assert stat.S_IMODE(backup.stat().st_mode) == 0o640
    assert len(files(node)) == 3  # nothing temporary beside the file, the backup and the history
    # The kubelet reads every file in its folder of static pods, CRI-O every one in crio.conf.d.
    assert list((node / "etc").iterdir()) == [path]
    assert history(node) == call()["history"] == "after"
    [kept] = (node / "var/lib/history").glob("*.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


@contextmanager
def umask(mask):
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


@pytest.fixture
def modes(node, monkeypatch):
    """The modes that each file has had, as seen before and after whatever can change one."""
    seen = {}

    def look():
        for path in node.rglob("*"):
            if path.is_file():
                seen.setdefault(path.name, set()).add(stat.S_IMODE(path.stat().st_mode))

    def watched(function):
        def call(*args, **kwargs):
            look()
            result = function(*args, **kwargs)
            look()
            return result

        return call

    for module, names in {
        os: ("chmod", "chown", "fsync", "rename", "replace", "unlink"),
        shutil: ("copystat", "copyfile"),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, watched(getattr(module, name)))
    return seen


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664], ids=oct)
@pytest.mark.parametrize("exists", [True, False], ids=["replaced", "new"])
def test_other_users_can_never_read_a_new_file(write, node, modes, mode, exists):
    path = node / "etc/daemon.json"
    if exists:
        path.write_bytes(b"old")
        path.chmod(mode)
    modes.clear()
    with umask(0):
        write(b"old" if exists else None, b"new", backup=True, mode=oct(mode)[2:])
    assert path.name in modes
    assert any(name.endswith("%2Fdaemon.json@metal.gpu.orig") for name in modes) is exists
    states = [name for name in modes if name.endswith("%2Fdaemon.json@metal.gpu.json")]
    assert states
    for name, found in modes.items():
        allowed = 0o600 if name in states else mode
        assert all(one & ~allowed == 0 for one in found), (name, found)


def test_extended_attributes_stay(write, node):
    path = node / "etc/daemon.json"
    path.write_bytes(b"old")
    os.setxattr(path, "user.label", b"admin")
    write(b"old", b"new", backup=True)
    for each in (path, *backups(node)):
        assert os.getxattr(each, "user.label") == b"admin"


def test_owner_and_group_stay_and_are_given_to_new_files(write, node):
    me = (os.getuid(), os.getgid())
    names = {"owner": str(me[0]), "group": str(me[1])}
    write(None, b"new", **names)
    write(b"new", b"newer", owner="nobody", group="nobody")  # of an existing file: stays
    found = (node / "etc/daemon.json").stat()
    assert (found.st_uid, found.st_gid) == me


def test_directories_of_the_history_are_for_root_only(write, node):
    with umask(0):
        write(None, b"new")
    for name in ("var", "var/lib", "var/lib/history"):
        assert stat.S_IMODE((node / name).stat().st_mode) == 0o700


def test_creating_and_removing_with_directories(write, node):
    old = os.umask(0o077)
    try:
        directories = [str(node / "etc/a"), str(node / "etc/a/b")]
        write(None, b"new", path="etc/a/b/c.toml", directories=directories)
    finally:
        os.umask(old)
    path = node / "etc/a/b/c.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    write(b"new", None, path="etc/a/b/c.toml", directories=directories, history_after=None)
    assert sorted(node.rglob("*")) == [node / "etc", node / "var", node / "var/lib"]


def test_a_directory_with_other_files_stays(write, node):
    write(None, b"new", path="etc/a/c.toml", directories=[str(node / "etc/a")])
    (node / "etc/a/theirs").touch()
    write(b"new", None, path="etc/a/c.toml", directories=[str(node / "etc/a")], history_after=None)
    assert files(node) == ["etc/a/theirs"]


@pytest.mark.parametrize("backup", [b"old", b"older"], ids=["equal", "different"])
def test_restoring_deletes_the_history_and_an_equal_backup(write, node, backup):
    (node / "etc/daemon.json").write_bytes(b"old")
    write(b"old", b"new", backup=True)
    [path] = backups(node)
    path.write_bytes(backup)
    write(b"new", b"old", history_after=None)
    assert (node / "var/lib/history").exists() is (backup != b"old")
    assert len(files(node)) == (1 if backup == b"old" else 2)


def test_only_the_directory_of_the_history_is_removed(write, node):
    """An empty directory above it may be the admin's."""
    (node / "var/lib").mkdir(parents=True)
    write(None, b"new")
    write(b"new", None, history_after=None)
    assert list((node / "var").iterdir()) == [node / "var/lib"]
    assert list((node / "var/lib").iterdir()) == []


@pytest.mark.parametrize("other", [None, "metal-gpu/packages/x.json", "metal-gpu/x"])
def test_the_collections_own_directory_is_removed_when_it_is_empty(write, node, monkeypatch, other):
    default = node / "var/lib/metal-gpu/config_document"
    monkeypatch.setattr(config_document.document_history_files, "DIRECTORY", str(default))
    if other:
        (node / "var/lib" / other).parent.mkdir(parents=True)
        (node / "var/lib" / other).touch()
    write(None, b"new", history_dir=str(default))
    assert default.exists()
    write(b"new", None, history_after=None, history_dir=str(default))
    assert not default.exists()
    assert files(node) == ([f"var/lib/{other}"] if other else [])
    assert (node / "var/lib").exists()
    assert (node / "var/lib/metal-gpu").exists() is bool(other)


def test_an_earlier_backup_stays(write, node):
    path = node / "etc/daemon.json"
    beside = node / "etc/daemon.json.metal.gpu-orig"
    path.write_bytes(b"old")
    beside.write_bytes(b"of the admin")
    write(b"old", b"new", backup=True)
    write(b"new", b"theirs", history_after=None)
    first = backups(node)
    result = write(b"theirs", b"newer", backup=True)
    assert [each.read_bytes() for each in backups(node)] == [b"old", b"theirs"]
    assert {each.name[-5:] for each in first} == {".orig"}
    assert result["backup_file"].endswith(".orig-2")
    write(b"newer", b"theirs", history_after=None)
    assert [each.read_bytes() for each in backups(node)] == [b"old"]
    assert beside.read_bytes() == b"of the admin"


def test_a_file_with_edits_of_another_actor_is_copied_once(write, node):
    (node / "etc/daemon.json").write_bytes(b"old")
    write(b"old", b"old a", backup=True)
    write(b"old a", b"old a b", actor="b", backup=True)
    write(b"old a b", b"old b", history_after=None)
    result = write(b"old b", b"old b a", backup=True)
    assert "backup_file" not in result
    assert sorted(each.read_bytes() for each in backups(node)) == [b"old", b"old a"]


def test_a_failure_leaves_an_earlier_backup(write, node, monkeypatch):
    path = node / "etc/daemon.json"
    path.write_bytes(b"old")
    write(b"old", b"new", backup=True)
    write(b"new", b"theirs", history_after=None)
    found = {name: (node / name).read_bytes() for name in files(node)}
    real = os.rename

    def refuse(source, target):
        if str(target) == str(path):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        real(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    assert write(b"theirs", b"newer", backup=True)["failed"]
    assert {name: (node / name).read_bytes() for name in files(node)} == found


def test_deleting_the_history_does_not_change_the_file(write, node):
    path = node / "etc/daemon.json"
    path.write_bytes(b"old")
    before = path.stat()
    assert write(b"old", b"old", history_after=None)["changed"] is False
    assert path.stat() == before


def test_a_link_stays_and_its_target_is_replaced(write, call, node):
    (node / "real").write_bytes(b"old")
    (node / "etc/daemon.json").symlink_to("../real")
    write(b"old", b"new")
    assert (node / "etc/daemon.json").is_symlink()
    assert (node / "real").read_bytes() == b"new"
    assert call("real")["history"] == "after"  # one history for both names


VALIDATORS = {
    "fails": ["sys.exit(f'{sys.argv[1]}: no')", "(exit code 1): PATH: no"],
    "sees-the-new-file": ["assert open(sys.argv[1]).read() == 'new'", None],
}


@pytest.mark.parametrize(("code", "failure"), VALIDATORS.values(), ids=VALIDATORS)
def test_validation_comes_before_everything(write, node, code, failure):
    path = node / "etc/a/daemon.json"
    command = [sys.executable, "-c", f"import sys; {code}", "%s"]
    result = write(
        None, b"new", path="etc/a/daemon.json", validate=command, directories=[str(path.parent)]
    )
    if failure:
        assert result["msg"].endswith(
            f"rejects the new {path} " + failure.replace("PATH", str(path))
        )
        assert list(node.rglob("*")) == [node / "etc"]
    else:
        assert path.read_bytes() == b"new"


@pytest.mark.parametrize("after", [b"new", None], ids=["replace", "remove"])
@pytest.mark.parametrize("theirs", [b"theirs", None], ids=["changed", "removed"])
def test_a_change_by_another_process_is_not_overwritten(write, node, theirs, after):
    if theirs:
        (node / "etc/daemon.json").write_bytes(theirs)
    result = write(b"old", after)
    assert f"another process changed {node}/etc/daemon.json" in result["msg"]
    assert files(node) == (["etc/daemon.json"] if theirs else [])


def test_the_history_covers_both_files_while_replacing(write, node, monkeypatch):
    (node / "etc/daemon.json").write_bytes(b"old")

    def cut_off(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(config_document.os, "rename", cut_off)
    with pytest.raises(KeyboardInterrupt):
        write(b"old", b"new")
    assert history(node) == "during"
    assert (node / "etc/daemon.json").read_bytes() == b"old"
    assert len(files(node)) == 2


@pytest.mark.parametrize("former", ["before", None], ids=["second-change", "first-change"])
@pytest.mark.parametrize("after", [b"new", None], ids=["replace", "remove"])
def test_an_error_of_the_system_leaves_nothing_behind(write, node, monkeypatch, former, after):
    """For example a security module, which cannot be checked beforehand."""
    path = node / "etc/daemon.json"
    if former:
        write(None, b"old", history_after=former)
    else:
        path.write_bytes(b"old")
    found = {name: (node / name).read_bytes() for name in files(node)}

    def refuse(real):
        def call(source, *rest):
            target = str(rest[0] if rest else source)
            if target == str(path):
                raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
            return real(source, *rest)

        return call

    monkeypatch.setattr(os, "rename", refuse(os.rename))
    monkeypatch.setattr(os, "unlink", refuse(os.unlink))
    result = write(b"old", after, backup=True)
    assert result["msg"] == f"cannot write {path}: Operation not permitted"
    assert {name: (node / name).read_bytes() for name in files(node)} == found
    assert (node / "var").exists() is bool(former)


def test_two_runs_at_once_do_not_lose_an_edit(write, node, monkeypatch):
    """Another run holds the lock of the directory; this one waits, and then sees its edit."""
    path = node / "etc/daemon.json"
    path.write_bytes(b"old")
    directory = os.open(node / "etc", os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    real, asked = fcntl.flock, threading.Event()

    def ask(*args):
        asked.set()
        real(*args)

    def finish_the_other_run():
        asked.wait()
        path.write_bytes(b"theirs")
        os.close(directory)

    monkeypatch.setattr(fcntl, "flock", ask)
    other = threading.Thread(target=finish_the_other_run, daemon=True)
    other.start()
    result = write(b"old", b"new")
    assert "another process changed" in result["msg"]
    assert path.read_bytes() == b"theirs"


def test_a_password_in_the_output_of_a_validator_is_hidden(write):
    code = "import sys; sys.exit('bad line: registry_password = \"hunter2\"')"
    result = write(None, b"new", validate=[sys.executable, "-c", code, "%s"])
    assert "bad line" in result["msg"]
    assert "hunter2" not in json.dumps(result)


@contextmanager
def room(size):
    """Limit the size of files. Not for long, because pytest also writes files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    ("before", "after", "history_during", "unwritten"),
    [
        pytest.param(b"old", b"new" * 100, "", "etc/daemon.json:", id="the file"),
        pytest.param(b"old" * 100, b"new", "", "daemon.json@metal.gpu.orig:", id="the backup"),
        pytest.param(
            b"old", b"new", "during" * 100, "daemon.json@metal.gpu.json:", id="the history"
        ),
    ],
)
def test_a_full_disk_changes_nothing(write, node, before, after, history_during, unwritten):
    (node / "etc/daemon.json").write_bytes(before)
    with room(100):
        result = write(before, after, history_during=history_during, backup=True)
    assert result["failed"]
    assert result["msg"].startswith("cannot write /")
    assert unwritten in result["msg"]
    assert "File too large" in result["msg"]
    assert files(node) == ["etc/daemon.json"]
    assert (node / "etc/daemon.json").read_bytes() == before


def test_actors_have_separate_histories(write, call):
    write(None, b"new")
    assert call(actor="another/actor")["history"] is None


def test_new_file_is_aside_where_a_program_reads_every_file(write, node):
    """CRI-O reads every file below crio.conf.d. A crash must not leave an unfinished one there."""
    folder = node / "etc/crio.conf.d"
    folder.mkdir()
    seen = node / "seen"
    validate = ["sh", "-c", 'echo "$1" > "$2"; ls -A "$3" >> "$2"', "sh", "%s", seen, folder]
    options = {"validate": [str(word) for word in validate], "aside": str(node / "etc")}
    result = write(None, b"new", path="etc/crio.conf.d/99-ours.conf", **options)
    assert result["changed"] is True
    candidate, *beside = seen.read_text().splitlines()
    assert candidate.startswith(f"{node}/etc/.metal-gpu-")
    assert beside == []
    assert [path.name for path in folder.iterdir()] == ["99-ours.conf"]
    assert [path.name for path in (node / "etc").iterdir()] == ["crio.conf.d"]


def test_folder_aside_that_does_not_exist_changes_nothing(write, node):
    result = write(None, b"new", aside=str(node / "nowhere"))
    assert result["msg"].startswith("cannot write ")
    assert files(node) == []


def test_what_a_killed_run_left_aside_goes(write, call, node):
    (node / "etc/crio.conf.d").mkdir(parents=True, exist_ok=True)
    aside = node / "etc"
    path = "etc/crio.conf.d/99-ours.conf"
    seen = node / "seen"
    validate = ["sh", "-c", 'cp "$1" "$1.copy"; echo "$1" > "$2"', "sh", "%s", str(seen)]
    write(None, b"new", path=path, aside=str(aside), validate=validate)
    left = [one.name for one in aside.iterdir() if one.name.startswith(".metal-gpu-")]
    assert len(left) == 1  # as if the process had been killed
    call(path, aside=str(aside))
    assert [one.name for one in aside.iterdir()] == ["crio.conf.d"]
