# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated node in a planted directory, for the tests of the simulated kernel."""

import json
from pathlib import Path

import yaml
from simulation import boot, device_files, kmod, trees
from simulation.faults import FAULTS
from simulation.state import Kernel, Machine, Node

import metal_lab
from metal_lab.silicon.machine import machine_json

LAB = Path(metal_lab.__file__).parent
RELEASE = "6.1.0-26-amd64"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-sandboxutils.so.580.178.04"

DESCRIPTIONS = {
    name: yaml.safe_load((LAB / "files/machines" / f"{name}.yml").read_text())
    for name in ("p100x4", "t4x1", "h100x8", "a100x1", "a100x8", "b200x8")
}


class Rig:
    """A node in a planted directory, with a driver on its disk."""

    def __init__(self, root, machine, flavour="proprietary", version="580.178.04"):
        self.node = Node(root, RELEASE)
        self.node.state.mkdir(parents=True)
        description = json.dumps(machine_json(DESCRIPTIONS[machine], "gpu-1"))
        self.write("/usr/local/lib/metal-lab/machine.json", description)
        self.write(LIBRARY, "head of a library\n")
        if flavour:
            self.write(
                f"/lib/modules/{RELEASE}/updates/dkms/nvidia.ko",
                f"version={version}\nflavour={flavour}\n",
            )
        self.machine, self.kernel = Machine.load(self.node), Kernel.load(self.node)

    def write(self, path, content):
        file = self.node.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def read(self, path):
        return self.node.path(path).read_text()

    def modprobe(self, *arguments):
        status = kmod.modprobe(self.node, self.machine, self.kernel, list(arguments))
        self.render()
        return status

    def nvidia_modprobe(self, *arguments):
        status = device_files.nvidia_modprobe(self.node, self.machine, self.kernel, list(arguments))
        self.render()
        return status

    def fault(self, name, *arguments):
        FAULTS[name](self.node, self.machine, self.kernel, list(arguments))
        self.render()

    def render(self):
        trees.render(self.node, self.machine, self.kernel, lambda path, *_: Path(path).touch())

    def create_all(self):
        """As ub-device-create does."""
        device_files.create(self.kernel, device_files.possible(self.kernel))
        self.render()

    def reboot(self):
        self.machine.save()
        self.kernel = Kernel(self.kernel.file)
        boot.start(self.node, self.machine, self.kernel)
        self.render()

    def drivers(self):
        links = self.node.path("/sys/bus/pci/devices").glob("*/driver")
        return {link.parent.name: link.readlink().name for link in links if link.is_symlink()}

    def devices(self):
        return sorted(file.name for file in self.node.path("/dev").iterdir())

    def states(self):
        """What NVML will say of each GPU, by address."""
        words = [line.split() for line in self.read(LIBRARY).splitlines() if line[:4] == "gpu "]
        rows = [dict(word.split("=", 1) for word in line if "=" in word) for line in words]
        return {row["address"]: row["state"] for row in rows}
