# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause
"""The GPUs, their driver, fabric and health, and their errors in the kernel log."""

from __future__ import annotations

from typing import TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe.components.driver import RamdiskSpace
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.fabric import (
    Values as FabricValues,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.device_files import (
    DeviceFile,
    Obstacle,
)
from ansible_collections.metal.gpu.plugins.module_utils.probe.device_users import DeviceUser
from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import ProgramFileData
from ansible_collections.metal.gpu.plugins.module_utils.probe.runfile import Installer
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    dkms,
    kernels,
    nvidia_smi,
    signing,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.fabric import FabricState
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_events import Event
from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_words import Said
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_smi_xml import Health
from ansible_collections.metal.gpu.plugins.module_utils.read.pci import GpuRow


class Unit(TypedDict):
    installed: bool
    enabled: bool
    active: bool


class Driver(TypedDict):
    """The driver as it is installed and loaded."""

    packages: dict[str, str]  # versions of the driver's installed packages, by name
    module_version: str | None  # version of the loaded module
    disk_version: str | None  # version of the module on the disk, which the next load uses
    module_files: list[str]  # files of `nvidia` in the running kernel's folder of `/lib/modules`
    # whether `modinfo` reads the running kernel's `nvidia-uvm`; None: no answer
    uvm_readable: bool | None
    flavour: str | None  # `open` or `proprietary`, of the loaded module
    unblocked: list[str]  # `nouveau` and `nova_core`, if `modprobe.d` does not block them
    # whether `modprobe.d` has newer settings than an initial ramdisk
    initramfs_outdated: bool | None
    initramfs_program: str | None  # path of `update-initramfs`, else of `dracut`
    # bytes that are free in `/boot`, and needed for the largest ramdisk
    ramdisk_space: RamdiskSpace | None
    modules_load: list[str]  # modules that `modules-load.d` loads at boot
    own_modules: list[str]  # modules in the file of this collection in `modules-load.d`
    parameters: dict[str, str]  # parameters of the loaded module, by name without `NVreg_`
    own_parameters: list[str]  # lines of this collection's file with parameters in `modprobe.d`
    own_pin: list[str]  # lines of this collection's file in `preferences.d`
    own_device_rule: list[str]  # lines of this collection's block in its rule of udev
    parameters_are_new: bool  # whether the file of `own_parameters` is newer than the boot
    peermem: bool  # whether the running kernel has `nvidia-peermem`
    dkms: dkms.Dkms  # the driver's modules in DKMS, of all sources together
    next_kernel: kernels.Kernel | None  # the newest installed kernel; None: it runs
    # whether `next_kernel` had its module before the boot, which started another one
    next_kernel_skipped: bool
    # kernels whose missing headers apt has; None: apt was not asked
    headers_available: list[str] | None
    # the key with which DKMS signs modules; None without Secure Boot
    signing: signing.Signing | None
    programs: dict[str, ProgramFileData]  # files of `nvidia-smi` and `nvidia-persistenced`, by name
    libraries: dict[str, str | None]  # paths of `libnvidia-ml.so.1` and `libcuda.so.1`, by name
    persistenced: Unit  # `nvidia-persistenced.service`
    installer: Installer  # what NVIDIA's `.run` installer left, and what it would meet
    # file of `nvidia-persistenced.service` with `--no-persistence-mode`
    persistence_off: str | None


class Bound(TypedDict):
    uuid: str | None
    minor: int | None


class Device(TypedDict):
    index: int | None  # None: the driver reports only the address
    uuid: str | None
    name: str | None
    memory_mib: int | None
    pci_address: str | None  # address in `pci`
    minor: int | None  # number of its device file
    persistence_mode: bool | None
    error: str | None  # what the driver prints instead of a value, such as `[GPU is lost]`


class Nvml(TypedDict):
    driver_version: str | None
    complete: bool  # whether it reports each GPU of `pci`, and `nvidia-smi` printed nothing else
    devices: list[Device]  # GPUs in the order of the driver; after an error, only what is known
    bound: dict[str, Bound]  # GPUs in `/proc/driver/nvidia/gpus`, by address
    # error of `nvidia-smi` or of a GPU; other GPUs can still work
    failure: nvidia_smi.Failure | None


class DriverPart(TypedDict):
    driver: Driver
    nvml: Nvml  # the GPUs according to the driver (`nvidia-smi`)
    device_files: list[DeviceFile]  # character devices of the driver
    device_obstacles: list[Obstacle]  # what stands in the place of the driver's device files
    device_majors: dict[str, int]  # major numbers by their names in `/proc/devices`
    device_users: list[DeviceUser] | None  # processes that use the driver; None: this was not asked


class FabricUnit(Unit):
    state: str  # words of systemd


class Fabric(FabricValues):
    switches: list[GpuRow]  # NVSwitches on the PCI bus
    packages: dict[str, str]  # versions of Fabric Manager, IMEX and the subnet manager, by name
    manager: FabricUnit | None  # `nvidia-fabricmanager.service`; None without NVSwitches
    imex: FabricUnit | None  # `nvidia-imex.service`; None without NVSwitches
    mode: int | None  # `FABRIC_MODE` of Fabric Manager's configuration
    states: list[FabricState]  # GPUs that can have a fabric: Hopper and newer


class FabricPart(TypedDict):
    fabric: Fabric  # NVSwitches, and Fabric Manager, without which CUDA does not start there


class GpuHealth(TypedDict):
    cuda_version: str | None  # the newest one that the driver supports
    error: str | None  # why there is no report, or only a part of it
    gpus: list[Health]  # the GPUs with a report


class HealthPart(TypedDict):
    # what the GPUs report of themselves (`nvidia-smi -q -x`); None: not offered, or not known
    health: GpuHealth


class KernelEvent(Event):
    last_date: str  # time of `last` in UTC


class KernelLog(TypedDict):
    sources: list[str]  # `dmesg`, and `journal` if the driver was loaded before its first line
    error: str | None  # why nothing was read, or not the whole time
    loaded: int | None  # seconds since boot when the driver was loaded, removed, or failed to load
    events: list[KernelEvent]  # the errors, each with all its lines
    unlisted: int  # number of lines about further errors, if there are more than 200 errors
    recovery: dict[str, int]  # code of the action that the driver asks for with Xid 154, by address
    uuids: dict[str, str]  # UUIDs that the log shows, by address
    # lines about GPUs that did not start, by address; empty: they name no GPU
    words: dict[str, list[Said]]


class KernelLogPart(TypedDict):
    # errors of GPUs and NVSwitches since the driver was loaded, without those that are over
    kernel_log: KernelLog
