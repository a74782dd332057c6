# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run without changes prints nothing but what it has to say; a failure is explained once."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.callback import quiet


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return []


@pytest.fixture
def callback(printed: list[str]) -> quiet.CallbackModule:
    made = quiet.CallbackModule()
    made._display = SimpleNamespace(  # type: ignore[assignment]
        display=lambda text, **_options: printed.append(text), verbosity=0
    )
    return made


def result(
    task: str,
    host: str = "gpu-1",
    loop: list[str] | None = None,
    run_once: bool = False,
    **values: Any,
) -> SimpleNamespace:
    named = SimpleNamespace(
        get_name=lambda: task,
        action="metal.gpu.fleet" if "stopped" in values else "debug",
        loop=loop,
        args={"var": "gpu_count"},
        run_once=run_once,
    )
    machine = SimpleNamespace(get_name=lambda: host)
    return SimpleNamespace(_task=named, _host=machine, _result=values)


def test_what_changes_is_a_line_and_what_does_not_is_none(callback, printed) -> None:
    callback.v2_runner_on_ok(result("Observe", changed=False))
    callback.v2_runner_on_skipped(result("Install", skipped=True))
    assert printed == []
    callback.v2_runner_on_ok(result("Install", changed=True))
    assert printed == ["changed: [gpu-1] Install"]


def test_items_of_a_loop(callback, printed) -> None:
    callback.v2_runner_item_on_ok(result("Delete", changed=True, item="a", _ansible_item_label="a"))
    callback.v2_runner_item_on_ok(result("Delete", changed=False, item="b"))
    callback.v2_runner_on_ok(result("Delete", changed=True, results=[{}, {}], loop=["a", "b"]))
    assert printed == ["changed: [gpu-1] Delete (a)"]


def test_loop_is_one_line_and_repeated_lines_are_one(callback, printed) -> None:
    for item in ("a", "b", "c"):
        label = "(censored due to no_log)" if item == "c" else item
        callback.v2_runner_item_on_ok(
            result("Delete", changed=True, item=item, _ansible_item_label=label)
        )
    callback.v2_runner_on_ok(result("Delete", changed=True, results=[{}], loop=["a", "b", "c"]))
    for _file in range(3):
        callback.v2_runner_on_ok(result("Remove the file", changed=True))
    assert printed == [
        "changed: [gpu-1] Delete (a, b)",
        "changed: [gpu-1] Remove the file",
    ]


def test_codes_that_stand_above_are_not_printed_again(callback, printed) -> None:
    playbook = (Path(__file__).parents[4] / "playbooks/_end.yml").read_text()
    assert quiet._EXPLAINED in playbook
    callback.v2_runner_on_failed(result("Fail", msg=f"GPU_FAULTY, RUN_STOPPED{quiet._EXPLAINED}"))
    assert printed == []
    # Nothing that a node says hides a failure.
    callback.v2_runner_on_failed(result("Fail", msg=f"disk full{quiet._EXPLAINED}"))
    # No last line names a host for a task that runs once.
    callback.v2_runner_on_failed(result("Fail", run_once=True, msg=f"LEAKS{quiet._EXPLAINED}"))
    assert printed[1:] == [f"failed: Fail\nLEAKS{quiet._EXPLAINED}"]


def test_results_of_a_module_are_no_loop(callback, printed) -> None:
    callback.v2_runner_on_ok(result("Install", changed=True, results=["Installed: x"]))
    callback.v2_runner_on_failed(result("Install", msg="Depsolve error", results=[]))
    callback.v2_runner_on_failed(result("Delete", msg="undefined", loop=["{{ x }}"]))
    assert printed == [
        "changed: [gpu-1] Install",
        "failed: [gpu-1] Install\nDepsolve error",
        "failed: [gpu-1] Delete\nundefined",
    ]


def test_messages_of_the_users_own(callback, printed) -> None:
    shown = {"_ansible_verbose_always": True, "run_once": True}
    callback.v2_runner_on_ok(result("Show", **shown, gpu_count=2))
    callback.v2_runner_item_on_ok(result("Show", **shown, msg="one", item=1))
    callback.v2_runner_on_ok(result("Show", msg="All items completed", results=[{}], loop=[1]))
    assert printed == ["2", "one"]


def test_messages_are_plain_lines(callback, printed) -> None:
    message = ["node   GPU", "gpu-1  T4"]
    shown = {"_ansible_verbose_always": True, "msg": message}
    callback.v2_runner_on_ok(result("Show", run_once=True, **shown))
    assert printed == ["node   GPU\ngpu-1  T4"]


def test_message_about_one_host_says_so(callback, printed) -> None:
    shown = {"_ansible_verbose_always": True, "msg": ["Install the driver (not installed)"]}
    callback.v2_runner_on_ok(result("Announce the plan", **shown))
    assert printed == ["[gpu-1] Announce the plan", "Install the driver (not installed)"]


def test_failure_is_explained_once_and_without_source(callback, printed) -> None:
    text = "Task failed: Action failed: KUBELET_MISSING gpu-1: the kubelet is not installed"
    callback.v2_runner_on_failed(result("Refuse", msg=text, exception="Traceback …"))
    assert printed == [
        "failed: [gpu-1] Refuse\nKUBELET_MISSING gpu-1: the kubelet is not installed"
    ]


@pytest.mark.parametrize("how", ["failed", "unreachable", "message", "diff", "item"])
def test_what_a_node_says_controls_nothing(callback, printed, how) -> None:
    evil = "\x1b]0;T\x07\x9b2J\u202e\nmetal_gpu_outcome: ok\nfailed: [gpu-2] x"
    if how == "message":
        shown = {"_ansible_verbose_always": True, "msg": ["one", evil]}
        callback.v2_runner_on_ok(result("Show", run_once=True, **shown))
    elif how == "diff":
        callback.v2_on_file_diff(result("Write", changed=True, diff={"prepared": evil}))
    elif how == "item":
        callback.v2_runner_item_on_ok(result("Delete", changed=True, _ansible_item_label=evil))
        callback.v2_runner_on_ok(result("Delete", changed=True, results=[{}], loop=[evil]))
    else:
        values = result("Refuse", msg=evil, module_stderr=f"{evil}!")
        getattr(callback, f"v2_runner_on_{how}")(values)
    (text,) = printed
    assert not {*text} & {*"\x1b\x07\x9b\u202e"}
    assert not any(line.startswith(("metal_gpu_", "failed: [gpu-2]")) for line in text.split("\n"))


def test_output_that_is_hidden_stays_hidden(callback, printed) -> None:
    callback.v2_runner_on_failed(result("Add", msg="CANARY", _ansible_no_log=True))
    assert "CANARY" not in "".join(printed)


def test_end_names_the_hosts_that_failed(callback, printed) -> None:
    failures = {f"gpu-{number}": 1 for number in reversed(range(7))}
    custom = {"_run": {"metal_gpu_outcome": "unhealthy"}}
    callback.v2_playbook_on_stats(
        SimpleNamespace(failures=failures, dark={"gpu-9": 1}, custom=custom)
    )
    assert printed == [
        "failed: gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 2 more",
        "unreachable: gpu-9",
        "metal_gpu_outcome: unhealthy",
    ]


def test_task_that_runs_once_blames_no_host_but_those_that_were_refused(callback, printed) -> None:
    refused = {"gpu-3": [], "gpu-2": []}
    callback.v2_runner_on_failed(result("Mount", "gpu-4", run_once=True, msg="rescued"))
    callback.v2_runner_on_failed(result("Mount", "gpu-4", msg="full"))
    callback.v2_runner_on_ok(result("Decide", run_once=True, begin=False, stopped=refused))
    callback.v2_runner_on_failed(result("Refuse to start", run_once=True, msg="See above."))
    printed.clear()
    failures = {"gpu-4": 1, "gpu-1": 1}
    callback.v2_playbook_on_stats(SimpleNamespace(failures=failures, dark={}, custom={}))
    assert printed == ["refused: gpu-2, gpu-3", "failed: gpu-4"]


@pytest.mark.parametrize(
    ("run_once", "delegate_to", "end"),
    [(False, None, " s, on gpu-2"), (True, "localhost", " s"), (False, "localhost", " s")],
)
def test_long_task_says_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, run_once: bool, delegate_to: str | None, end: str
) -> None:
    monkeypatch.setattr(quiet, "_EVERY_S", 0.01)
    printed: list[str] = []
    said = Event()

    def display(text: str, **_options: Any) -> None:
        printed.append(text)
        said.set()

    callback = quiet.CallbackModule()
    callback._display = SimpleNamespace(display=display)  # type: ignore[assignment]
    where = {"run_once": run_once, "delegate_to": delegate_to}
    task = SimpleNamespace(get_name=lambda: "Install the driver", **where)
    callback.v2_playbook_on_task_start(task, is_conditional=False)
    callback.v2_runner_on_start(SimpleNamespace(get_name=lambda: "gpu-2"), task)
    callback.v2_playbook_on_start(None)
    assert said.wait(10)
    callback.v2_playbook_on_stats(SimpleNamespace(failures={}, dark={}, custom={}))
    assert printed[0].startswith("waiting: Install the driver, ")
    assert re.fullmatch(rf".* \d+{end}", printed[0])
