# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disk of a node: Debian with systemd, sshd, an engine and a kubelet. No NVIDIA software."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from metal_lab.cache import LAB_SOURCES, built, digest, say

SUITES = {"debian12": "bookworm", "debian13": "trixie"}

PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,python3,python3-apt,python3-debian,kmod,iproute2,"
    "openssh-server,iptables,nftables,ca-certificates,procps,pciutils,sudo,"
    "containernetworking-plugins,initramfs-tools,conntrack,ethtool"
)
# Debian's own engine, which has a package for its command line since Debian 13.
DEBIANS_ENGINE = {
    "bookworm": ("docker.io", "containerd", "runc", "tini"),
    "trixie": ("docker.io", "docker-cli", "containerd", "runc", "tini"),
}
# The packages of the mirror that a node has, by engine.
OURS = {"containerd": ("containerd.io", "kubelet"), "docker": ("cri-dockerd", "kubelet")}

# The host does their work, or they would change the kernel that all nodes share.
MASKED_UNITS = (
    "systemd-udevd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udev-trigger.service",
    "systemd-modules-load.service",
    "systemd-sysctl.service",
    "systemd-networkd-wait-online.service",
    "systemd-timesyncd.service",
    "systemd-binfmt.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "console-getty.service",
    "getty.target",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
)

NODE_FILES = LAB_SOURCES / "node"
HARDWARE_FILES = LAB_SOURCES / "silicon" / "node"


def _run(command: Sequence[str | Path], **options: object) -> None:
    result = subprocess.run(
        [str(word) for word in command],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,  # type: ignore[call-overload]
    )
    if result.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{result.stdout[-3000:]}")


def _base(suite: str) -> Path:
    """Return a folder with `rootfs.tar`, a small Debian with its own engine from its archive."""
    packages = ",".join((PACKAGES, *DEBIANS_ENGINE[suite]))

    def build(out: Path) -> None:
        rootfs = out / "rootfs"
        options = ["--variant=minbase", f"--include={packages}"]
        mirror = os.environ.get("METAL_LAB_DEBIAN_MIRROR")  # default: debootstrap's mirror
        # The namespace removes the mounts that an engine's package makes in its chroot.
        command = ["unshare", "--mount", "debootstrap", *options, suite, str(rootfs)]
        _run([*command, mirror] if mirror else command)
        _run(["tar", "-C", rootfs, "--one-file-system", "-cf", out / "rootfs.tar", "."])
        shutil.rmtree(rootfs)

    return built(f"base-{suite}", digest(packages), f"Debian {suite} (1 minute)", build)


def _package(pool: Path, name: str, suite: str) -> Path:
    """Return the newest .deb of `name`, for `suite` if packages differ between suites."""
    found = sorted(pool.rglob(f"{name}_*.deb"))
    for_suite = [path for path in found if suite in path.name] or found
    if not for_suite:
        raise SystemExit(f"no package {name} in {pool}")
    return for_suite[-1]


def _docker_has(image_name: str) -> bool:
    command = ["docker", "image", "inspect", image_name]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def image(system: str, engine: str, pool: Path) -> str:
    """Return the name of the Docker image of such nodes. The first call builds it."""
    suite = SUITES[system]
    base = _base(suite)
    key = digest(base.name, pool.name, Path(__file__), NODE_FILES, HARDWARE_FILES)
    name = f"metal-gpu-lab/{system}-{engine}:{key}"
    if _docker_has(name):
        return name

    def build(out: Path) -> None:
        rootfs = out / "rootfs"
        rootfs.mkdir()
        _run(["tar", "-C", rootfs, "-xf", base / "rootfs.tar"])

        def chroot(*command: str) -> None:
            # Services start when a node boots, not in this chroot.
            environment = {
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "DEBIAN_FRONTEND": "noninteractive",
            }
            _run(["chroot", rootfs, *command], env=environment)

        if engine != "docker":
            chroot("dpkg", "--purge", *DEBIANS_ENGINE[suite])
            chroot("groupdel", "docker")
        for package in OURS[engine]:
            deb = _package(pool, package, suite)
            shutil.copy(deb, rootfs / "tmp" / deb.name)
            chroot("dpkg", "--install", f"/tmp/{deb.name}")
            (rootfs / "tmp" / deb.name).unlink()
        for folder in (NODE_FILES, HARDWARE_FILES):
            _run(["cp", "-rT", "--no-preserve=ownership", folder, rootfs])
        chroot("/bin/sh", "-eu", "/usr/local/lib/metal-lab/prepare-image", engine)
        for unit in MASKED_UNITS:
            link = rootfs / "etc/systemd/system" / unit
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        archive = subprocess.Popen(
            ["tar", "-C", rootfs, "--one-file-system", "-c", "."], stdout=subprocess.PIPE
        )
        _run(["docker", "import", "-", name], stdin=archive.stdout)
        if archive.wait() != 0:
            raise SystemExit(f"cannot pack the image of {system} nodes with {engine}")
        shutil.rmtree(rootfs)

    folder = built(
        f"node-{system}-{engine}", key, f"the image of {system} nodes with {engine}", build
    )
    if not _docker_has(name):
        say(f"Docker no longer has the image of {system} nodes with {engine}; building it again")
        shutil.rmtree(folder)
        return image(system, engine, pool)
    return name
