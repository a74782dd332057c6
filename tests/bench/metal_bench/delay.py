# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long after the kubelet has published the GPUs does gpu_capacity return?"""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Sequence

from metal_bench import processes
from metal_bench.laboratory import Laboratory
from metal_bench.report import Goal, Section, number

TURNS = 5
LIMIT_S = 1.0
NODE, GPUS = "gpu-1", "4"
LABEL = "nvidia.com/gpu.present"
LOOK = r"{.status.allocatable.nvidia\.com/gpu}{'\n'}"

TEXT = f"""\
The device plugin is removed from a node until the API server reports 0 GPUs there. It is restored
while `gpu_capacity` waits. The clock starts when another watcher, `kubectl get --watch`, reports
{GPUS} allocatable GPUs. It stops when the process of the module ends."""


class Watcher:
    """kubectl in a separate process. Records how many GPUs it reports at which time."""

    def __init__(self, lab: Laboratory) -> None:
        words = ("get", "node", NODE, "--watch", f"--output=jsonpath={LOOK}")
        self._process = subprocess.Popen(
            lab.kubectl_command(*words), stdout=subprocess.PIPE, text=True
        )
        self._changed = threading.Condition()
        self._seen: list[tuple[str, float]] = []  # GPUs and time.monotonic(), the newest last
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._seen.append((line.strip(), time.monotonic()))
                self._changed.notify_all()

    def wait_for(self, gpus: str, timeout_s: float = 120) -> float:
        """Wait until the newest count is `gpus`. Return when it was first reported."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: bool(self._seen) and self._seen[-1][0] == gpus, timeout_s
            ):
                raise SystemExit(f"{NODE} never had {gpus} allocatable GPUs: {self._seen}")
            since = self._seen[-1][1]
            for seen, when in reversed(self._seen):
                if seen != gpus:
                    break
                since = when
            return since

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()


def measure(lab: Laboratory) -> list[float]:
    """Return the delays in seconds. Afterwards, the node has its GPUs again."""
    watcher = Watcher(lab)
    try:
        return [_turn(lab, watcher) for _turn_number in range(TURNS)]
    finally:
        watcher.close()


def _turn(lab: Laboratory, watcher: Watcher) -> float:
    watcher.wait_for(GPUS)
    lab.kubectl("label", "node", NODE, f"{LABEL}-")
    watcher.wait_for("0")
    module = processes.start(
        "gpu_capacity", {"kubeconfig": lab.kubeconfig, "nodes": {NODE: GPUS}, "wait_timeout": 120}
    )
    lab.kubectl("label", "node", NODE, f"{LABEL}=true")
    published = watcher.wait_for(GPUS)
    return processes.finish(module).ended - published


def describe(delays: Sequence[float]) -> Section:
    delay = statistics.median(delays)
    return Section(
        "From the kubelet to the playbook",
        (Goal("kubelet has published the GPUs → gpu_capacity returns", delay, LIMIT_S, "s"),),
        TEXT,
        ("turns", "median", "longest"),
        ((str(len(delays)), number(delay, "s"), number(max(delays), "s")),),
        (
            f"kubectl get node {NODE} --watch -o jsonpath='{{.status.allocatable}}'",
            f'ansible localhost -m metal.gpu.gpu_capacity -a \'{{"nodes": {{"{NODE}": {GPUS}}}}}\'',
        ),
    )
