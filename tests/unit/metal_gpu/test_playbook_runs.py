# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Real runs of ansible-playbook on this machine, with and without a terminal."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from ansible_collections.metal.gpu.tests.unit.support import command, small_collection

COLUMNS = 80
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_COLOUR = re.compile(r"\x1b\[[0-9;]*[34]\d(?:;\d+)*m")


class Small:
    """The small playbook with some hosts."""

    def __init__(self, folder, **hosts):
        self.folder = folder
        given = {name.replace("_", "-"): values for name, values in hosts.items()}
        self.env = command.environment(**small_collection.plant(folder, given))
        beside = str(Path(sys.executable).parent)
        self.env["PATH"] = os.pathsep.join([beside, os.environ["PATH"]])

    def run(self, *arguments, **env):
        return subprocess.run(
            [sys.executable, "-m", "metal_gpu", "small", *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            env={**self.env, **env},
            timeout=300,
        )

    def on_terminal(self, *arguments, **env):
        return pexpect.spawn(
            sys.executable,
            ["-m", "metal_gpu", "small", *arguments],
            cwd=str(self.folder),
            env={**self.env, "TERM": "xterm-256color", **env},
            dimensions=(30, COLUMNS),
            encoding="utf-8",
            timeout=300,
        )

    def logs(self):
        return sorted((self.folder / "state" / "metal-gpu" / "logs").iterdir())

    def left(self):
        """Return what a run has left in the folder for temporary files."""
        return list((self.folder / "temporary").iterdir())


def ended(child):
    """Return everything that was printed, and the exit code."""
    text = child.read()
    child.close()
    return text, child.exitstatus


def shown(text):
    """Return the lines that were on the screen."""
    bare = _CONTROL.sub("\r", _STYLE.sub("", text))
    return [line.rstrip() for part in bare.split("\n") for line in part.split("\r")]


def test_without_a_terminal_there_are_lines(tmp_path):
    small = Small(tmp_path, gpu_1={"words": "hello"}, gpu_2={})
    found = small.run()
    assert found.returncode == 0, found.stdout + found.stderr
    assert "\x1b" not in found.stdout
    lines = found.stdout.splitlines()
    assert "hello" in lines
    assert "changed: [gpu-2] metal.gpu.nvidia_driver : Install the packages" in lines
    assert lines[-1] == "metal_gpu_outcome: ok"
    (log,) = small.logs()
    assert f"log: {log}" in found.stderr
    assert log.read_text() == found.stdout
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert small.left() == []


@pytest.mark.parametrize(
    ("host", "code", "state"),
    [
        ({}, 0, "ok"),
        ({"fails": True}, 2, "failed"),
        ({"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}, 4, None),
    ],
)
def test_the_exit_code_is_that_of_ansible(host, code, state, tmp_path):
    small = Small(tmp_path, gpu_1={"changes": False}, gpu_2=host)
    found = small.run("--json")
    document = command.parsed("playbook", found.stdout)
    assert (found.returncode, document["rc"]) == (code, code), found.stderr
    states = {one["host"]: one["state"] for one in document["hosts"]}
    assert states == {"gpu-1": "ok", "gpu-2": state or "unreachable"}
    assert document["outcome"] == "ok"
    assert Path(document["log"]).is_file()


def test_options_reach_ansible(tmp_path):
    small = Small(tmp_path, gpu_1={}, gpu_2={}, gpu_3={"fails": True})
    (tmp_path / "inventory.yml").rename(tmp_path / "other.yml")
    (tmp_path / "inventory.yml").write_text("gpu_nodes: {hosts: {gpu-4: {fails: true}}}\n")
    own = ["-l", "gpu-1,gpu-2,gpu-4", "--serial", "1", "-e", '{"words": "several words"}']
    found = small.run(*own, "--", "-v", "-i", "other.yml")
    assert found.returncode == 0, found.stdout
    assert found.stdout.count("several words") == 2
    assert "[gpu-3]" not in found.stdout
    assert "[gpu-4]" not in found.stdout
    checked = small.run("--check", "--skip-tags", "driver")
    assert checked.returncode == 0
    assert "changed" not in checked.stdout


def test_quiet_prints_only_failures(tmp_path):
    small = Small(tmp_path, gpu_1={})
    found = small.run("--quiet")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    failed = small.run("--quiet", "-e", '{"fails": true}')
    assert failed.returncode == 2
    assert "the driver does not load" in failed.stdout


def test_the_settings_of_the_user_hold(tmp_path):
    """ansible-runner would switch off the check of host keys, and cache facts in files."""
    small = Small(
        tmp_path,
        gpu_1={
            "words": "{{ lookup('ansible.builtin.config', "
            "'HOST_KEY_CHECKING', 'CACHE_PLUGIN', 'DEFAULT_FORKS', 'DEFAULT_TIMEOUT') }}"
        },
    )
    assert "True memory 5 99" in str_of(small.run(ANSIBLE_TIMEOUT="99"))
    (tmp_path / "ansible.cfg").write_text("[defaults]\nhost_key_checking = false\nforks = 7\n")
    assert "False memory 7" in str_of(small.run())


def str_of(found):
    return " ".join(found.stdout.split())


def test_on_a_terminal_there_are_bars(tmp_path):
    small = Small(tmp_path, gpu_1={"words": "hello"}, gpu_2={"fails": True})
    text, code = ended(small.on_terminal())
    assert code == 2
    lines = shown(text)
    # A path is not broken, so that it can be copied.
    assert max(len(line) for line in lines if not line.startswith("log: ")) <= COLUMNS
    assert any(re.match(r"✔ Check the nodes +━{16} 2/2 nodes", line) for line in lines)
    assert any(re.match(r"✘ Driver +━{16} 1/2 nodes, 1 failed, 2 changed", line) for line in lines)
    assert any(re.match(r"- Container engine +nothing to do", line) for line in lines)
    assert "hello" in lines
    assert "the driver does not load" in lines
    assert not any(line.startswith("changed: ") for line in lines)
    assert _COLOUR.search(text)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    (log,) = small.logs()
    assert f"log: {log}\r\n" in text
    assert "changed: [gpu-1]" in log.read_text()


def test_no_color_is_honoured(tmp_path):
    small = Small(tmp_path, gpu_1={})
    text, code = ended(small.on_terminal(NO_COLOR="1"))
    assert code == 0
    assert not _COLOUR.search(text)
    assert "━━━━" in text


def test_plain_prints_lines_on_a_terminal(tmp_path):
    small = Small(tmp_path, gpu_1={})
    text, code = ended(small.on_terminal("--plain"))
    assert code == 0
    assert "━" not in text
    assert "changed: [gpu-1]" in text


@pytest.mark.parametrize("arguments", [(), ("--plain",)])
def test_ctrl_c_stops_ansible_and_leaves_nothing(arguments, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    small = Small(tmp_path, gpu_1={}, gpu_2={"wait_for": str(pipe)})
    child = small.on_terminal(*arguments)
    child.expect("waiting for gpu-2: Wait" if not arguments else r"changed: \[gpu-2\]")
    writer = os.open(pipe, os.O_WRONLY)  # opens when the task reads from the pipe
    child.sendintr()
    text, code = ended(child)
    assert code == 130
    assert "stopping: Ansible ends its tasks" in text
    assert "log: " in text
    assert small.left() == []
    with pytest.raises(BrokenPipeError):  # nobody reads from the pipe: the task has ended
        os.write(writer, b"x")
    os.close(writer)


@pytest.mark.parametrize("is_twice", [True, False])
def test_a_task_that_ignores_signals_is_killed(is_twice, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    deaf = f"trap '' INT TERM HUP; exec cat {pipe}"
    small = Small(tmp_path, gpu_1={"argv": ["sh", "-c", deaf]})
    child = small.on_terminal("--plain")
    child.expect(r"changed: \[gpu-1\]")
    writer = os.open(pipe, os.O_WRONLY)
    child.sendintr()
    child.expect("stopping: Ansible ends its tasks")
    if is_twice:
        child.sendintr()
    text, code = ended(child)
    assert code == 130, text
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"x")
    os.close(writer)
    assert small.left() == []


def test_without_ansible_runner_an_error_says_what_to_install(tmp_path):
    small = Small(tmp_path, gpu_1={})
    hidden = tmp_path / "hidden" / "ansible_runner"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError(name='ansible_runner')\n")
    path = os.pathsep.join([str(hidden.parent), small.env["PYTHONPATH"]])
    found = small.run(PYTHONPATH=path)
    assert found.returncode == 2
    assert "pip install '.[ansible]'" in found.stderr
    assert "ansible_runner" in found.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--serial", "half"), "--serial is 'half'"),
        (("--kubeconfig", "x"), "small talks to no cluster, so --kubeconfig has no effect"),
        (("--context", "x"), "small talks to no cluster, so --context has no effect"),
        (("inventory.yml",), "inventory.yml is no option"),
        (
            ("--tags", "drivr"),
            "drivr is no tag of metal.gpu.small; did you mean driver? It has the tags driver",
        ),
        (("--skip-tags", "driver,engine"), "engine is no tag of metal.gpu.small. It has"),
    ],
)
def test_a_wrong_option_is_named(arguments, words, tmp_path):
    found = Small(tmp_path, gpu_1={}).run(*arguments)
    assert found.returncode == 2
    assert words in " ".join(found.stderr.split())
    assert not (tmp_path / "state").exists()  # nothing has run


def test_one_of_two_inventories_that_ansible_cannot_parse_stops_the_run(tmp_path):
    small = Small(tmp_path, gpu_1={"words": "hello"})
    (tmp_path / "broken.ini").write_text("[gpu_nodes]\ngpu-2 ansible_host\n")
    found = small.run("--inventory", "inventory.yml", "--inventory", "broken.ini")
    assert found.returncode == 1
    assert "hello" not in found.stdout
    assert "broken.ini" in found.stdout


def test_a_password_needs_a_terminal(tmp_path):
    found = Small(tmp_path, gpu_1={}).run("-K")
    assert found.returncode == 2
    assert "--ask-become-pass asks for a password" in found.stderr


def test_a_password_is_asked_for_once_and_handed_on(tmp_path):
    sudo = tmp_path / "sudo"
    sudo.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -u ]; do [ "$1" != -p ] || { prompt=$2; shift; }; shift; done; shift 2\n'
        'printf %s "$prompt" >&2; IFS= read -r given; [ "$given" = secret ] || exit 1\n'
        'exec "$@"\n'
    )
    sudo.chmod(0o755)
    small = Small(tmp_path, gpu_1={"ansible_become": True, "ansible_become_exe": str(sudo)})
    child = small.on_terminal(
        *("-K", "--plain"),
        ANSIBLE_BECOME_ALLOW_SAME_USER="true",
        ANSIBLE_AGNOSTIC_BECOME_PROMPT="false",
    )
    child.expect("BECOME password: ")
    child.sendline("secret")
    text, code = ended(child)
    assert code == 0, text
    assert "secret" not in text
    assert "secret" not in small.logs()[0].read_text()


def test_a_log_that_cannot_be_written_does_not_stop_the_run(tmp_path):
    small = Small(tmp_path, gpu_1={})
    (tmp_path / "state").write_text("a file")
    found = small.run()
    assert found.returncode == 0
    assert "no log is written" in found.stderr
