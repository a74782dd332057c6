# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ask a fleet again and again what its GPUs do.

Each machine keeps its connection, unless this computer cannot have so many. One that does not
answer is asked again later and later, because a hanging nvidia-smi stays on it, and another one
would hang as well.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from threading import Condition, Thread
from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_smi
from metal_gpu import gpu_script, gpu_use, parallel
from metal_gpu.gpu_use import Gpu, Switch, Use
from metal_gpu.hosts import Host
from metal_gpu.ssh.settings import Session, Settings, Unreachable

Connect = Callable[[Host, Settings], Session]
_RUN_S = 2 * nvidia_smi.TIMEOUT_S + 10.0  # it can run twice
_FILES = 6  # open ones, of a connection by a ProxyCommand while a command runs
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 15.0, 300.0


class Machine(TypedDict):
    """A host, its GPUs, and those of its NVSwitches that have fatal errors."""

    host: str
    error: str | None  # why there are no GPUs, or not all
    code: str | None  # of the finding that the error is
    answered: bool
    gpus: list[Gpu]
    switches: list[Switch]


class _Watched:
    """One host with its connection."""

    def __init__(
        self, host: Host, settings: Settings, connect: Connect, *, keeps: bool = True
    ) -> None:
        self.host = host
        self._keeps = keeps
        self._settings = settings
        self._connect = connect
        self._session: Session | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._not_before = 0.0
        self.nothing = _silent(host, "no answer yet")
        self._last = self.nothing

    def ask(self) -> Machine:
        """Return what the GPUs do now, or why that is not known."""
        if time.monotonic() < self._not_before:
            return self._last
        try:
            use = self._use()
        except Unreachable as error:
            words = str(error).removeprefix(f"{self.host.name}: ")
            return self._later(words, error.finding["code"])
        except gpu_script.Unreadable as error:
            return self._later(str(error), error.code)
        self._pause_s = _FIRST_PAUSE_S
        return {
            "host": self.host.name,
            "error": use.error,
            "code": use.code,
            "answered": True,
            "gpus": use.gpus,
            "switches": [*use.switches],
        }

    def _later(self, words: str, code: str) -> Machine:
        """Return why the host does not answer, and do not ask it for a while."""
        self.close()
        self._not_before = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._last = _silent(self.host, words, code)
        return self._last

    def _use(self) -> Use:
        if self._session is None:
            session = self._connect(self.host, self._settings)
            self._session = session.__enter__()
        answer = self._session.run("sh -s", gpu_script.SCRIPT.encode(), _RUN_S)
        if not self._keeps:
            self.close()
        return gpu_use.parse(answer.stdout.decode(errors="replace"))

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.__exit__(None, None, None)


def _silent(host: Host, error: str, code: str | None = None) -> Machine:
    return {
        "host": host.name,
        "error": error,
        "code": code,
        "answered": False,
        "gpus": [],
        "switches": [],
    }


class Top:
    """A fleet that is watched. Leaving the context ends all connections.

    One slow machine does not hold up the others: as long as it works on a question, it gets no
    other one, and its last answer counts. The threads are daemons, so that a program ends at once.
    """

    def __init__(
        self,
        hosts: Sequence[Host],
        settings: Settings,
        connect: Connect | None = None,
        limit: int = parallel.LIMIT,
    ) -> None:
        from metal_gpu import ssh

        keeps = len(hosts) <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _FILES
        self._watched = [
            _Watched(host, settings, connect or ssh.connect, keeps=keeps) for host in hosts
        ]
        self._answers: dict[_Watched, Machine] = {}
        self._busy: set[_Watched] = set()
        self._changed = Condition()
        self._questions: SimpleQueue[_Watched | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, daemon=True) for _host in hosts[:limit]]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Top:
        return self

    def __exit__(self, *_error: object) -> None:
        for _thread in self._threads:
            self._questions.put(None)
        with self._changed:
            idle = [one for one in self._watched if one not in self._busy]
        for one in idle:
            one.close()

    def ask(
        self, pods: Mapping[str, str] | None = None, wait_s: float | None = None
    ) -> list[Machine]:
        """Ask all hosts, and return what needs attention first.

        `pods` has their names by UID. After `wait_s`, the last answers of the other hosts count.
        """
        with self._changed:
            for one in self._watched:
                if one not in self._busy:
                    self._busy.add(one)
                    self._questions.put(one)
            self._changed.wait_for(lambda: not self._busy, wait_s)
            answers = [self._answers.get(one) or one.nothing for one in self._watched]
        machines = [named(answer, pods) for answer in answers]
        return sorted(machines, key=lambda machine: (attention(machine), machine["host"]))

    def _work(self) -> None:
        while (one := self._questions.get()) is not None:
            try:
                answer = one.ask()
            except Exception as error:  # one that nobody expected must not end the view
                answer = _silent(one.host, f"{type(error).__name__}: {error}")
            with self._changed:
                self._answers[one] = answer
                self._busy.discard(one)
                self._changed.notify_all()


def named(machine: Machine, pods: Mapping[str, str] | None) -> Machine:
    """Return a machine with the names of its pods.

    The kubelet keeps the entry of a pod that has ended, so one that the cluster lacks is left out.
    """
    if pods is None:
        return machine
    gpus: list[Gpu] = [
        {
            **gpu,
            "pods": [
                {"uid": one["uid"], "pod": pods[one["uid"]]}
                for one in gpu["pods"]
                if one["uid"] in pods
            ],
        }
        for gpu in machine["gpus"]
    ]
    return {**machine, "gpus": gpus}


def needs_somebody(gpu: Gpu) -> bool:
    """Tell whether a GPU fails, or logged an error that only a person or a reset ends."""
    return bool(gpu["error"]) or any(one["tier"] in gpu_use.BROKEN for one in gpu["xids"])


def is_failing(machine: Machine) -> bool:
    """Tell whether a machine that answers needs somebody."""
    is_faulty = any(map(needs_somebody, machine["gpus"]))
    return bool(machine["error"] or machine["switches"] or is_faulty)


def urgent(machines: Sequence[Machine]) -> list[Machine]:
    """Return the machines that need somebody, each with those of its GPUs that do."""
    return [
        {**machine, "gpus": [*filter(needs_somebody, machine["gpus"])]}
        for machine in machines
        if not machine["answered"] or is_failing(machine)
    ]


def codes(machines: Sequence[Machine]) -> list[str]:
    """Return the findings that the readings are, each once, in the order of the machines."""
    found: dict[str | None, None] = {}
    for machine in machines:
        found[machine["code"]] = None
        found |= dict.fromkeys(one["code"] for one in machine["switches"])
        found |= dict.fromkeys(one["code"] for one in sorted(machine["gpus"], key=rank))
    return [code for code in found if code]


def rank(gpu: Gpu) -> tuple[int, int, int]:
    """Return the place of a GPU among those of its machine: what needs attention is first."""
    index = 10_000 if gpu["index"] is None else gpu["index"]
    if needs_somebody(gpu):
        return 0, 0, index
    return 1 if gpu["xids"] else 2, 0, index


def attention(machine: Machine) -> tuple[int, int]:
    """Return the place of a machine: silent ones, failing ones, then the busiest."""
    if not machine["answered"]:
        return 0, 0
    if is_failing(machine):
        return 1, 0
    if any(gpu["xids"] for gpu in machine["gpus"]):
        return 2, 0
    return 3, -sum(gpu["utilization"] or 0 for gpu in machine["gpus"])
