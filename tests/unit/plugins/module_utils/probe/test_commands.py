# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
import time
from threading import Barrier, Event

from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command, read_outputs
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output


def run_command(argv, environ_update, **options):
    """What AnsibleModule.run_command does, as far as it matters here."""
    environment = {**os.environ, **environ_update}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


def test_outputs_come_back_under_their_names():
    commands = {
        "good": Command(("sh", "-c", "echo $LC_ALL")),
        "bad": Command(("sh", "-c", "echo why >&2; exit 9")),
    }
    assert read_outputs(commands, run_command) == {
        "good": Output(0, "C\n", ""),
        "bad": Output(9, "", "why\n"),
    }


def test_nothing_to_run():
    assert read_outputs({}, run_command) == {}


def test_commands_run_at_the_same_time():
    together = Barrier(5, timeout=10)

    def run(argv, **options):
        together.wait()  # breaks where the others do not come
        return 0, "", ""

    outputs = read_outputs({name: Command((name,)) for name in "abcde"}, run)
    assert {output.rc for output in outputs.values()} == {0}


def test_a_command_that_hangs_is_ended():
    hanging = {"nvidia_smi": Command(("sleep", "60"), timeout_s=0.1)}
    assert read_outputs(hanging, run_command)["nvidia_smi"].rc is None


def test_a_command_that_cannot_be_ended_is_given_up(monkeypatch):
    # In uninterruptible sleep not even KILL helps, and the runner never returns.
    monkeypatch.setattr(
        "ansible_collections.metal.gpu.plugins.module_utils.probe.commands.KILL_AFTER_S", 0.05
    )
    monkeypatch.setattr(
        "ansible_collections.metal.gpu.plugins.module_utils.probe.commands.GRACE_S", 0.05
    )
    given_up = Event()

    def run(argv, **options):
        given_up.wait(60)
        return 0, "", ""

    start = time.monotonic()
    outputs = read_outputs({"nvidia_smi": Command(("nvidia-smi",), timeout_s=0.1)}, run)
    assert outputs == {"nvidia_smi": Output(None, "", "")}
    assert time.monotonic() - start < 5
    given_up.set()


def test_a_runner_that_finds_no_program():
    def run(argv, **options):
        raise FileNotFoundError(2, "No such file or directory", argv[0])

    assert read_outputs({"a": Command(("a",))}, run)["a"].rc == 127
