# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the kernel says when a GPU does not start: patterns of lines, causes and remedies.

A pattern is in the syntax that Python and journalctl (PCRE2) share, and matches within one line.
The rows that tell a cause come first, and those that only tell that something failed come last.

Source: tests/recorded/driver_words.yml
"""

from __future__ import annotations

import re
from typing import NamedTuple

OPEN, NEEDS_OPEN, LEGACY, RELEASE = "open", "needs open", "legacy", "release"
BOUND, SIGNATURE, MISMATCH, SYMBOLS = "bound", "signature", "mismatch", "symbols"
CONFIDENTIAL, INIT = "confidential", "init"


class Words(NamedTuple):
    """Lines of one kind."""

    kind: str
    pattern: str
    cause: str
    remedy: str
    is_generic: bool = False  # says that a GPU did not start, and not why
    is_of_node: bool = False  # is about no single GPU


ROWS = (
    Words(
        OPEN,
        r"not supported by open(?: nvidia\.ko)?",
        "The open kernel module does not drive GPUs before Turing: they have no system processor "
        "(GSP).",
        "install the proprietary module of the same driver instead of the open one; a GPU that "
        "needs the open module, such as Blackwell, cannot share a node with this one",
    ),
    Words(
        NEEDS_OPEN,
        r"requires use of the NVIDIA open kernel modules",
        "The proprietary kernel module does not drive this GPU, as all from Blackwell on.",
        "install the open kernel module of the same driver instead of the proprietary one: "
        "`nvidia_driver_flavour: auto` chooses it; a GPU before Turing cannot share a node with it",
    ),
    Words(
        LEGACY,
        r"supported through the NVIDIA \d+\.xx Legacy|ignoring the legacy GPU",
        "The driver no longer supports the GPU; an older branch does.",
        "remove the driver, and install the branch that the line names: the role chooses it unless "
        "nvidia_driver_version or nvidia_driver_branch asks for another one",
        is_of_node=True,
    ),
    Words(
        RELEASE,
        r"installed in this system is not supported by the",
        "The driver does not know the GPU: its branch is too old or too new for it; or the GPU is "
        "a part of one (vGPU) or in confidential computing mode, which need other drivers; or one "
        "of several equal GPUs is broken.",
        "install a branch that supports the GPU; if this one does, ask who runs the virtual "
        "machine for the guest driver of the vGPU, and whether confidential computing is on",
    ),
    Words(
        BOUND,
        r"is already bound to \S+",
        "Another kernel module drives the GPU.",
        "block the module that the line names in a file of /etc/modprobe.d, rebuild the initial "
        "ramdisk (`update-initramfs -u -k all`, or `dracut --regenerate-all --force`) and reboot; "
        "a module with vfio in its name holds the GPU for virtual machines",
    ),
    Words(
        "address space",
        r"BAR ?\d+ is 0M @ 0x0|request_mem_region failed for 0M|PCI I/O region assigned to your "
        r"NVIDIA device|BIOS may have misconfigured|Error while attempting to resize PCIe BARs",
        "The firmware of the machine, or the hypervisor, gave the GPU no address range on the PCI "
        "bus (BAR). The GPU is not broken.",
        "turn on Above 4G Decoding in the firmware; for a virtual machine, raise the size of its "
        "64-bit MMIO window; or boot the kernel with `pci=realloc`",
    ),
    Words(
        "firmware interrupted",
        r"nvidia/\S+ failed with error -4\b",
        "A signal interrupted the driver while it read the firmware of the GPU, for example "
        "because nvidia-smi was stopped. The GPU is not broken.",
        "let nvidia-persistenced start the GPUs: `systemctl enable --now nvidia-persistenced`; if "
        "the GPU stays missing, drain the node and reboot it",
    ),
    Words(
        "firmware missing",
        r"nvidia/\S+ failed with error -\d+",
        "The firmware of the loaded module is not on the disk: the module is of another version "
        "than the packages, mostly because the initial ramdisk has a former one.",
        "compare `cat /proc/driver/nvidia/version` with `modinfo -F version nvidia`: if they "
        "differ, rebuild the initial ramdisk (`update-initramfs -u -k all`, or `dracut "
        "--regenerate-all --force`) and reboot; if not, install the driver's package of firmware",
    ),
    Words(
        "power",
        r"necessary power cables",
        "A power cable of the card is missing.",
        "drain the node, switch it off, and check the power cables of the card",
    ),
    Words(
        "GeForce",
        r"Open nvidia\.ko is only ready for use on Data Center GPUs",
        "The open kernel module of this branch drives only GPUs for data centers by default.",
        "install a newer branch, or the proprietary module of this one",
    ),
    Words(
        "GSP",
        r"unexpected WPR2 already up|likely in a bad state and may need to be reset"
        r"|Cannot initialize GSP firmware RM|failed to wait for GFW_BOOT"
        r"|GSP-FMC reported an error|FSP (?:boot cmds failed|command timed out)",
        "The system processor (GSP) of the GPU did not start. Mostly it is left in a bad state by "
        "a former start, which a reset ends.",
        "drain the node, switch it off and on again (a warm reboot may not reset the GPU); if the "
        "line is logged again, update the driver and the firmware of the machine",
    ),
    Words(
        SIGNATURE,
        r"Loading of .{1,60} is rejected|module loading is restricted",
        "With Secure Boot, the kernel loads only modules that are signed with a key that it "
        "trusts.",
        "enroll the key that signs the module (`mokutil --import`, then confirm it at the "
        "console), or install modules that the distribution has signed; if the key is enrolled, "
        "the boot loader does not pass it on: boot through shim, or turn Secure Boot off",
        is_of_node=True,
    ),
    Words(
        MISMATCH,
        r"API mismatch: ",
        "The loaded module and the libraries have different versions, mostly because the driver "
        "was upgraded without a reboot.",
        "finish the upgrade (`dpkg --configure -a`), check with `dkms status` that the kernel that "
        "boots next has the module, rebuild the initial ramdisk (`update-initramfs -u -k all`, or "
        "`dracut --regenerate-all --force`), then drain the node and reboot it",
        is_of_node=True,
    ),
    Words(
        SYMBOLS,
        r"nvidia\w*: (?:disagrees about version of symbol|Unknown symbol|version magic)",
        "The module is built for another kernel, or beside another version of its own modules.",
        "build it again for this kernel (`dkms remove nvidia/VERSION -k $(uname -r)`, then `dkms "
        "install nvidia/VERSION -k $(uname -r)`: `dkms status` shows the names), or install the "
        "driver's packages again; then drain the node and reboot it",
        is_of_node=True,
    ),
    Words(
        CONFIDENTIAL,
        r"CPU does not support confidential compute",
        "The GPU is in confidential computing mode, and this is no confidential virtual machine.",
        "drain the node, and turn the mode off on the physical machine with NVIDIA's "
        "gpu-admin-tools, which resets the GPU (`nvidia_gpu_tools.py --gpu-bdf=ADDRESS "
        "--set-cc-mode=off --reset-after-cc-mode-switch`); or use the GPU in a confidential "
        "virtual machine",
    ),
    Words(
        "firmware",
        r"RmFetchGspRmImages: No firmware image",
        "The driver has no firmware for the GPU: the lines before tell why.",
        "read what `dmesg` has before this line, and install the driver's package of firmware",
        is_generic=True,
    ),
    Words(
        INIT,
        r"(?:RmInitAdapter|rm_init_adapter) failed",
        "The driver could not start the GPU. The numbers do not tell why: the lines before may.",
        "read what `dmesg` has before this line; drain the node, and switch it off and on again",
        is_generic=True,
    ),
)
# Lines of DKMS's make.log, or of the installer of a .run file, which say why a build failed.
BUILDS = (
    Words(
        "GPL",
        r"uses GPL-only symbol",
        "The driver is too old for this kernel: it uses a function that the kernel keeps for "
        "modules under the GPL.",
        "install a newer driver, or boot the former kernel and hold it",
    ),
    Words(
        "compiler",
        r"unrecognized command[- ]line option|unknown argument: |Failed CC version check"
        r"|compiler differs from the one used",
        "The compiler is not the one that built the kernel.",
        "install the compiler that `cat /proc/version` names, such as gcc-12, then run `dkms "
        "autoinstall`",
    ),
    Words(
        "headers",
        r"/lib/modules/\S+/build: No such file|[Kk]ernel headers for target kernel"
        r"|Unable to find the kernel source tree|/build/include\S* .*No such file",
        "The headers of the kernel are missing.",
        "install them (`apt-get install linux-headers-$(uname -r)`, or `dnf install "
        "kernel-devel-$(uname -r)`), then run `dkms autoinstall`",
    ),
    Words(
        "disk",
        r"No space left on device",
        "The disk is full.",
        "free space (`df -h /var /lib/modules /tmp`), then run `dkms autoinstall`",
    ),
    Words(
        "kernel",
        r"implicit declaration of function|too (?:few|many) arguments to function"
        r"|has no member named|incompatible pointer type|kernel package \S+ is not supported",
        "The driver does not know this kernel: mostly it is too old for it.",
        "install a newer driver, or boot the former kernel and hold it",
    ),
    Words(
        "program",
        r"\b(?:gcc|cc|make|ld)(?:-\d+)?: (?:command )?not found|\bcc: No such file or directory",
        "A program that builds modules is missing.",
        "install `gcc` and `make`, and the compiler that `cat /proc/version` names, then run `dkms "
        "autoinstall`",
    ),
)
# Ends what the driver says about a GPU, with the address of that GPU.
OUTCOME = r"(?:RmInitAdapter|rm_init_adapter) failed|probe (?:of|with) \S.{1,40} failed with error"

PATTERN = "|".join(row.pattern for row in ROWS)
_COMPILED = [(row, re.compile(row.pattern)) for row in ROWS]
_ANY = re.compile(PATTERN)
_BY_KIND = {row.kind: row for row in ROWS}


def find(line: str) -> Words | None:
    """Return the row for a line, or None."""
    if not _ANY.search(line):
        return None
    return next(row for row, pattern in _COMPILED if pattern.search(line))


def find_build(text: str) -> Words | None:
    """Return the row for the words of a failed build, or None."""
    return next((row for row in BUILDS if re.search(row.pattern, text)), None)


def of_kind(kind: str) -> Words:
    return _BY_KIND[kind]
