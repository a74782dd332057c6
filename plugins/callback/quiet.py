# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
name: quiet
type: stdout
short_description: Print what changes, what fails, and the verdict
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Prints a line for each task that changes a host, with the items of its loop, the explanation of
    each failure once, and messages such as the table of all nodes. A task in which nothing changes
    prints nothing. So a run without changes prints a screen, however many nodes there are.
  - While a task takes long, prints every O(every) seconds which task it is, for how long it has
    been running, and on which hosts.
  - Ends with the hosts that were refused, failed or were unreachable, instead of a line for each
    host, and with custom statistics of the run, such as C(metal_gpu_outcome). A task that runs once
    for all hosts fails for none of them.
requirements:
  - Set it as the stdout callback.
options:
  every:
    description: Seconds between the lines about a task that takes long.
    type: int
    default: 15
    version_added: 1.0.0
    env:
      - name: METAL_GPU_QUIET_EVERY
    ini:
      - section: callback_quiet
        key: every
"""

import re
import time
from threading import Event, Thread
from typing import Any

from ansible import constants as C
from ansible.plugins.callback import CallbackBase

from ansible_collections.metal.gpu.plugins.module_utils.readable import printable, some
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.results import cut_short

_EVERY_S = 15
_EXPLAINED = ": see the explanation above."  # in playbooks/_end.yml
_ONLY_CODES = re.compile(rf"[A-Z_]+(?:, [A-Z_]+)*{re.escape(_EXPLAINED)}")
_CENSORED = "(censored due to no_log)"
# How lines of ours begin, which programs read. One that a node has chosen is moved to the right.
_OWN = re.compile(
    r"^(?=(?:changed|failed|refused|unreachable|waiting|metal_gpu_\w+):)", re.MULTILINE
)


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "metal.gpu.quiet"

    def __init__(self) -> None:
        super().__init__()
        self._task = ""
        self._started = 0.0
        self._waiting: dict[str, None] = {}  # hosts on which the task has not ended
        self._items: dict[str, dict[str, None]] = {}  # labels of a loop that changed, by host
        self._last: dict[str, str] = {}  # the last line about a host
        self._refused: set[str] = set()
        self._blameless: set[str] = set()  # hosts that have failed in tasks for all hosts
        self._over = Event()
        self._every_s = _EVERY_S

    # ansible-runner's callback inherits from this one, and fails if it has no options.
    def set_options(self, *args: Any, **kwargs: Any) -> None:
        super().set_options(*args, **kwargs)
        self._every_s = self.get_option("every")

    def v2_playbook_on_start(self, playbook: Any) -> None:
        Thread(target=self._report_progress, daemon=True).start()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._task, self._started, self._waiting = task.get_name(), time.monotonic(), {}

    v2_playbook_on_handler_task_start = v2_playbook_on_task_start

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        # A task that runs once for all hosts says nothing about the host that it runs for.
        is_for_all = task.run_once or task.delegate_to == "localhost"
        self._waiting["" if is_for_all else host.get_name()] = None

    def v2_runner_on_ok(self, result: Any) -> None:
        if self._end(result):
            self._ok(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        host, label = result._host.get_name(), self._get_item_label(result._result)
        if self._ok(result, is_item=True):
            shown = "" if label in (None, _CENSORED) else str(label)
            self._items.setdefault(host, {})[shown] = None

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._end(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if self._end(result):
            self._failed(result)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._failed(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._end(result)
        self._failed(result, "unreachable")

    def v2_on_file_diff(self, result: Any) -> None:
        for values in result._result.get("results", [result._result]):
            if values.get("diff") and values.get("changed"):
                difference = self._get_diff(values["diff"])
                if difference:
                    self._say(_OWN.sub("  ", difference.rstrip()))

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._over.set()
        failed = stats.failures.keys() - self._blameless
        ends = {"refused": self._refused, "failed": failed, "unreachable": stats.dark}
        for word, hosts in ends.items():
            if hosts:
                self._say(f"{word}: {some(sorted(hosts))}", color=C.COLOR_ERROR)
        for name, value in stats.custom.get("_run", {}).items():
            self._say(f"{name}: {value}")

    def _say(self, text: str, **how: Any) -> None:
        """Print what may be of a node, which controls neither the terminal nor other lines."""
        self._display.display(printable(text), **how)

    def _end(self, result: Any) -> bool:
        """Return whether the result is to be shown. A loop is one line, with all its items."""
        host = result._host.get_name()
        self._waiting.pop(host, None)
        self._waiting.pop("", None)
        items = self._items.pop(host, None)
        if items is not None:
            self._changed(result, list(filter(None, items)))
        return result._task.loop is None or "results" not in result._result

    def _ok(self, result: Any, *, is_item: bool = False) -> bool:
        """Show a result. Return whether it is an item that changed, which the loop's end shows."""
        values = result._result
        self._handle_warnings(values)
        if result._task.action == "metal.gpu.fleet" and not values.get("begin", True):
            self._refused.update(values["stopped"])
        if values.get("_ansible_verbose_always"):  # as the module debug asks
            if not result._task.run_once:
                self._say(f"[{result._host.get_name()}] {self._name(result)}")
            variable = values.get(result._task.args.get("var"))
            self._say(_text(values.get("msg", variable)))
        elif values.get("changed"):
            if is_item:
                return True
            self._changed(result, [])
        return False

    def _changed(self, result: Any, items: list[str]) -> None:
        host = result._host.get_name()
        line = f"changed: [{host}] {self._name(result)}" + (
            _OWN.sub("  ", f" ({', '.join(items)})") if items else ""
        )
        if self._last.get(host) != line:  # a task that is included for each of several things
            self._say(line, color=C.COLOR_CHANGED)
        self._last[host] = line

    def _failed(self, result: Any, word: str = "failed") -> None:
        values, host = result._result, result._host.get_name()
        is_for_all = word == "failed" and result._task.run_once
        (self._blameless.add if is_for_all else self._blameless.discard)(host)
        self._handle_warnings(values)
        if values.get("_ansible_no_log"):
            text = "the output has been hidden due to the fact that 'no_log: true' was specified"
        else:
            parts = (values.get(key) for key in ("msg", "module_stderr", "stderr"))
            text = cut_short(values) or "\n".join(
                dict.fromkeys(_text(part) for part in parts if part)
            )
        if _ONLY_CODES.fullmatch(text) and not is_for_all:
            return  # the findings stand above, and the last lines name the host
        where = "" if is_for_all else f"[{host}] "
        self._say(f"{word}: {where}{self._name(result)}\n{text}", color=C.COLOR_ERROR)

    @staticmethod
    def _name(result: Any) -> str:
        name: str = result._task.get_name()
        return name

    def _report_progress(self) -> None:
        while not self._over.wait(self._every_s):
            seconds = time.monotonic() - self._started
            hosts = list(self._waiting)
            if hosts and seconds >= self._every_s:
                where = "" if "" in hosts else f", on {some(hosts)}"
                self._say(f"waiting: {self._task}, {seconds:.0f} s{where}")


def _text(message: Any) -> str:
    if isinstance(message, (list, tuple)):
        message = "\n".join(map(str, message))
    text = str(message).removeprefix("Task failed: ").removeprefix("Action failed: ")
    return _OWN.sub("  ", text)
