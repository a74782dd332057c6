# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real programs, built from their Go modules and checked by Go's checksum database."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from metal_lab.cache import CACHE, FILES, built, digest
from metal_lab.versions import (
    CONTAINER_TOOLKIT,
    CONTAINERD,
    CONTAINERD_2_3,
    CRI_DOCKERD,
    CRIO,
    DEVICE_PLUGIN,
    DOCKER,
    KUBERNETES,
    KUBERNETES_MINOR,
    MOBY,
    REGISTRY,
    RUNC,
)

# The plugin binds NVML's functions at their first call, so they may be missing at link time.
LAZY_NVML = "-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy"


class Program(NamedTuple):
    """Commands built from one module in one call of go."""

    what: str
    commands: tuple[str, ...]  # import paths
    module: str = ""  # the module to build in, with the requirements of its own go.mod
    version: str = ""  # of the module
    folder: str = ""  # instead of `module`: a folder in files/programs with its own go.mod
    ldflags: str = ""
    tags: str = ""
    cgo: bool = False
    cgo_ldflags: str = ""
    c_programs: Mapping[str, str] = MappingProxyType({})  # name → folder of its sources in C


def _commands(path: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{path}/cmd/{name}" for name in names)


def _containerd(version: str, *names: str) -> Program:
    module = "github.com/containerd/containerd/v2"
    return Program(
        f"containerd {version}",
        _commands(module, *names),
        module=module,
        version=version,
        ldflags=f"-X {module}/version.Version={version}",
        tags="no_btrfs",
    )


PROGRAMS = {
    "kubernetes": Program(
        f"Kubernetes {KUBERNETES} (about 6 minutes on 2 cores)",
        _commands(
            "k8s.io/kubernetes",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubectl",
            "kubelet",
        ),
        # Its own go.mod replaces modules by folders that the published module does not have.
        folder="kubernetes",
        # Without these, nodes report v0.0.0-master, and decisions by version are wrong.
        ldflags=f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES}"
        f" -X k8s.io/component-base/version.gitMajor={KUBERNETES_MINOR.partition('.')[0]}"
        f" -X k8s.io/component-base/version.gitMinor={KUBERNETES_MINOR.partition('.')[2]}",
    ),
    "containerd": _containerd(CONTAINERD, "containerd", "containerd-shim-runc-v2", "ctr"),
    "containerd-2.3": _containerd(CONTAINERD_2_3, "containerd"),
    "runc": Program(
        f"runc {RUNC}",
        ("github.com/opencontainers/runc",),
        module="github.com/opencontainers/runc",
        version=RUNC,
        # Static: the nodes' C library differs from this machine's.
        ldflags=f"-linkmode=external -extldflags=-static -X main.version={RUNC}",
        tags="seccomp,netgo,osusergo",
        cgo=True,
    ),
    "docker": Program(
        f"Docker Engine {DOCKER} (4 minutes)",
        _commands("github.com/moby/moby/v2", "dockerd", "docker-proxy"),
        module="github.com/moby/moby/v2",
        version=MOBY,
        ldflags=f"-X github.com/moby/moby/v2/dockerversion.Version={DOCKER}"
        f" -X github.com/moby/moby/v2/dockerversion.GitCommit=v{MOBY}",
        tags="exclude_graphdriver_btrfs",
    ),
    "docker-cli": Program(
        f"Docker command line {DOCKER}",
        _commands("github.com/docker/cli", "docker"),
        module="github.com/docker/cli",
        version=f"{DOCKER}+incompatible",
        ldflags=f"-X github.com/docker/cli/cli/version.Version={DOCKER}",
    ),
    "cri-dockerd": Program(
        f"cri-dockerd {CRI_DOCKERD}",
        ("github.com/Mirantis/cri-dockerd",),
        module="github.com/Mirantis/cri-dockerd",
        version=CRI_DOCKERD,
        ldflags=f"-X github.com/Mirantis/cri-dockerd/cmd/version.Version={CRI_DOCKERD}",
    ),
    "cri-o": Program(
        f"CRI-O {CRIO} (2 minutes)",
        _commands("github.com/cri-o/cri-o", "crio"),
        module="github.com/cri-o/cri-o",
        version=CRIO,
        # The keys of images are checked in Go, and the nodes have no btrfs.
        tags="containers_image_openpgp,seccomp,exclude_graphdriver_btrfs,btrfs_noversion",
        cgo=True,
        c_programs={"pinns": "pinns/src"},
    ),
    "container-toolkit": Program(
        f"NVIDIA container toolkit {CONTAINER_TOOLKIT}",
        _commands(
            "github.com/NVIDIA/nvidia-container-toolkit",
            "nvidia-ctk",
            "nvidia-cdi-hook",
            "nvidia-container-runtime",
            "nvidia-container-runtime-hook",
        ),
        module="github.com/NVIDIA/nvidia-container-toolkit",
        version=CONTAINER_TOOLKIT,
        ldflags="-X github.com/NVIDIA/nvidia-container-toolkit/internal/info.version="
        + CONTAINER_TOOLKIT,
        cgo=True,
    ),
    "device-plugin": Program(
        f"NVIDIA device plugin {DEVICE_PLUGIN}",
        _commands("github.com/NVIDIA/k8s-device-plugin", "nvidia-device-plugin"),
        module="github.com/NVIDIA/k8s-device-plugin",
        version=DEVICE_PLUGIN,
        ldflags=f"-X github.com/NVIDIA/k8s-device-plugin/internal/info.version=v{DEVICE_PLUGIN}",
        cgo=True,
        cgo_ldflags=LAZY_NVML,
    ),
    "registry": Program(
        f"the registry of the distribution project {REGISTRY} (3 minutes)",
        _commands("github.com/distribution/distribution/v3", "registry"),
        module="github.com/distribution/distribution/v3",
        version=REGISTRY,
        ldflags=f"-X github.com/distribution/distribution/v3/version.version=v{REGISTRY}",
    ),
}


def _go(words: Sequence[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run go with the laboratory's caches."""
    return subprocess.run(
        ["go", *words],
        check=False,
        cwd=cwd,
        env={
            **os.environ,
            "GOMODCACHE": str(CACHE / "go" / "mod"),
            "GOCACHE": str(CACHE / "go" / "build"),
            "GOFLAGS": "-mod=mod -buildvcs=false -modcacherw",
            **environment,
        },
        capture_output=True,
        text=True,
    )


@contextmanager
def _sources(program: Program) -> Iterator[Path]:
    """Yield the folder to build in: a copy, because go can write to it."""
    with tempfile.TemporaryDirectory() as temporary:
        sources = Path(temporary) / "module"
        if program.folder:
            shutil.copytree(FILES / "programs" / program.folder, sources)
            yield sources
            return
        module = f"{program.module}@v{program.version}"
        result = _go(["mod", "download", "-json", module], Path(temporary))
        if result.returncode != 0:
            raise SystemExit(f"cannot fetch {module}: {result.stdout}{result.stderr}")
        shutil.copytree(json.loads(result.stdout)["Dir"], sources)
        # Docker's command line is not a Go module yet: its go.mod is named vendor.mod.
        for kind in ("mod", "sum"):
            if (sources / f"vendor.{kind}").exists():
                (sources / f"vendor.{kind}").rename(sources / f"go.{kind}")
        yield sources


def _compile(sources: Path, target: Path) -> None:
    """Compile a program in C. It is static, because the nodes' C library differs."""
    options = ("-std=c99", "-Os", "-static", "-s", "-o", str(target))
    files = map(str, sorted(sources.glob("*.c")))
    command = ["gcc", *options, *files]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"cannot build {target.name}:\n{result.stderr}")


def _build(program: Program, out: Path) -> None:
    options = ["-trimpath", f"-ldflags=-s -w {program.ldflags}"]
    if program.tags:
        options += ["-tags", program.tags]
    with _sources(program) as sources:
        result = _go(
            ["build", *options, "-o", f"{out}/", *program.commands],
            sources,
            CGO_ENABLED="1" if program.cgo else "0",
            CGO_LDFLAGS=program.cgo_ldflags,
            CGO_LDFLAGS_ALLOW=".*",
        )
        if result.returncode == 0:
            for name, folder in program.c_programs.items():
                _compile(sources / folder, out / name)
    if result.returncode != 0:
        raise SystemExit(f"cannot build {program.what}:\n{result.stdout}{result.stderr}")


def build(name: str) -> Path:
    """Return the folder with the commands of a program. The first call builds them."""
    program = PROGRAMS[name]
    inputs = [FILES / "programs" / program.folder] if program.folder else []
    key = digest(repr(program), *inputs)
    return built(f"program-{name}", key, program.what, partial(_build, program))
