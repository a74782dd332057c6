# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""modprobe, rmmod, modinfo and lsmod for the modules of GPUs, with kmod's messages.

The NVIDIA module on disk is a text that the laboratory's DKMS package installs:

    version=580.178.04
    flavour=open
    signer=CHECKSUM     of the certificate, if the module is signed
    peer_memory=yes     in nvidia-peermem, if the RDMA stack had the API when it was built

Debian gives its file another name, and has modprobe.d say so. Every other module goes to the real
modprobe.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from . import kernel_log, keys, parameters
from .state import Driver, Kernel, Machine, Node

PEERMEM = "nvidia_peermem"
# Modules of the NVIDIA driver, each with the modules that it needs.
NVIDIA_MODULES: dict[str, tuple[str, ...]] = {
    "nvidia": (),
    "nvidia_uvm": ("nvidia",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia_modeset", "nvidia"),
    PEERMEM: ("nvidia",),
}
# The kernel's own, through which programs reach NVSwitches that are behind adapters. They are
# simulated only on machines with such adapters.
ADAPTER_MODULES = {
    "mlx5_ib": "kernel/drivers/infiniband/hw/mlx5/mlx5_ib.ko",
    "ib_umad": "kernel/drivers/infiniband/core/ib_umad.ko",
}
SIMULATED = (*NVIDIA_MODULES, "nouveau", *ADAPTER_MODULES)

MODPROBE_CONFIGURATION = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d")
# The image has the stand-in also at /sbin/modprobe, which NVIDIA's tools call.
REAL_MODPROBE = "/usr/local/lib/metal-lab/real/modprobe"
NOUVEAU_FILE = "kernel/drivers/gpu/drm/nouveau/nouveau.ko"


class KmodError(Exception):
    """What modprobe says before it exits with 1."""


class ModuleNotFound(KmodError):
    pass


# nvidia-current, nvidia-tesla-535, nvidia-current-open, nvidia-current-open-uvm
DEBIANS_NAME = re.compile(
    r"nvidia_(?:current|tesla_\d+)(?:_open)?((?:_uvm|_modeset|_drm|_peermem)?)"
)


def simulated_name(name: str) -> str | None:
    """The simulated module of this name, or None."""
    name = name.replace("-", "_")
    debians = DEBIANS_NAME.fullmatch(name)
    if debians:
        return f"nvidia{debians[1]}"
    return name if name in SIMULATED else None


def driver_file(node: Node) -> Path | None:
    """The nvidia module for the running kernel, the one from DKMS first as in depmod.d."""
    files = sorted(
        node.modules.glob(f"**/{file_stem(node, 'nvidia')}.ko"),
        key=lambda file: "updates" not in file.parts,
    )
    return files[0] if files else None


def file_stem(node: Node, module: str) -> str:
    """The name of a module's file without suffix: its own, or that of modprobe.d's install rule."""
    pattern = re.compile(rf"^\s*install\s+{module}\s.*\bmodprobe\s+_i\s+(\w+)", re.MULTILINE)
    found = [match[1] for text in modprobe_texts(node) for match in pattern.finditer(text)]
    return (found[-1] if found else module).replace("_", "-")


def read_driver(file: Path) -> Driver:
    """Read a text module. Raises KmodError if it is damaged, as a full disk leaves it."""
    fields = dict(re.findall(r"^(\w+)=(.*)$", file.read_text(), re.MULTILINE))
    if "flavour" not in fields:
        raise KmodError(f"ERROR: could not insert '{file.stem}': Exec format error")
    return Driver(fields["version"], fields["flavour"])


def find_file(node: Node, machine: Machine, module: str) -> Path:
    """Path of the module's file. Raises ModuleNotFound."""
    if module == "nouveau" and machine.has_nouveau:
        return node.modules / NOUVEAU_FILE
    if module in ADAPTER_MODULES and machine.management_ports:
        return node.modules / ADAPTER_MODULES[module]
    driver = driver_file(node)
    if module in NVIDIA_MODULES and driver:
        file = driver.with_name(f"{file_stem(node, module)}.ko")
        if module != PEERMEM or file.exists():
            return file
    raise ModuleNotFound(
        f"FATAL: Module {module} not found in directory /lib/modules/{node.release}"
    )


def _existing(node: Node, file: Path) -> Path:
    """The file of a module, or that of nvidia: some stand-ins have no other file."""
    return file if file.exists() else driver_file(node) or file


def is_blacklisted(node: Node, module: str) -> bool:
    pattern = re.compile(
        rf"^\s*(blacklist\s+{module}|install\s+{module}\s+/(usr/)?bin/(true|false))\s*$",
        re.MULTILINE,
    )
    return any(pattern.search(text) for text in modprobe_texts(node))


def modprobe_texts(node: Node) -> Iterator[str]:
    """The files of modprobe.d, with underscores in the names of modules."""
    for text in raw_modprobe_texts(node):
        yield text.replace("-", "_")


def raw_modprobe_texts(node: Node) -> Iterator[str]:
    """The files of modprobe.d as they are, in the order of their names."""
    folders = map(node.path, MODPROBE_CONFIGURATION)
    files = [file for folder in folders for file in folder.glob("*.conf")]
    for file in sorted(files, key=lambda one: one.name):
        if file.is_file():  # not a dangling link
            yield file.read_text()


def followers(node: Node, module: str) -> list[str]:
    """The simulated modules that a softdep loads after a module."""
    pattern = re.compile(rf"^\s*softdep\s+{module}\s+post:\s*(.+)$", re.MULTILINE)
    found = [match[1].split() for text in modprobe_texts(node) for match in pattern.finditer(text)]
    return [name for names in found for name in names if simulated_name(name)]


# ---- loading ----------------------------------------------------------------------------------


def load(node: Node, machine: Machine, kernel: Kernel, module: str) -> list[Path]:
    """Load a module, its dependencies and its softdeps. Returns the inserted files.

    Raises KmodError.
    """
    file = find_file(node, machine, module)
    if module in kernel.modules:
        return []
    inserted = []
    for needed in reversed(NVIDIA_MODULES.get(module, ())):
        inserted += load(node, machine, kernel, needed)
    if module in kernel.modules:  # it has followed one that it needs
        return inserted
    if module == "nouveau":
        bind_free_gpus(machine, kernel, "nouveau")
    elif module in ADAPTER_MODULES:
        pass  # the distribution has signed it, and no GPU needs it
    elif machine.secure_boot and not keys.trusts(machine, _existing(node, file)):
        raise KmodError(f"ERROR: could not insert '{module}': Key was rejected by service")
    elif module == "nvidia":
        _probe_nvidia(machine, kernel, read_driver(file))
        kernel_log.add_load(kernel)
        names = ("nvidia", file.stem)
        kernel.parameters = parameters.of_options(raw_modprobe_texts(node), names)
    elif module == PEERMEM and "peer_memory=yes" not in file.read_text().splitlines():
        raise KmodError(f"ERROR: could not insert '{module}': Invalid argument")
    kernel.modules.append(module)
    inserted.append(file)
    for follower in followers(node, module):
        inserted += load(node, machine, kernel, follower)
    return inserted


def bind_free_gpus(machine: Machine, kernel: Kernel, driver: str) -> list[str]:
    """Bind all GPUs that have no driver. Returns their addresses."""
    free = [gpu["address"] for gpu in machine.gpus if gpu["address"] not in kernel.bound]
    kernel.bound.update(dict.fromkeys(free, driver))
    return free


def _probe_nvidia(machine: Machine, kernel: Kernel, driver: Driver) -> None:
    mine = [
        gpu["address"]
        for gpu in machine.gpus
        if gpu["address"] not in kernel.bound and driver.drives(gpu["gpu"])
    ]
    if not mine:  # as with real ones: no GPU, another driver has it, or it is not supported
        raise KmodError("ERROR: could not insert 'nvidia': No such device")
    kernel.driver = driver
    kernel.bound.update(dict.fromkeys(mine, "nvidia"))
    kernel.minors.update({address: minor for minor, address in enumerate(mine)})


def unload(node: Node, machine: Machine, kernel: Kernel, module: str) -> None:
    """Like modprobe -r: also unload modules that only this one needed. KmodError if in use."""
    find_file(node, machine, module)
    if module not in kernel.modules:
        return
    if users(node, kernel, module):
        raise KmodError(f"FATAL: Module {module} is in use.")
    _remove(kernel, module)
    for needed in NVIDIA_MODULES.get(module, ()):
        if needed in kernel.modules and not users(node, kernel, needed):
            _remove(kernel, needed)


def users(node: Node, kernel: Kernel, module: str) -> list[str]:
    """The users of a module, which prevent that it is unloaded."""
    found = [other for other in kernel.modules if module in NVIDIA_MODULES.get(other, ())]
    if module == "nouveau":
        return [*found, "console"]  # it drives the screen
    if module == "nvidia":
        found += [
            f"{address}, persistent" for address in kernel.persistent if address in kernel.minors
        ]
        found += [f"process {pid}" for pid in nvml_processes(node)]
    return found


def nvml_processes(node: Node) -> list[int]:
    """Processes that use the driver. Real ones hold /dev/nvidiactl, which nothing opens here."""
    found = []
    for maps in node.path("/proc").glob("[0-9]*/maps"):
        try:
            if "/libnvidia-ml.so." in maps.read_text():
                found.append(int(maps.parent.name))
        except OSError:  # the process has ended
            continue
    return found


def evict_nvidia(kernel: Kernel) -> None:
    """Remove the driver even if it is in use, like a power loss."""
    loaded = [module for module in kernel.modules if module in NVIDIA_MODULES]
    kernel.evicted += loaded
    for module in reversed(loaded):
        _remove(kernel, module)


def _remove(kernel: Kernel, module: str) -> None:
    kernel.modules.remove(module)
    if module == "nvidia":
        kernel_log.add(kernel, kernel_log.NO_NVLINK)
        kernel.driver = None
        kernel.parameters = {}
        kernel.fabric = False
    kernel.release_gpus(module)


# ---- commands ---------------------------------------------------------------------------------


def _modprobe_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="modprobe", add_help=False, allow_abbrev=False)
    parser.add_argument("-a", "--all", action="store_true")
    parser.add_argument("-r", "--remove", action="store_true")
    parser.add_argument("-n", "--dry-run", "--show", action="store_true", dest="dry_run")
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-b", "--use-blacklist", action="store_true")
    parser.add_argument("--first-time", action="store_true")
    parser.add_argument("names", nargs="*")
    return parser


def _modules(options: argparse.Namespace) -> list[str]:
    """Without -a, only the first name is a module. The others are its parameters."""
    names: list[str] = options.names
    return names if options.all or options.remove else names[:1]


def is_for_the_real_one(arguments: list[str]) -> bool:
    """Whether modprobe gets no simulated module. Units call it before the hardware is simulated."""
    options, unknown = _modprobe_parser().parse_known_args(arguments)
    return bool(unknown) or not any(simulated_name(name) for name in _modules(options))


def modprobe(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> int:
    """Handle modprobe for simulated modules. Returns the exit status."""
    options, _unknown = _modprobe_parser().parse_known_args(arguments)
    names = _modules(options)
    ours = [name for name in names if simulated_name(name)]
    others = [name for name in names if not simulated_name(name)]

    status = 0
    for name in ours:
        try:
            _modprobe_one(node, machine, kernel, simulated_name(name) or name, options)
        except KmodError as error:
            status = 1
            if not (options.quiet and isinstance(error, ModuleNotFound)):
                print(f"modprobe: {error}", file=sys.stderr)
    if others:
        flags = [argument for argument in arguments if argument.startswith("-")]
        real = subprocess.run([REAL_MODPROBE, *flags, *others], check=False)
        status = status or real.returncode
    return status


def _modprobe_one(
    node: Node, machine: Machine, kernel: Kernel, module: str, options: argparse.Namespace
) -> None:
    if options.use_blacklist and is_blacklisted(node, module):
        return
    if options.first_time and options.remove and module not in kernel.modules:
        raise KmodError(f"FATAL: Module {module} is not in kernel.")
    if options.first_time and not options.remove and module in kernel.modules:
        raise KmodError(f"ERROR: could not insert '{module}': Module already in kernel")
    if options.dry_run:
        needed = () if options.remove else reversed(NVIDIA_MODULES.get(module, ()))
        for each in (*needed, module):
            file = find_file(node, machine, each)
            if options.verbose and not options.remove and each not in kernel.modules:
                print(f"insmod {file}")
    elif options.remove:
        unload(node, machine, kernel, module)
    else:
        for file in load(node, machine, kernel, module):
            if options.verbose:
                print(f"insmod {file}")


def rmmod(node: Node, machine: Machine, kernel: Kernel, arguments: list[str]) -> int:
    status = 0
    for name in (argument for argument in arguments if not argument.startswith("-")):
        module = simulated_name(name)
        if module is None:
            status |= subprocess.run(["/sbin/rmmod", name], check=False).returncode
        elif module not in kernel.modules:
            status = 1
            print(f"rmmod: ERROR: Module {module} is not currently loaded", file=sys.stderr)
        elif users(node, kernel, module):
            status = 1
            print(f"rmmod: ERROR: Module {module} is in use", file=sys.stderr)
        else:
            _remove(kernel, module)
    return status


def modinfo(node: Node, machine: Machine, arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="modinfo", add_help=False, allow_abbrev=False)
    parser.add_argument("-F", "--field")
    parser.add_argument("-n", "--filename", action="store_true")
    parser.add_argument("-k", "--set-version", dest="release", default=node.release)
    parser.add_argument("names", nargs="*")
    options, unknown = parser.parse_known_args(arguments)
    if unknown or not all(simulated_name(name) for name in options.names) or not options.names:
        return subprocess.run(["/sbin/modinfo", *arguments], check=False).returncode

    status = 0
    for name in options.names:
        try:
            fields = module_fields(Node(node.root, options.release), machine, name)
        except ModuleNotFound:
            status = 1
            print(f"modinfo: ERROR: Module {name} not found.", file=sys.stderr)
            continue
        except KmodError:
            status = 1
            words = f"modinfo: ERROR: could not get modinfo from '{name}': Exec format error"
            print(words, file=sys.stderr)
            continue
        wanted = "filename" if options.filename else options.field
        if wanted:
            print("".join(f"{value}\n" for key, value in fields.items() if key == wanted), end="")
        else:
            print("".join(f"{key + ':':<16}{value}\n" for key, value in fields.items()), end="")
    return status


def module_fields(node: Node, machine: Machine, name: str) -> dict[str, str]:
    """The fields that modinfo prints for a simulated module. Raises ModuleNotFound.

    It takes the names of files, and nothing from the rules of modprobe.d.
    """
    module = simulated_name(name) or name
    file = find_file(node, machine, module)
    if file.stem.replace("-", "_") != name.replace("-", "_"):
        raise ModuleNotFound(name)
    common = {"name": module, "vermagic": f"{node.release} SMP preempt mod_unload modversions"}
    if module == "nouveau" or module in ADAPTER_MODULES:
        return {"filename": str(file), "license": "GPL and additional rights", **common}
    driver = read_driver(file.with_name(f"{file_stem(node, 'nvidia')}.ko"))
    return {
        "filename": str(file),
        "version": driver.version,
        "license": "Dual MIT/GPL" if driver.flavour == "open" else "NVIDIA",
        "depends": ",".join(NVIDIA_MODULES[module]),
        **common,
    }


def lsmod(node: Node, kernel: Kernel) -> int:
    """The real one needs /proc/modules, which a kernel without loadable modules does not have."""
    lines = (node.state / "proc-modules").read_text().splitlines()
    print(f"{'Module':<20}{'Size':>10}  Used by")
    for line in lines:
        name, size, count, used_by = line.split()[:4]
        used = "" if used_by == "-" else used_by.rstrip(",")
        print(f"{name:<20}{size:>10}  {count} {used}".rstrip())
    return 0
