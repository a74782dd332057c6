# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the connection plugin is told while a module runs. That nothing is printed then is tested
with a real `ansible`, in tests/unit/plugins/action/test_verbosity.py."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from ansible.errors import AnsibleAuthenticationFailure, AnsibleConnectionFailure
from ansible.utils.display import Display

from ansible_collections.metal.gpu.plugins.plugin_utils.quiet import (
    execute_quietly,
    redact_output,
)

CENSORED = AnsibleConnectionFailure("Failed to connect to the host via ssh: <censored>")
IN_WORDS = AnsibleConnectionFailure("Failed to connect to the host via ssh: No route to host")


class Action:
    """What `execute_quietly` uses of an action plugin, with a node that answers as it is told."""

    def __init__(self, answer, *, no_log=False, reachable=False):
        self.context = SimpleNamespace(no_log=no_log)
        self._connection = SimpleNamespace(_play_context=self.context)
        self.answer, self.reachable = answer, reachable
        self.seen = []

    def _execute_module(self, **arguments):
        self.seen.append((self.context.no_log, arguments))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def _low_level_execute_command(self, command, sudoable):
        self.seen.append((self.context.no_log, command))
        if not self.reachable:
            raise IN_WORDS


@pytest.fixture
def verbosity(monkeypatch):
    def be(shown, logged=0):
        monkeypatch.setattr(Display(), "verbosity", shown)
        monkeypatch.setattr(Display(), "log_verbosity", logged, raising=False)

    be(0)
    return be


@pytest.mark.parametrize(
    ("shown", "logged", "no_log", "during"),
    [
        pytest.param(2, 0, False, False, id="below -vvv nothing would be printed"),
        pytest.param(3, 0, False, True, id="-vvv"),
        pytest.param(0, 3, False, True, id="LOG_VERBOSITY"),
        pytest.param(0, 0, True, True, id="no_log on the task"),
    ],
)
def test_output_is_censored_for_the_time_of_the_module(verbosity, shown, logged, no_log, during):
    verbosity(shown, logged)
    action = Action({"changed": False}, no_log=no_log)
    assert execute_quietly(action, "metal.gpu.x", {"a": 1}, {"v": 2}) == {"changed": False}
    arguments = {"module_name": "metal.gpu.x", "module_args": {"a": 1}, "task_vars": {"v": 2}}
    assert action.seen == [(during, arguments)]
    assert action.context.no_log is no_log


@pytest.mark.parametrize(
    ("shown", "answer", "reachable", "raised", "attempts"),
    [
        pytest.param(0, IN_WORDS, False, IN_WORDS, 1, id="not censored"),
        pytest.param(3, CENSORED, False, IN_WORDS, 2, id="censored"),
        pytest.param(3, CENSORED, True, CENSORED, 2, id="reachable again"),
        pytest.param(3, AnsibleAuthenticationFailure("no"), False, None, 1, id="password"),
        pytest.param(3, KeyError("x"), False, None, 1, id="anything else"),
    ],
)
def test_a_connection_that_fails_says_why(verbosity, shown, answer, reachable, raised, attempts):
    verbosity(shown)
    action = Action(answer, reachable=reachable)
    with pytest.raises(type(answer)) as error:
        execute_quietly(action, "metal.gpu.x")
    assert error.value is (raised or answer)
    assert len(action.seen) == attempts
    assert action.seen[1:] == [(False, "exit 0")][: attempts - 1]
    assert action.context.no_log is False


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        pytest.param("sudo: a password is required\n", None, id="no result"),
        pytest.param("", None, id="nothing"),
        pytest.param(
            'motd\r\n{"content": "c2Vj',
            "motd\r\n[17 characters of the module's result are not shown]",
            id="cut off",
        ),
        pytest.param(
            'Traceback:\n  x = {}\nError\n\n{"content": 1}\nKilled',
            "Traceback:\n  x = {}\nError\n\n[21 characters of the module's result are not shown]",
            id="something behind it",
        ),
    ],
)
def test_output_that_cannot_be_read_does_not_carry_the_result(verbosity, output, kept):
    failure = {"failed": True, "msg": "MODULE FAILURE", "module_stdout": output, "rc": 1}
    failure["exception"] = output  # ansible-core 2.16, for a traceback on stdout
    expected = output if kept is None else kept
    result = execute_quietly(Action(dict(failure)), "metal.gpu.x")
    assert result == {**failure, "module_stdout": expected, "exception": expected}


QUOTED = "E: Failed to fetch http://me:CANARY@mirror.example/InRelease  401  Unauthorized"


def test_output_of_a_module_has_no_credentials() -> None:
    """Neither its result, with the warnings that ansible-core prints, nor what is around that."""
    result = {"msg": QUOTED, "warnings": [f"once more: {QUOTED}"], "rc": 100, "changed": False}
    output = redact_output(f"Welcome, password=CANARY\n{json.dumps(result)}\nBye, {QUOTED}")
    assert "CANARY" not in output
    _head, found, tail = output.splitlines()
    shown = QUOTED.replace("me:CANARY", "***")
    assert json.loads(found) == {**result, "msg": shown, "warnings": [f"once more: {shown}"]}
    assert tail == f"Bye, {shown}"


def test_output_that_is_no_result_has_no_credentials() -> None:
    assert "CANARY" not in redact_output(f"{{ Traceback: {QUOTED}")
