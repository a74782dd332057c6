# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disk of a node: Debian with systemd, sshd, an engine and a kubelet. No NVIDIA software.

A node of Red Hat's family has a Debian, too, but dnf and rpm with their own database instead of apt
and dpkg. A node of Ubuntu has a real Ubuntu, and only its kernel is a stand-in.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from metal_lab import rpm_packages, ubuntu_base
from metal_lab.cache import FILES, built, digest, say
from metal_lab.description import REDHAT, SUITES, UBUNTU

PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,python3,python3-apt,python3-debian,kmod,iproute2,"
    "openssh-server,iptables,nftables,ca-certificates,procps,pciutils,sudo,"
    "containernetworking-plugins,initramfs-tools,conntrack,ethtool"
)
REDHAT_PACKAGES = (
    "systemd,systemd-sysv,dbus,udev,python3,kmod,iproute2,openssh-server,iptables,nftables,"
    "ca-certificates,procps,pciutils,sudo,containernetworking-plugins,conntrack,ethtool,"
    "dnf,dnf-plugins-core,rpm"
)
# What an installation of Ubuntu has besides.
UBUNTU_PACKAGES = f"{PACKAGES},unattended-upgrades"
# Debian's own packages of an engine. Docker's command line has its own since Debian 13.
DEBIANS_ENGINE = {
    ("debian-containerd", "debian12"): ("containerd", "runc"),
    ("debian-containerd", "debian13"): ("containerd", "runc"),
    ("docker", "debian12"): ("docker.io", "containerd", "runc", "tini"),
    ("docker", "debian13"): ("docker.io", "docker-cli", "containerd", "runc", "tini"),
    # The libraries of CRI-O's crun and conmon, and what loads images, because CRI-O does not.
    ("crio", "debian13"): ("libyajl2", "libglib2.0-0t64", "libseccomp2", "skopeo"),
}

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

# Services start when a node boots, not in the chroot of its image.
CHROOT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}

NODE_FILES = FILES / "node"
REDHAT_FILES = FILES / "node_redhat"
UBUNTU_FILES = FILES / "node_ubuntu"
HARDWARE_FILES = Path(__file__).parent / "silicon" / "node"


def program(engine: str) -> str:
    """Return the program of an engine, which is also the name of its service."""
    return engine.removeprefix("debian-")


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


def base(system: str, engine: str) -> Path:
    """Return a folder with `rootfs.tar`: a small system, with its own packages of the engine."""
    mirror = os.environ.get("METAL_LAB_DEBIAN_MIRROR")  # default: debootstrap's mirror
    name, packages = "Debian", ",".join((PACKAGES, *DEBIANS_ENGINE.get((engine, system), ())))
    if system in UBUNTU:
        name, suite, packages = "Ubuntu", ubuntu_base.suite(system), UBUNTU_PACKAGES
    elif system in REDHAT:
        suite, packages = rpm_packages.SYSTEMS[system]["suite"], REDHAT_PACKAGES
    else:
        suite = SUITES[system]

    def build(out: Path) -> None:
        rootfs = out / "rootfs"
        options: list[str] = []
        source = [mirror] if mirror else []
        if system in UBUNTU:
            options, source = ubuntu_base.options(system, out)
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", *options]
        # The namespace removes the mounts that an engine's package makes in its chroot.
        _run(["unshare", "--mount", *command, suite, rootfs, *source])
        _run(["tar", "-C", rootfs, "--one-file-system", "-cf", out / "rootfs.tar", "."])
        shutil.rmtree(rootfs)

    what = f"{name} {suite} for nodes with {engine} (1 minute)"
    place = suite if system in SUITES else system
    return built(f"base-{place}-{engine}", digest(packages), what, build)


def _write_os_release(rootfs: Path, values: Mapping[str, str]) -> None:
    text = "".join(f'{name}="{value}"\n' for name, value in values.items())
    (rootfs / "usr/lib/os-release").write_text(text)
    (rootfs / "etc/redhat-release").write_text(f"{values['NAME']} release {values['VERSION']}\n")


def _docker_has(image_name: str) -> bool:
    command = ["docker", "image", "inspect", image_name]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def image(system: str, engine: str, base: Path, packages: Sequence[Path]) -> str:
    """Return the name of the Docker image of such nodes. The first call builds it.

    `packages` are folders with packages that such a node has.
    """
    what = f"the image of {system} nodes with {engine}"
    inputs = [Path(__file__), NODE_FILES, HARDWARE_FILES]
    of_system = REDHAT_FILES if system in REDHAT else UBUNTU_FILES if system in UBUNTU else None
    inputs += [of_system] if of_system else []
    if system in REDHAT:
        inputs.append(rpm_packages.RECORD)
    key = digest(base.name, *(folder.name for folder in packages), *inputs)
    name = f"metal-lab/{system}-{engine}:{key}"
    if _docker_has(name):
        return name

    def build(out: Path) -> None:
        rootfs = out / "rootfs"
        rootfs.mkdir()
        _run(["tar", "-C", rootfs, "-xf", base / "rootfs.tar"])

        def chroot(*command: str) -> None:
            _run(["chroot", rootfs, *command], env=CHROOT)

        for debs in filter(None, (sorted(folder.glob("*.deb")) for folder in packages)):
            copies = [rootfs / "tmp" / deb.name for deb in debs]
            for deb, copy in zip(debs, copies, strict=True):
                shutil.copy(deb, copy)
            # The packages of a folder can need each other.
            chroot("dpkg", "--install", *(f"/tmp/{deb.name}" for deb in debs))
            for copy in copies:
                copy.unlink()
        for folder in (NODE_FILES, HARDWARE_FILES, *([of_system] if of_system else [])):
            _run(["cp", "-rT", "--no-preserve=ownership", folder, rootfs])
        if system in REDHAT:
            for rpm in (rpm for folder in packages for rpm in sorted(folder.glob("*.rpm"))):
                shutil.copy(rpm, rootfs / "tmp" / rpm.name)
            chroot("/bin/sh", "-eu", "/usr/local/lib/metal-lab/prepare-redhat")
            _write_os_release(rootfs, rpm_packages.SYSTEMS[system]["os_release"])
        chroot("/bin/sh", "-eu", "/usr/local/lib/metal-lab/prepare-image", program(engine))
        for unit in MASKED_UNITS:
            link = rootfs / "etc/systemd/system" / unit
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        archive = subprocess.Popen(
            ["tar", "-C", rootfs, "--one-file-system", "-c", "."], stdout=subprocess.PIPE
        )
        _run(["docker", "import", "-", name], stdin=archive.stdout)
        if archive.wait() != 0:
            raise SystemExit(f"cannot pack {what}")
        shutil.rmtree(rootfs)

    folder = built(f"node-{system}-{engine}", key, what, build)
    if not _docker_has(name):
        say(f"Docker no longer has {what}; building it again")
        shutil.rmtree(folder)
        return image(system, engine, base, packages)
    return name
