# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU hardware of a laboratory node.

hardware.py boot                    at the start of the node (metal-lab-hardware.service)
hardware.py modprobe|rmmod|modinfo|lsmod|mokutil|dmesg ARGUMENT...
hardware.py nvidia-modprobe ARGUMENT...
hardware.py device-files            ub-device-create calls it: all files that can be in /dev
hardware.py persistence on|off      nvidia-persistenced calls it to set the mode
hardware.py fabric VERSION          Fabric Manager calls it to train the GPUs
hardware.py refresh                 after the driver's libraries were replaced
hardware.py fault NAME [ARGUMENT...]
hardware.py faults                  list the faults
"""

from __future__ import annotations

import os
import sys

from simulation import boot, device_files, fabric, kernel_log, keys, kmod, trees
from simulation.faults import FAULTS, FaultError
from simulation.state import Kernel, Machine, Node


def main(arguments: list[str]) -> int:
    node = Node()
    if not arguments:
        sys.exit(__doc__)
    if arguments == ["faults"]:
        print("\n".join(f"{name:26}{fault.__doc__}" for name, fault in FAULTS.items()))
        return 0
    if arguments[0] == "modprobe" and kmod.is_for_the_real_one(arguments[1:]):
        os.execv(kmod.REAL_MODPROBE, ["modprobe", *arguments[1:]])
    if arguments[0] == "modinfo":
        return kmod.modinfo(node, Machine.load(node), arguments[1:])
    if arguments[0] == "mokutil":
        return keys.mokutil(node, Machine.load(node), arguments[1:])
    if arguments[0] == "lsmod":
        return kmod.lsmod(node, Kernel.load(node))
    if arguments[0] == "dmesg":
        return kernel_log.dmesg(node, Kernel.load(node))
    if os.geteuid() != 0:
        sys.exit(f"{arguments[0]}: ERROR: Operation not permitted")
    with node.lock():
        status, came = run(node, *arguments)
    boot.send_events(node, came)  # without the lock, because rules can load more modules
    return status


def run(node: Node, verb: str, *arguments: str) -> tuple[int, list[str]]:
    """Change the state as the verb says, then write all visible files.

    Returns the exit status and the modules that were loaded, in order.
    """
    machine, kernel = Machine.load(node), Kernel.load(node)
    before = list(kernel.modules)
    if kernel.driver:
        absent = [address for address in kernel.persistent if address not in kernel.minors]
        kernel.persistent = absent + trees.read_persistence(node)
    status = change(node, machine, kernel, verb, list(arguments))
    machine.save()
    kernel.save()
    trees.render(node, machine, kernel, trees.make_device_node)
    boot.render_os_release(node, machine)
    return status, [module for module in kernel.modules if module not in before]


def change(node: Node, machine: Machine, kernel: Kernel, verb: str, arguments: list[str]) -> int:
    if verb == "boot":
        boot.mount_trees(node)
        node.modules.mkdir(parents=True, exist_ok=True)
        boot.list_kernels_modules(node, machine)
        if not kernel.file.exists():
            boot.start(node, machine, kernel)
        return 0
    if verb == "modprobe":
        return kmod.modprobe(node, machine, kernel, arguments)
    if verb == "rmmod":
        return kmod.rmmod(node, machine, kernel, arguments)
    if verb == "nvidia-modprobe":
        return device_files.nvidia_modprobe(node, machine, kernel, arguments)
    if verb == "device-files" and not arguments:
        device_files.create(kernel, device_files.possible(kernel))
        return 0
    if verb == "persistence" and arguments in (["on"], ["off"]):
        if arguments == ["on"] and not kernel.driver:
            sys.exit("persistence: the nvidia module is not loaded")
        kernel.persistent = list(kernel.minors) if arguments == ["on"] else []
        device_files.create_for_driver(kernel)
        return 0
    if verb == "fabric" and len(arguments) == 1:
        fabric.train(node, machine, kernel, arguments[0])
        return 0
    if verb == "refresh" and not arguments:
        return 0
    if verb == "fault" and arguments and arguments[0] in FAULTS:
        try:
            FAULTS[arguments[0]](node, machine, kernel, arguments[1:])
        except (FaultError, kmod.KmodError) as error:
            sys.exit(f"{arguments[0]}: {error}")
        return 0
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
