# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real programs, built from their Go modules and checked by Go's checksum database.

Versions that work together, and their traps: docs/laboratory.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from metal_lab.cache import CACHE, LAB_SOURCES, built, digest, say

KUBERNETES = "1.37.1"
CONTAINERD = "2.4.2"
TOOLKIT = "1.20.1"
DEVICE_PLUGIN = "0.19.3"

# The plugin binds NVML's functions when it calls them first, so they may be missing at link time.
LAZY_NVML = "-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy"


class Program(NamedTuple):
    """Commands built from one module in one call of go."""

    what: str
    commands: tuple[str, ...]  # import paths
    version: str = ""  # for `go install`; empty where `folder` pins it
    folder: str = ""  # with a go.mod of its own, below tests/lab/programs
    ldflags: str = ""
    tags: str = ""
    cgo: bool = False
    cgo_ldflags: str = ""


PROGRAMS = (
    Program(
        f"Kubernetes {KUBERNETES} (the longest: about 6 minutes on 2 cores)",
        tuple(
            f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
                "kubelet",
            )
        ),
        folder="kubernetes",
        # Without these, nodes report v0.0.0-master, and every decision by version goes wrong.
        ldflags=f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
        " -X k8s.io/component-base/version.gitMajor=1"
        " -X k8s.io/component-base/version.gitMinor=37",
    ),
    Program(
        f"containerd {CONTAINERD}",
        tuple(
            f"github.com/containerd/containerd/v2/cmd/{name}"
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        version=CONTAINERD,
        ldflags=f"-X github.com/containerd/containerd/v2/version.Version={CONTAINERD}",
        tags="no_btrfs",
    ),
    Program(
        f"NVIDIA container toolkit {TOOLKIT}",
        tuple(
            f"github.com/NVIDIA/nvidia-container-toolkit/cmd/{name}"
            for name in (
                "nvidia-ctk",
                "nvidia-cdi-hook",
                "nvidia-container-runtime",
                "nvidia-container-runtime-hook",
            )
        ),
        version=TOOLKIT,
        ldflags=f"-X github.com/NVIDIA/nvidia-container-toolkit/internal/info.version={TOOLKIT}",
        cgo=True,
    ),
    Program(
        f"NVIDIA device plugin {DEVICE_PLUGIN}",
        tuple(
            f"github.com/NVIDIA/k8s-device-plugin/cmd/{name}"
            for name in ("nvidia-device-plugin", "gpu-feature-discovery")
        ),
        folder="device-plugin",
        ldflags=f"-X github.com/NVIDIA/k8s-device-plugin/internal/info.version=v{DEVICE_PLUGIN}",
        cgo=True,
        cgo_ldflags=LAZY_NVML,
    ),
)


def _build(program: Program, out: Path) -> None:
    say(f"  {program.what}")
    environment = {
        **os.environ,
        "GOMODCACHE": str(CACHE / "go" / "mod"),
        "GOCACHE": str(CACHE / "go" / "build"),
        "GOFLAGS": "-mod=mod -buildvcs=false -modcacherw",
        "GOBIN": str(out),
        "CGO_ENABLED": "1" if program.cgo else "0",
        "CGO_LDFLAGS": program.cgo_ldflags,
        "CGO_LDFLAGS_ALLOW": ".*",
    }
    options = ["-trimpath", f"-ldflags=-s -w {program.ldflags}"]
    if program.tags:
        options += ["-tags", program.tags]
    if program.folder:
        command = ["go", "build", *options, "-o", f"{out}/", *program.commands]
        cwd = LAB_SOURCES / "programs" / program.folder
    else:
        wanted = [f"{path}@v{program.version}" for path in program.commands]
        command = ["go", "install", *options, *wanted]
        cwd = out
    # A Go program needs no further input; its own words are shown only when it fails.
    result = subprocess.run(
        command,
        check=False,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode != 0:
        raise SystemExit(f"cannot build {program.what}: {' '.join(command)}\n{result.stdout}")


def build() -> Path:
    """Return the folder with all programs, built at the first call."""
    if shutil.which("go") is None:
        raise SystemExit("no Go toolchain on PATH: run scripts/bootstrap, which installs one")

    def build_all(out: Path) -> None:
        for program in PROGRAMS:
            _build(program, out)

    key = digest(repr(PROGRAMS), LAB_SOURCES / "programs")
    return built("programs", key, "the real programs (first run only)", build_all)
