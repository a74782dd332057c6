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
MODULES_LOAD = Step("modules_load", "Load the NVIDIA modules at boot")
REBOOT = Step("reboot", "Reboot into the NVIDIA driver")
LOAD = Step("load", "Load the NVIDIA modules")
PERSISTENCE = Step("persistence", "Start the persistence daemon")

STOP_PERSISTENCE = Step("stop_persistence", "Stop the persistence daemon")
UNLOAD = Step("unload", "Unload the NVIDIA modules")
REMOVE_SECURITY = Step("remove_security", "Remove the security updates of the driver")
REMOVE_FILES = Step("remove_files", "Remove the module configuration of the driver")

ALL = (
    *(
        REPAIR,
        OURS.python_debian,
        OURS.repository,
        SECURITY,
        STREAM,
        PIN,
        HEADERS,
        BLACKLIST,
        INITRAMFS,
    ),
    *(OURS.install, FOLLOW, OURS.hold, MODULES_LOAD, BUILD, REBOOT, LOAD, PERSISTENCE),
    *(STOP_PERSISTENCE, UNLOAD, OURS.remove, OURS.release, REMOVE_FILES),
    *(OURS.forget, OURS.remove_repository, REMOVE_SECURITY),
)
