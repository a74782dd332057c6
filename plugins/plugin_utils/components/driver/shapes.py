# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner gets from the variables, and what it gives to the tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ansible_collections.metal.gpu.plugins.plugin_utils.components.desired import State
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.fit import Wished
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.role import (
    PackageData,
    PackagesRecord,
    RepositoryDesired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File


class Desired(RepositoryDesired):  # pylint: disable=duplicate-bases
    """The variables of the role nvidia_driver."""

    state: State
    source: Wished
    version: str
    branch: int
    flavour: Literal["auto", "open", "proprietary"]
    reboot_ok: bool | None
    runfile_url: str
    runfile_sha256: str
    switch_ok: bool
    module_parameters: Mapping[str, object]
    peermem: bool


class Data(PackageData, total=False):
    """What the tasks need to know."""

    blacklist: File
    modules_load: File
    parameters: File  # an empty block: the file goes
    load: list[str]
    peermem: File  # what modules_load becomes once nvidia_peermem is loaded
    is_missing: bool
    initramfs: list[str] | None  # the command; None: the node has no program for it
    flavour: str
    version: str  # for messages: "580.178.04", "of branch 550"
    security: Mapping[str, object]  # a repository
    stream: str | None
    pin: File  # of apt's preferences
    headers: list[str]
    newest: bool  # whether the installation changes the version of what the role holds
    following: list[str]  # alternatives, the best first
    source: str | None  # of the module, for DKMS; None: known after the installation
    source_pattern: str  # a regular expression for it, then
    kernels: list[str]  # to build it for, unless DKMS has
    rebuild: list[str]  # of these, those for which DKMS has a build that cannot be used
    others: str  # other drivers, if the build fails
    device_rule: File  # of udev
    device_commands: list[list[str]]  # create the device files, and correct their numbers
    persistence_drop_in: File | None
    persistence_gpus: list[str]  # on which nvidia-smi turns the mode on
    fabric_packages: list[str]
    fabric_replaces: bool  # another version of ours, which is held
    fabric_drop_in: File
    fabric_modules: list[str]  # to load now
    fabric_modules_load: File | None  # None: a file of the admin names the module
    fabric_awaited: bool  # whether the GPUs have fabric states
    modules: list[str]
    persistence: bool
    files: list[str]
    hold_alike: list[str]  # patterns of what is held besides
    former: list[str]  # packages of the driver to remove
    former_held: list[str]  # other packages, whose hold ends with them
    former_purged: bool  # with their configuration files, for a switch
    arguments: list[str]  # for the installer of a .run file
    runfile_record: PackagesRecord
