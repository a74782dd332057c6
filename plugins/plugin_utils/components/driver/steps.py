# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of the role nvidia_driver, and what it installs."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import REPAIR, RolePackages
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Step

ROLE = "nvidia_driver"
OURS = RolePackages(
    ROLE,
    "metal-gpu-nvidia-driver",
    "the driver",
    "the repository of the driver",
    "the driver packages",
    short="the driver repository",
)
SECURITY = Step("security", "Add the security updates of the driver")
STREAM = Step("stream", "Enable the module stream of the driver branch")
BLACKLIST = Step("blacklist", "Block the nouveau module")
INITRAMFS = Step("initramfs", "Rebuild the initramfs")
PIN = Step("pin", "Pin the driver version")
HEADERS = Step("headers", "Install the headers of the kernel")
FOLLOW = Step("follow", "Install what the next kernel needs")
BUILD = Step("build", "Build the kernel module")
PARAMETERS = Step("parameters", "Set the parameters of the NVIDIA module")
MODULES_LOAD = Step("modules_load", "Load the NVIDIA modules at boot")
RUNFILE = Step("runfile", "Install the driver from the .run file")
REBOOT = Step("reboot", "Reboot into the NVIDIA driver")
LOAD = Step("load", "Load the NVIDIA modules")
DEVICE_RULE = Step("device_rule", "Create the device files for CUDA at boot")
DEVICE_FILES = Step("device_files", "Create the device files for CUDA now")
PERSISTENCE = Step("persistence", "Start the persistence daemon")
PERSISTENCE_MODE = Step("persistence_mode", "Turn on persistence mode")
FABRIC_PACKAGES = Step("fabric_packages", "Install Fabric Manager")
FABRIC_ORDER = Step("fabric_order", "Start Fabric Manager before the kubelet")
FABRIC_MODULES = Step("fabric_modules", "Load the modules for Fabric Manager, now and at boot")
FABRIC = Step("fabric", "Start Fabric Manager")
PEERMEM = Step("peermem", "Load nvidia_peermem, now and at boot")

STOP_FABRIC = Step("stop_fabric", "Stop Fabric Manager")
REMOVE_FABRIC_ORDER = Step("remove_fabric_order", "Remove the drop-in of Fabric Manager")
STOP_PERSISTENCE = Step("stop_persistence", "Stop the persistence daemon")
NO_PERSISTENCE_MODE = Step("no_persistence_mode", "Turn off persistence mode")
UNLOAD = Step("unload", "Unload the NVIDIA modules")
UNINSTALL = Step("uninstall", "Uninstall the driver of the .run file")
REMOVE_PIN = Step("remove_pin", "Remove the pin of the driver version")
REMOVE_SECURITY = Step("remove_security", "Remove the security updates of the driver")
REMOVE_FILES = Step("remove_files", "Remove the module configuration of the driver")

ALL = (
    *(REPAIR, OURS.python_debian, OURS.repository, SECURITY, STREAM, HEADERS, PIN, BLACKLIST),
    *(INITRAMFS, PARAMETERS, OURS.install, FABRIC_PACKAGES, FOLLOW, OURS.hold, BUILD),
    *(DEVICE_RULE, REBOOT, RUNFILE, MODULES_LOAD, LOAD, DEVICE_FILES, PERSISTENCE),
    PERSISTENCE_MODE,
    *(FABRIC_ORDER, FABRIC_MODULES, FABRIC, PEERMEM),
    *(STOP_FABRIC, STOP_PERSISTENCE, NO_PERSISTENCE_MODE, UNLOAD, UNINSTALL, OURS.remove),
    *(REMOVE_FILES, REMOVE_FABRIC_ORDER, REMOVE_SECURITY, REMOVE_PIN),
    *(OURS.release, OURS.remove_repository, OURS.forget),
)
