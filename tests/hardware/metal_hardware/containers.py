# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stage 2: containers of a carried containerd, runc and NVIDIA runtime get GPUs, or none.

Nothing of the machine's engines is used or changed: folders, socket, configuration and the kind of
the CDI specification are our own. Only /etc/cdi or /run/cdi gets one file, which goes at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    isolation,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit
from metal_hardware.beliefs import Beliefs

KIND = "hardware.metal-gpu.test/gpu"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE: what a container without GPUs has to get
_ALL = "NVIDIA_VISIBLE_DEVICES=all"
_WAIT_S = 30


class Containers:
    """A containerd of our own, while it runs."""

    def __init__(self, kit: Path, folder: Path) -> None:
        self._kit, self._folder, self._count = kit, folder, 0

    def run(self, *options: str, runtime: Path | None = None) -> dict[str, Any]:
        """Return what the program prints that adds two vectors on each GPU of its container."""
        self._count += 1
        ctr = (self._kit / "bin/ctr", "--address", self._folder / "containerd.sock")
        argv: list[str | Path] = [*ctr, "run", "--rm", "--rootfs", "--runc-binary",
                runtime or self._kit / "bin/runc", *options,
                self._kit / "root", f"hardware-{self._count}", "/bin/add"]  # fmt: skip
        done = subprocess.run(argv, capture_output=True, text=True, timeout=90, check=False)
        try:
            answer: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            return {"error": f"ended with {done.returncode}: {done.stderr[-300:]}", "gpus": []}
        return answer

    def runtime(self, name: str, *, isolated: bool) -> Path:
        """Return NVIDIA's runtime with a configuration of its own, edited as our role does it."""
        home = self._folder / name
        config = home / "nvidia-container-runtime/config.toml"
        config.parent.mkdir(parents=True)
        bin_ = self._kit / "bin"
        text = subprocess.run([bin_ / "nvidia-ctk", "config", "default"], capture_output=True,
                              text=True, check=True).stdout  # fmt: skip
        modes = {"cdi": {"default-kind": KIND, "annotation-prefixes": []}}
        merge = {
            **(isolation.SETTINGS if isolated else {}),
            "nvidia-container-runtime": {
                "mode": "cdi", "runtimes": [f"{bin_ / 'runc'}"], "modes": modes},
        }  # fmt: skip
        desired = edit.apply(edit.parse(text, "toml"), edit.Edits(merge=merge))
        config.write_text(edit.render(text, "toml", desired))
        script = home / "runtime"
        script.write_text(
            f'#!/bin/sh\nXDG_CONFIG_HOME={home} exec {bin_}/nvidia-container-runtime "$@"\n'
        )
        script.chmod(0o755)
        return script


@contextmanager
def _cgroups() -> Iterator[None]:
    """Mount the control groups, where a bare container or virtual machine has none."""
    if any(Path("/sys/fs/cgroup").iterdir()):
        yield
        return
    subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "/sys/fs/cgroup"], check=False)


@contextmanager
def started(kit: Path) -> Iterator[Containers]:
    """Run containerd until the end. Raises OSError if it does not come up."""
    with tempfile.TemporaryDirectory(prefix="metal-gpu-hardware-") as temporary:
        folder = Path(temporary)
        config = folder / "config.toml"
        config.write_text(
            f'version = 3\nroot = "{folder}/root"\nstate = "{folder}/state"\n'
            f'disabled_plugins = ["io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]\n'
            f'[grpc]\naddress = "{folder}/containerd.sock"\n'
            f'[ttrpc]\naddress = "{folder}/ttrpc.sock"\n'
        )
        environment = {**os.environ, "PATH": f"{kit}/bin:{os.environ['PATH']}"}
        with (folder / "log").open("w") as log, _cgroups():
            daemon = subprocess.Popen([kit / "bin/containerd", "--config", config],
                                      env=environment, stdout=log, stderr=log)  # fmt: skip
            try:
                _wait(kit, folder, daemon)
                yield Containers(kit, folder)
            finally:
                daemon.terminate()
                daemon.wait(timeout=_WAIT_S)


def _wait(kit: Path, folder: Path, daemon: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _WAIT_S
    asked: Sequence[str | Path] = (
        kit / "bin/ctr", "--address", folder / "containerd.sock", "version")  # fmt: skip
    while subprocess.run(asked, capture_output=True, check=False).returncode:
        if daemon.poll() is not None or time.monotonic() > end:
            raise OSError(f"containerd does not answer: {(folder / 'log').read_text()[-500:]}")
        time.sleep(0.2)


@contextmanager
def _specified(path: Path) -> Iterator[None]:
    """Put the specification where engines look for it."""
    there = Path("/var/run/cdi/hardware.metal-gpu.test.yaml")
    made = not there.parent.exists()
    there.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copy(path, there)
        yield
    finally:
        there.unlink(missing_ok=True)
        if made:
            there.parent.rmdir()


def prove(beliefs: Beliefs, kit: Path, specification: Path, uuids: Sequence[str]) -> None:
    """Add what containers get: one GPU, all by the variable, and nothing."""
    area = "containers"
    with (
        beliefs.asking(area, "a carried containerd runs"),
        started(kit) as containers,
        _specified(specification),
    ):
        isolated = containers.runtime("isolated", isolated=True)
        open_ = containers.runtime("open", isolated=False)
        for belief, expected, answer in (
            ("a CDI device gives one GPU, and it computes", uuids[:1],
             containers.run("--device", f"{KIND}=0")),
            ("runc without a request gives none", [], containers.run()),
            (f"{_ALL} with runc gives none", [], containers.run("--env", _ALL)),
            ("NVIDIA's runtime without a request gives none", [],
             containers.run(runtime=isolated)),
            (f"{_ALL} with our settings of the toolkit gives none", [],
             containers.run("--env", _ALL, runtime=isolated)),
            (f"{_ALL} without our settings gives all: the row above can fail", uuids,
             containers.run("--env", _ALL, runtime=open_)),
        ):  # fmt: skip
            right = [one["uuid"] for one in answer["gpus"] if not one["wrong"]]
            holds = right == [*expected] and answer["error"] == (0 if expected else NO_DEVICE)
            beliefs.add(area, belief, answer, holds=holds)
