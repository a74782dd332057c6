# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plant nodes of k3s, RKE2 and k0s, and answer for their programs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    plant_services,
    recording,
)

RUNTIME = "/usr/bin/nvidia-container-runtime"
# What is observed of a k3s agent that runs.
HOME = {
    "name": "k3s",
    "unit": "k3s-agent.service",
    "is_managed": True,
    "detects_runtimes": True,
    "watched": None,
    "template": None,
    "template_lists_runtimes": True,
    "runtime_in_path": True,
    "started_after_runtime": False,
    "former_drop_ins": [],
    "host_containerd": False,
}
CONTAINERD = "containerd github.com/k3s-io/containerd/v2 v2.2.0-k3s1\n"
TICKS = os.sysconf("SC_CLK_TCK")


class Scene(NamedTuple):
    """A planted node."""

    name: str
    unit: str
    main: str  # the process of the unit
    starter: tuple[str, str]  # how its version is asked, and the answer
    executables: dict[str, str]  # of processes whose first word is no path
    config: str
    command: str = "agent"


K3S = Scene(
    "k3s-agent",
    "k3s-agent.service",
    "700",
    ("k3s --version", "k3s version v1.35.2+k3s1 (0a1b2c3d)\ngo version go1.25.7\n"),
    {
        "700": "/var/lib/rancher/k3s/data/0a1b/bin/k3s",
        "701": "/var/lib/rancher/k3s/data/0a1b/bin/k3s",
    },
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
)
RKE2 = Scene(
    "rke2-server",
    "rke2-server.service",
    "800",
    ("rke2 --version", "rke2 version v1.35.2+rke2r1 (0a1b2c3d)\ngo version go1.25.7\n"),
    {
        "800": "/usr/local/bin/rke2",
        "801": "/var/lib/rancher/rke2/data/v1/bin/containerd",
        "802": "/var/lib/rancher/rke2/data/v1/bin/kubelet",
    },
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)
K0S = Scene(
    "k0s-worker",
    "k0sworker.service",
    "900",
    ("k0s version", "v1.36.1+k0s.0\n"),
    {},
    "/etc/k0s/containerd.toml",
)


def plant_node(
    root: Path, scene: Scene, *, started_s_ago: float = 3600, path: str = "/usr/bin:/bin"
) -> None:
    """Plant the node; its containerd has run since `started_s_ago`, later than all of its files."""
    texts = parse_scene(recording(f"nodes/{scene.name}.txt"))
    plant_services(root, texts)
    start = str(int((time.monotonic() - started_s_ago) * TICKS))
    for file in texts:
        target = root / file[1:]
        if file.endswith("/stat"):
            target.write_text(target.read_text().replace("@START@", start))
        if file.endswith("/environ"):
            target.write_bytes(f"HOME=/root\0PATH={path}\0TOKEN=CANARY\0".encode())
        before = time.time() - started_s_ago - 60
        os.utime(target, (before, before))
    for pid, program in scene.executables.items():
        link = root / f"proc/{pid}/exe"
        link.unlink()
        link.symlink_to(program)


def rename_unit(root: Path, scene: Scene, unit: str) -> Scene:
    """Give the planted unit another name, as INSTALL_K3S_NAME does."""
    for folder in ("etc/systemd/system", "sys/fs/cgroup/system.slice"):
        (root / folder / scene.unit).rename(root / folder / unit)
    return scene._replace(unit=unit)


def use_engine(root: Path, scene: Scene, endpoint: str) -> None:
    """Let the distribution use another engine, and write its socket where it does."""
    name = f"sys/fs/cgroup/system.slice/{scene.unit}/cgroup.procs"
    (root / name).write_text(f"{scene.main}\n")
    folder = Path(scene.config).parent.parent
    plant(root, {f"{folder}/crictl.yaml": f"runtime-endpoint: {endpoint}\n"})


def install_toolkit(root: Path) -> None:
    """Plant the runtime. It appears now, after containerd started."""
    plant(root, {RUNTIME: "#!\n"})
    (root / RUNTIME[1:]).chmod(0o755)


def programs(scene: Scene, dump: str, *, state: str = "active") -> Programs:
    """Answer for the distribution, and for another containerd on the host that knows nothing."""
    show = (
        f"Id={scene.unit}\nLoadState=loaded\nActiveState={state}\nMainPID={scene.main}\n"
        f"ControlGroup=/system.slice/{scene.unit}\n"
        f"ExecStart={{ path={_starter(scene)} ; argv[]={_starter(scene)} {scene.command} ;"
        " ignore_errors=no ; }\n"
    )
    line, answer = scene.starter
    return Programs(
        {
            "systemctl show": (0, show, ""),
            line: (0, answer, ""),
            "containerd --version": (
                0,
                "containerd github.com/k3s-io/containerd/v2 v2.2.0-k3s1\n",
                "",
            ),
            f"containerd --config {scene.config} config dump": (0, dump, ""),
        }
    )


def _starter(scene: Scene) -> str:
    return f"/usr/local/bin/{scene.starter[0].split()[0]}"
