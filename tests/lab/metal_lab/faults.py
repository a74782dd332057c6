# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of nodes. The simulated hardware implements the faults of the hardware itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metal_lab import nodes
from metal_lab.state import State

HARDWARE = ("/usr/bin/python3", "/usr/local/lib/metal-lab/hardware.py")

RESTORED = """\
all hardware faults are undone; a device plugin that reported a GPU as unhealthy needs a restart:
tests/lab/lab kubectl -n kube-system rollout restart daemonset nvidia-device-plugin"""


class Script(NamedTuple):
    """A fault as a shell script. It runs as root on the node, with the fault's arguments."""

    what: str
    text: str


SCRIPTS = {
    # Guides of 2018 ask for this feature gate. Admins set it in three places over the years.
    "historical-gate": Script(
        "the feature gate DevicePlugins is set in three places; the kubelet fails to start",
        """
        set -eu
        printf 'featureGates:\\n  DevicePlugins: true\\n' >> /var/lib/kubelet/config.yaml
        echo 'KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true --v=2' > /etc/default/kubelet
        mkdir -p /etc/systemd/system/kubelet.service.d
        printf '%s\\n' '[Service]' \\
            'Environment="KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true"' \\
            > /etc/systemd/system/kubelet.service.d/20-gpu.conf
        systemctl daemon-reload
        systemctl restart kubelet
    """,
    ),
    # The same gate without effect: another file overrides the variable. The kubelet runs.
    "idle-gate": Script(
        "the feature gate DevicePlugins is set, but another file overrides it",
        """
        set -eu
        mkdir -p /etc/systemd/system/kubelet.service.d
        printf '%s\\n' '[Service]' \\
            'Environment="KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true --v=1"' \\
            > /etc/systemd/system/kubelet.service.d/20-gpu.conf
        echo 'KUBELET_EXTRA_ARGS=--v=2' > /etc/default/kubelet
        systemctl daemon-reload
        systemctl restart kubelet
    """,
    ),
    # A machine without an engine. Its kubelet waits for one.
    "no-containerd": Script(
        "containerd and its settings are removed",
        """
        set -eu
        systemctl stop containerd
        dpkg --purge containerd.io
        rm -rf /etc/containerd
    """,
    ),
    # The same for a kubelet that waits for cri-dockerd.
    "no-docker": Script(
        "Docker and its settings are removed",
        """
        set -eu
        dpkg --purge cri-dockerd docker.io docker-cli containerd runc \\
            docker-ce docker-ce-cli containerd.io
        rm -rf /etc/docker /etc/containerd
        find /srv/docker /var/lib/docker /var/lib/containerd -mindepth 1 -delete
    """,
    ),
    # Leftovers of guides of 2016 and 2018: nvidia-docker v1 with a driver volume and a container
    # that uses it, nvidia-docker2, and the repositories of both.
    "nvidia-docker": Script(
        "leftovers of nvidia-docker v1 and nvidia-docker2",
        r"""
        set -eu
        install_package() {
            tree=/tmp/$1
            mkdir -p "$tree/DEBIAN"
            printf '%s\n' "Package: $1" "Version: $2" 'Architecture: all' 'Description: left over' \
                'Maintainer: example <example@example.org>' > "$tree/DEBIAN/control"
            dpkg-deb --build "$tree" > /dev/null
            dpkg --install "$tree.deb"
            rm -r "$tree" "$tree.deb"
        }
        unit=/tmp/nvidia-docker/lib/systemd/system/nvidia-docker.service
        mkdir -p "${unit%/*}" /tmp/nvidia-docker/DEBIAN
        printf '[Service]\nExecStart=/usr/bin/python3 %s\n' \
            /usr/local/lib/metal-lab/nvidia-docker-plugin.py > "$unit"
        printf '#!/bin/sh\nsystemctl stop nvidia-docker\n' > /tmp/nvidia-docker/DEBIAN/prerm
        chmod 755 /tmp/nvidia-docker/DEBIAN/prerm
        install_package nvidia-docker 1.0.1-1
        install_package nvidia-container-runtime 3.14.0-1
        install_package nvidia-docker2 2.14.0-1
        for list in nvidia-docker nvidia-container-runtime; do
            echo '# deb https://example.org/ /' > "/etc/apt/sources.list.d/$list.list"
        done
        systemctl daemon-reload
        systemctl start nvidia-docker
        docker volume create --driver nvidia-docker nvidia_driver_390.25
        docker run --detach --name training-2018 --entrypoint sleep \
            --volume nvidia_driver_390.25:/usr/local/nvidia:ro docker.io/library/busybox:1.35 3600
    """,
    ),
    # The admin has installed the distribution's driver and rebooted.
    "debian-driver": Script(
        "the driver of Debian 13 is installed",
        """
        set -eu
        list=/etc/apt/sources.list.d
        sed 's|/debian/ /|/debian-non-free/ /|' "$list/debian.list" > "$list/non-free.list"
        apt-get --quiet update
        DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes --no-install-recommends install \\
            "linux-headers-$(uname -r)" nvidia-open-kernel-dkms nvidia-smi libcuda1 \\
            nvidia-persistenced
        modprobe --all $(cat /etc/modules-load.d/nvidia.conf)
        systemctl restart nvidia-persistenced.service
    """,
    ),
    # A stand-in for update-initramfs: containers have no kernel and no initial ramdisk.
    "initial-ramdisk": Script(
        "the node has an initial ramdisk with nouveau in it",
        """
        set -eu
        cat > /usr/sbin/update-initramfs <<'END'
#!/bin/sh
cat /etc/modprobe.d/*.conf > "/boot/initrd.img-$(uname -r)"
END
        chmod +x /usr/sbin/update-initramfs
        mkdir -p /boot
        echo nouveau > "/boot/initrd.img-$(uname -r)"
    """,
    ),
    # A playbook loses its connection. Processes on the node keep running.
    "cut-ssh": Script(
        "SSH connections break and new ones fail; processes on the node keep running",
        """
        set -eu
        systemctl stop ssh.socket ssh.service
        pkill --signal KILL --exact 'sshd|sshd-session|sshd-auth' || test $? = 1
    """,
    ),
    "restore-ssh": Script(
        "SSH works again",
        "systemctl start ssh.service",
    ),
    "disk-full": Script(
        "DIRECTORY [FILES]: its disk is full; FILES small files still fit",
        """
        set -eu
        copy=$(mktemp --directory)
        cp --archive "$1/." "$copy"
        mount -t tmpfs -o size=1m,mode=755 full "$1"
        cp --archive "$copy/." "$1"
        rm --recursive "$copy"
        dd if=/dev/zero of="$1/.full" bs=4096 2> /dev/null || true
        truncate --size=-$((4096 * ${2:-0})) "$1/.full"
    """,
    ),
    "disk-freed": Script(
        "DIRECTORY: its disk has space again",
        'umount "$1"',
    ),
    # The admin's own check runs before each start of a unit.
    "refuse-start": Script(
        "UNIT TEST TEXT: if the command TEST fails, the unit prints TEXT and does not start",
        """
        set -eu
        check=/usr/local/sbin/check-$1 drop_ins=/etc/systemd/system/$1.service.d
        printf '#!/bin/sh\\nif ! { %s; }; then echo "%s"; exit 1; fi\\n' "$2" "$3" > "$check"
        chmod +x "$check"
        mkdir -p "$drop_ins"
        printf '[Service]\\nExecStartPre=%s\\n' "$check" > "$drop_ins/30-check.conf"
        systemctl daemon-reload
    """,
    ),
    "permit-start": Script(
        "UNIT: undo refuse-start",
        """
        set -eu
        rm "/etc/systemd/system/$1.service.d/30-check.conf" "/usr/local/sbin/check-$1"
        systemctl daemon-reload
    """,
    ),
    # Another process works on packages and does not end.
    "lock-packages": Script(
        "a process holds the package manager's lock and does not end",
        """
        set -eu
        cat > /usr/local/sbin/unattended-upgrade <<'END'
import fcntl, signal
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
signal.pause()
END
        systemd-run --quiet --unit=metal-lab-lock \\
            /usr/bin/python3 /usr/local/sbin/unattended-upgrade
    """,
    ),
    "free-packages": Script(
        "the package manager's lock is free",
        "systemctl stop metal-lab-lock",
    ),
    "no-sudo": Script(
        "sudo asks for a password",
        "echo 'admin ALL=(ALL) ALL' > /etc/sudoers.d/zz-password",
    ),
    "sudo": Script(
        "sudo asks for no password",
        "rm /etc/sudoers.d/zz-password",
    ),
    # The kubelet keeps running with the configuration that it read when it started.
    "invalid-kubelet-config": Script(
        "the kubelet's configuration is invalid YAML; the kubelet keeps running",
        "printf 'evictionHard: [}\\n' >> /var/lib/kubelet/config.yaml",
    ),
    # containerd keeps running with the configuration that it read when it started.
    "invalid-containerd-config": Script(
        "containerd's configuration is invalid TOML; containerd keeps running",
        """
        set -eu
        printf '[plugins\\n  x = ,\\n' >> /etc/containerd/config.toml
    """,
    ),
}


def inject(state: State, node: str, fault: str, arguments: Sequence[str]) -> str:
    """Inject `fault` into `node`. Return the node's output."""
    if fault in SCRIPTS:
        return nodes.execute(state, node, ["sh", "-c", SCRIPTS[fault].text, fault, *arguments])
    hardware = nodes.execute(state, node, [*HARDWARE, "faults"])
    if fault == "list":
        scripts = [f"{name:26}{script.what}" for name, script in SCRIPTS.items()]
        return "\n".join([*scripts, hardware])
    if fault not in [line.split()[0] for line in hardware.splitlines()]:
        raise SystemExit(f"no fault {fault!r}; to list the faults: tests/lab/lab fault {node} list")
    output = nodes.execute(state, node, [*HARDWARE, "fault", fault, *arguments])
    return RESTORED if fault == "restore" else output
