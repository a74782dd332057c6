# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from threading import Barrier, Event

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe import limited
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command, read_outputs
from ansible_collections.metal.gpu.plugins.module_utils.read.output import Output


def test_outputs_come_back_under_their_names():
    commands = {
        "good": Command(("sh", "-c", "echo $LC_ALL")),
        "bad": Command(("sh", "-c", "echo why >&2; exit 9")),
    }
    assert read_outputs(commands, limited.run) == {
        "good": Output(0, "C\n", ""),
        "bad": Output(9, "", "why\n"),
    }


def test_nothing_to_run():
    assert read_outputs({}, limited.run) == {}


def test_commands_run_at_the_same_time():
    together = Barrier(5, timeout=10)

    def run(argv, **options):
        together.wait()  # breaks where the others do not come
        return 0, "", ""

    outputs = read_outputs({name: Command((name,)) for name in "abcde"}, run)
    assert {output.rc for output in outputs.values()} == {0}


def test_a_command_that_hangs_is_ended():
    hanging = {"nvidia_smi": Command(("sleep", "60"), timeout_s=0.1)}
    assert read_outputs(hanging, limited.run)["nvidia_smi"].rc is None


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


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_output_without_an_end_is_cut(monkeypatch, stream):
    """And the program has not ended, as far as anybody can tell."""
    monkeypatch.setattr(limited, "LIMIT", 10_000)
    endless = Command(("sh", "-c", f"echo first {stream}; exec yes {stream}"), timeout_s=20)
    start = time.monotonic()
    output = read_outputs({"nvidia_smi": endless}, limited.run)["nvidia_smi"]
    assert output.rc is None
    assert time.monotonic() - start < 10
    printed = output.stderr if stream else output.stdout
    assert printed.startswith("first\ny\n")
    assert len(printed) == limited.LIMIT


def test_output_that_is_no_text_and_much_of_both_kinds():
    program = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; printf '\\377'"
    output = read_outputs({"a": Command(("sh", "-c", program))}, limited.run)["a"]
    assert output.rc == 0
    assert (len(output.stdout), len(output.stderr)) == (300001, 300000)
    assert output.stdout.endswith("\ufffd")


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_program_that_leaves_a_process_behind(stream):
    """The process keeps the streams open, and prints later."""
    program = f"(sleep 20; echo late {stream}) & echo row {stream}; exit 3"
    start = time.monotonic()
    output = read_outputs({"a": Command(("sh", "-c", program), timeout_s=15)}, limited.run)["a"]
    assert output == (Output(3, "", "row\n") if stream else Output(3, "row\n", ""))
    assert time.monotonic() - start < 10


def test_a_program_that_is_not_there():
    assert read_outputs({"a": Command(("/nobody/has/it",))}, limited.run)["a"].rc == 127
