# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about the NVIDIA Container Toolkit and the CDI specifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.commands import Command
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Layered, Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import cdi, nvidia_driver

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading

# The engines are configured with this path of the programs.
_DIRECTORIES = ("/usr/bin",)


def _commands(_reading: Reading) -> dict[str, Command]:
    return {"toolkit": Command(("nvidia-ctk", "--version"))}


PROBE = Probe(
    units=(nvidia_driver.CDI_UNIT,),
    files=(
        *(f"{directory}/*.{suffix}" for directory in cdi.DIRECTORIES for suffix in cdi.SUFFIXES),
        nvidia_driver.TOOLKIT_CONFIG,
        nvidia_driver.CDI_OPTIONS,
    ),
    layered=(Layered("udev/rules.d", "*.rules", (nvidia_driver.LINK_COMMAND,)),),
    found={"toolkit_config": (nvidia_driver.TOOLKIT_CONFIG,)},
    program_files=dict.fromkeys(nvidia_driver.TOOLKIT_PROGRAMS, _DIRECTORIES),
    own_files=dict.fromkeys(
        (own_files.CHAR_DEV_RULE, own_files.CDI_DROP_IN), "nvidia_container_runtime"
    ),
    commands=_commands,
)
