# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults of nodes. The simulated hardware implements the faults of the hardware itself.

A fault is something that every cluster can meet. What only one project knows about is a scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metal_lab import build_faults, nodes
from metal_lab.state import State

HARDWARE = ("/usr/bin/python3", "/usr/local/lib/metal-lab/hardware.py")

RESTORED = """\
all hardware faults are undone; a device plugin that reported a GPU as unhealthy needs a restart"""


class Script(NamedTuple):
    """A fault as a shell script. It runs as root on the node, with the fault's arguments."""

    what: str
    text: str


SCRIPTS = {
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
    **{name: Script(*script) for name, script in build_faults.scripts().items()},
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
        raise SystemExit(f"no fault {fault!r}; to list the faults: lab fault {node} list")
    output = nodes.execute(state, node, [*HARDWARE, "fault", fault, *arguments])
    return RESTORED if fault == "restore" else output
