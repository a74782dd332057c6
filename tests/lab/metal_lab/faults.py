# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be broken on a node. Faults of the hardware are the simulated hardware's own verbs."""

from __future__ import annotations

from collections.abc import Sequence

from metal_lab import nodes
from metal_lab.state import State

HARDWARE = ("/usr/bin/python3", "/usr/local/lib/metal-lab/hardware.py")

RESTORED = """\
the hardware is whole again; a device plugin that called a GPU unhealthy still does, until
tests/lab/lab kubectl -n kube-system rollout restart daemonset nvidia-device-plugin"""

# Shell scripts, run as root in the node.
SCRIPTS = {
    # The article's step of 2018, as three generations of administrators wrote it down.
    "historical-gate": """
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
    # A machine that nobody has brought an engine to yet; its kubelet waits for one.
    "no-containerd": """
        set -eu
        systemctl stop containerd
        dpkg --purge containerd.io
        rm -rf /etc/containerd
    """,
    # The same, of a node whose kubelet waits for cri-dockerd.
    "no-docker": """
        set -eu
        dpkg --purge cri-dockerd docker.io docker-cli containerd runc \\
            docker-ce docker-ce-cli containerd.io
        rm -rf /etc/docker /etc/containerd
        find /srv/docker /var/lib/docker /var/lib/containerd -mindepth 1 -delete
    """,
    # What update-initramfs would leave behind; containers have no kernel, so no initial ramdisk.
    "initial-ramdisk": """
        set -eu
        cat > /usr/sbin/update-initramfs <<'END'
#!/bin/sh
cat /etc/modprobe.d/*.conf > "/boot/initrd.img-$(uname -r)"
END
        chmod +x /usr/sbin/update-initramfs
        mkdir -p /boot
        echo nouveau > "/boot/initrd.img-$(uname -r)"
    """,
    # The network goes away under a playbook: whatever runs on the node runs on.
    "cut-ssh": """
        set -eu
        systemctl stop ssh.socket ssh.service
        pkill --signal KILL --exact 'sshd|sshd-session|sshd-auth' || test $? = 1
    """,
    "restore-ssh": "systemctl start ssh.service",
    # A comma where none belongs: containerd still runs, with what it read at its start.
    "invalid-containerd-config": """
        set -eu
        printf '[plugins\\n  x = ,\\n' >> /etc/containerd/config.toml
    """,
}


def inject(state: State, node: str, fault: str, arguments: Sequence[str]) -> str:
    """Break `fault` on `node`; return what the node said."""
    if fault in SCRIPTS:
        return nodes.execute(state, node, ["sh", "-c", SCRIPTS[fault]])
    hardware = nodes.execute(state, node, [*HARDWARE, "faults"])
    if fault == "list":
        return "\n".join([*SCRIPTS, hardware])
    if fault not in [line.split()[0] for line in hardware.splitlines()]:
        raise SystemExit(f"no fault {fault!r}; tests/lab/lab fault {node} list shows what there is")
    output = nodes.execute(state, node, [*HARDWARE, "fault", fault, *arguments])
    return RESTORED if fault == "restore" else output
