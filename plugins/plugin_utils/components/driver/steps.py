# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of the role nvidia_driver, and the names of what they leave on a node."""

from __future__ import annotations

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import REPAIR
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import Step

PYTHON_DEBIAN = Step("python_debian", "Install python3-debian for the NVIDIA repository")
REPOSITORY = Step("repository", "Add the NVIDIA repository")
STREAM = Step("stream", "Enable the module stream of the driver branch")
BLACKLIST = Step("blacklist", "Block the nouveau module")
INITRAMFS = Step("initramfs", "Rebuild the initramfs")
PIN = Step("pin", "Pin the driver version")
HEADERS = Step("headers", "Install the headers of the kernel")
INSTALL = Step("install", "Install the driver")
BUILD = Step("build", "Build the kernel module")
HOLD = Step("hold", "Hold the driver")
MODULES_LOAD = Step("modules_load", "Load the NVIDIA modules at boot")
REBOOT = Step("reboot", "Reboot into the NVIDIA driver")
LOAD = Step("load", "Load the NVIDIA modules")
PERSISTENCE = Step("persistence", "Start the persistence daemon")

STOP_PERSISTENCE = Step("stop_persistence", "Stop the persistence daemon")
UNLOAD = Step("unload", "Unload the NVIDIA modules")
REMOVE = Step("remove", "Remove the driver")
RELEASE = Step("release", "Release the hold on the driver")
REMOVE_FILES = Step("remove_files", "Remove the module configuration of the driver")
FORGET = Step("forget", "Delete the record of the driver packages")
REMOVE_REPOSITORY = Step("remove_repository", "Remove the NVIDIA repository")

ALL = (
    *(REPAIR, PYTHON_DEBIAN, REPOSITORY, STREAM, PIN, HEADERS, BLACKLIST, INITRAMFS, INSTALL),
    *(HOLD, MODULES_LOAD, BUILD, REBOOT, LOAD, PERSISTENCE),
    *(STOP_PERSISTENCE, UNLOAD, REMOVE, RELEASE, REMOVE_FILES, FORGET, REMOVE_REPOSITORY),
)

# Those that need the package manager.
OF_PACKAGES = (PYTHON_DEBIAN, STREAM, PIN, HEADERS, INSTALL, HOLD, REMOVE, RELEASE)

ROLE = "nvidia_driver"
REPOSITORY_NAME = "metal-gpu-nvidia-driver"
