# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The observation as one text for `python3 -`."""

from __future__ import annotations

import ast
import base64
import json
import re
import subprocess
import sys
import zlib
from contextlib import nullcontext
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components import planning
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from metal_gpu import node_program
from metal_gpu.node_program import BEGIN, END, NotObserved, PythonMissing


def program():
    return node_program.text(*(tuple(planning.OBSERVED[key]) for key in planning.OBSERVED))


def run(command, text, cwd=None, **environment):
    return subprocess.run(
        ["/bin/sh", "-c", command],
        input=text,
        capture_output=True,
        check=False,
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


@pytest.fixture(scope="module")
def answered():
    return run(node_program.command(sys.executable), program())


def test_real_machine_is_observed(answered):
    node = interpret(node_program.read(answered.stdout, answered.stderr))
    assert node["kernel"]["release"]
    assert answered.stderr == b""


def test_noise_around_the_answer_does_not_matter(answered):
    stdout = b"Welcome!\n{}\n" + answered.stdout + b"\nbye\n"
    assert node_program.read(stdout, b"") == node_program.read(answered.stdout, b"")


def test_nothing_is_left_and_no_module_of_the_directory_counts(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "json.py").write_text("raise SystemExit('of the directory')")
    found = run(node_program.command(sys.executable), program(), folder, PYTHONPATH=str(folder))
    assert node_program.read(found.stdout, found.stderr)
    assert [path.name for path in folder.iterdir()] == ["json.py"]


def test_head_is_old_python_too():
    """Nothing newer than Python 2.7 outside of the text that is compiled later."""
    head = program().decode("ascii")
    assert not re.search(r"\bf['\"]|:=|print ", re.sub(r'"[A-Za-z0-9+/=]{1000,}"', '""', head))
    ast.parse(head, feature_version=(3, 4))


OLD = """#!/bin/sh
# Answers as Python 3.6 does: it cannot run the check of the version, and runs the head.
[ "$2" = -c ] && exit 1
exec {python} -E -s -c "import sys
sys.version_info = (3, 6, 8, 'final', 0)
exec(sys.stdin.read())"
"""


def test_old_python_says_that_it_is(tmp_path):
    old = tmp_path / "python3"
    old.write_text(OLD.format(python=sys.executable))
    old.chmod(0o755)
    found = run(node_program.command(str(old)), program(), PATH=str(tmp_path))
    with pytest.raises(PythonMissing, match=r"which is Python 3\.6\.8"):
        node_program.read(found.stdout, found.stderr)


# Those that pyenv has here, as 3.6.15. Without pyenv, there are only the stand-ins.
_VERSIONS = Path.home() / ".pyenv" / "versions"
REAL_OLD = [path.name for path in _VERSIONS.glob("*") if re.match(r"(2\.7|3\.[678])\.", path.name)]


def test_real_old_pythons_say_that_they_are(tmp_path):
    """In one test, because a test without a parameter would be skipped."""
    assert REAL_OLD or not _VERSIONS.exists()
    for version in REAL_OLD:
        old = str(_VERSIONS / version / "bin" / "python")
        found = run(node_program.command(old), program(), PATH=str(tmp_path))
        with pytest.raises(PythonMissing, match=re.escape(f"{old}, which is Python {version}")):
            node_program.read(found.stdout, found.stderr)


def test_program_ends_without_a_reader(monkeypatch):
    """As after Ctrl-C: the connection is gone, and what hangs ends at the limit."""
    monkeypatch.setattr(node_program, "TIME_LIMIT_S", 0.0)
    node_program.text.cache_clear()
    text = node_program.text((), ())
    node_program.text.cache_clear()
    with subprocess.Popen(
        ["/bin/sh", "-c", node_program.command(sys.executable)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        running.stdout.close()
        _none, errors = running.communicate(text)
    assert (running.returncode, errors) == (0, b"")


def test_variables_of_the_login_shell_do_not_count(tmp_path):
    """Such as those of an environment with another Python, which this one cannot start with."""
    variables = {"PYTHONHOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit(1)")
    found = run(node_program.command(sys.executable), program(), **variables)
    assert node_program.read(found.stdout, found.stderr)


def test_variables_and_directory_do_not_count_for_an_old_python(tmp_path):
    old = tmp_path / "python3"
    old.write_text(OLD.format(python=sys.executable))
    old.chmod(0o755)
    (tmp_path / "json.py").write_text("raise SystemExit('of the directory')")
    variables = {"PATH": str(tmp_path), "PYTHONHOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    found = run(node_program.command(str(old)), program(), tmp_path, **variables)
    with pytest.raises(PythonMissing, match=r"which is Python 3\.6\.8"):
        node_program.read(found.stdout, found.stderr)


def test_newer_python_beside_an_old_one_is_used(tmp_path):
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python3").chmod(0o755)
    (tmp_path / "python3.11").symlink_to(sys.executable)
    found = run(node_program.command(), program(), PATH=f"{tmp_path}:/usr/bin:/bin")
    assert node_program.read(found.stdout, found.stderr)


def test_no_python(tmp_path):
    (tmp_path / "cat").symlink_to("/bin/cat")
    found = run(node_program.command(), program(), PATH=str(tmp_path))
    if b"libexec" not in found.stdout:  # Red Hat's platform-python is not in the PATH
        with pytest.raises(PythonMissing, match=r"^no Python$"):
            node_program.read(found.stdout, found.stderr)


def test_time_limit(monkeypatch):
    """A program that hangs ends with an answer."""
    monkeypatch.setattr(node_program, "TIME_LIMIT_S", 0.0)
    node_program.text.cache_clear()
    found = run(node_program.command(sys.executable), node_program.text((), ()))
    node_program.text.cache_clear()
    with pytest.raises(NotObserved, match="did not end within 0 s"):
        node_program.read(found.stdout, found.stderr)


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        (b"", b"", "did not run the program, and printed nothing"),
        (b"% Invalid input\n", b"", "its last words: % Invalid input"),
        (b"", b"'sh' is not recognized\n", "its last words: 'sh' is not recognized"),
        (f"{BEGIN}\n{{".encode(), b"", "not complete"),
        (f"{BEGIN}\n{{\n{END}".encode(), b"", "not readable"),
        (f'{BEGIN}\n{{"error": "OSError: x"}}\n{END}'.encode(), b"", "OSError: x"),
    ],
)
def test_answers_that_are_none(stdout, stderr, expected):
    with pytest.raises(NotObserved, match=re.escape(expected)):
        node_program.read(stdout, stderr)


def test_error_of_the_program_names_its_place(monkeypatch):
    monkeypatch.setattr(node_program, "_ROOTS", node_program._ROOTS[1:])
    for cached in (node_program.sources, node_program.text):
        cached.cache_clear()
    found = run(node_program.command(sys.executable), node_program.text((), ()))
    for cached in (node_program.sources, node_program.text):
        cached.cache_clear()
    with pytest.raises(NotObserved, match=r"ModuleNotFoundError.*in observe"):
        node_program.read(found.stdout, found.stderr)


def test_only_the_modules_of_the_observation_travel():
    names = node_program.sources()
    assert all(".module_utils." in name for name in names)
    assert not any(".cluster." in name or ".verdict." in name for name in names)
    assert len(program()) < 200_000


def test_small_answer_that_is_huge_when_unpacked(monkeypatch):
    monkeypatch.setattr(node_program, "_MOST", 2**20)
    packed = base64.b64encode(zlib.compress(b"[" + b" " * 2**21 + b"]")).decode()
    answer = f"{BEGIN}\n{json.dumps({'raw': packed})}\n{END}\n".encode()
    with pytest.raises(NotObserved, match="has more than 1 MiB"):
        node_program.read(answer, b"")


@pytest.mark.parametrize("sign", ["{}", "[]", "1", '"a"', '"\\\\"', r'"\""', '"[{,"'])
@pytest.mark.parametrize("more", [-2, 2])
def test_small_answer_of_very_many_values(sign, more):
    """Each takes some hundred bytes of memory here."""
    values = ",".join([sign] * (node_program._VALUES // (1 if sign == "1" else 2) + more))
    raw = f"[{values}]".encode()
    packed = base64.b64encode(zlib.compress(raw)).decode()
    answer = f"{BEGIN}\n{json.dumps({'raw': packed})}\n{END}\n".encode()
    with pytest.raises(NotObserved, match="more than 100000 values") if more > 0 else nullcontext():
        node_program.read(answer, b"")


@pytest.mark.parametrize("words", ["5", "[1]", "{}", '{"raw": 5}', '{"raw": "eJw="}', "[" * 99_999])
def test_malformed_answers(words):
    with pytest.raises(NotObserved, match="is not readable"):
        node_program.read(f"{BEGIN}\n{words}\n{END}\n".encode(), b"")
