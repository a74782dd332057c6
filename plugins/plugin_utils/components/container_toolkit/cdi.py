# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the CDI specification list every GPU, now and after a reboot?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.read.cdi import gpu_number
from ansible_collections.metal.gpu.plugins.module_utils.read.device_files import (
    outdated,
    outdated_numbers,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.kubelet_devices import gpu_uuid
from ansible_collections.metal.gpu.plugins.module_utils.verdict.health_words import is_empty
from ansible_collections.metal.gpu.plugins.module_utils.verdict.names import name_gpu
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit.mig import (
    ON,
    former_parts,
    perhaps_former,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver.state import works
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import File, NoData, Plan, Step

DROP_IN = Step("drop_in", "Extend the condition of the CDI service")
GENERATE = Step("cdi", "Generate the CDI specification")
REMOVE_DROP_IN = Step("remove_drop_in", "Restore the condition of the CDI service")

STEPS = (DROP_IN, GENERATE, REMOVE_DROP_IN)

# The CDI specifications that the toolkit's service writes, with their kind. The device plugin
# leaves others behind, named after a kind of its vendor.
_SPECIFICATIONS = dict.fromkeys(
    ("/run/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml"), "nvidia.com/gpu"
)
_OF_GPUS = "nvidia.com/gpu="
_NONE = "none"  # the admin has the service list no device
_ALL = f"{_OF_GPUS}all"
_PLUGIN_VENDOR = "k8s.device-plugin.nvidia.com/"
_RUN = ("/run/cdi", "/var/run/cdi")
# Specifications here survive a reboot; the service writes below /var/run.
_STATIC = "/etc/cdi/"

# nvidia-cdi-refresh.service runs only if modules.dep has one of two names. Otherwise systemd skips
# it and reports success.
# Source: deployments/systemd/nvidia-cdi-refresh.service of the toolkit 1.20.1.
_ACCEPTED = re.compile(r"/(nvidia|nvidia-current)[.]ko")
CDI_DROP_IN: File = {
    "path": own_files.CDI_DROP_IN,
    "block": r"""[Service]
# The unit's own condition misses some of Debian's names of the kernel module.
ExecCondition=
ExecCondition=/bin/sh -c '[ -e /proc/driver/nvidia/version ] || grep -qE \
    "/nvidia(-current|-tesla(-[0-9]+)?)?(-open)?[.]ko" /lib/modules/%v/modules.dep'
""",
}


@dataclass(frozen=True)
class Specifications:
    """What the plan asks about the CDI specifications of a node."""

    reason: str | None  # why the service of the toolkit must generate its own
    skipped: str | None  # why the service skips this node at boot
    empty: list[str]  # all usable GPUs, if none has anything that a specification could list
    outdated: list[tuple[str, str]]  # paths of those that stay so, with the evidence

    @classmethod
    def of(cls, node: Node) -> Specifications:
        # The admin can have the service list some devices only.
        limited = () if node["toolkit"]["cdi_devices"] is None else _SPECIFICATIONS
        complete = [path for path in generated(node) if path not in limited]
        former = former_parts(node, complete)
        libraries = {**_other_libraries(node), **_other_numbers(node)}.items()
        wrong = [text for path, text in libraries if path in _SPECIFICATIONS] + _past(node)
        wrong += [text for path, text in former.items() if path in _SPECIFICATIONS]
        reason = _lack(node) or (f"in the CDI specification, {wrong[0]}" if wrong else None)
        skipped, empty = _skipped(node, reason), _empty(node)
        outdated = [*libraries, *{**perhaps_former(node, complete), **former}.items()]
        if reason or skipped or empty:
            outdated = [one for one in outdated if one[0] not in _SPECIFICATIONS]
        return cls(reason, skipped, empty, outdated)


def plan_cdi(plan: Plan[NoData], node: Node, found: Specifications) -> None:
    """Plan the specification, and the service that writes it at boot."""
    if found.empty and (found.reason or found.skipped):
        # The generator would fail. The drop-in waits, too: its step reloads the service's unit.
        plan.notice("CDI_MIG_EMPTY", gpus=", ".join(found.empty))
    else:
        again = "the service runs only with the new condition" if found.skipped else None
        plan.step(DROP_IN, found.skipped)
        plan.step(GENERATE, found.reason or again)
    for path, error in node["cdi"]["errors"].items():
        if path not in _SPECIFICATIONS:
            plan.notice("CDI_FILE_INVALID", error=error)
    for path, evidence in found.outdated:
        plan.notice("CDI_FILE_OUTDATED", path=path, evidence=evidence)


def plan_no_drop_in(plan: Plan[NoData], node: Node) -> None:
    """Plan the removal of the drop-in."""
    if CDI_DROP_IN["path"] in node["ours"]["files"]:
        plan.step(REMOVE_DROP_IN, "this role created the drop-in")


def _lack(node: Node) -> str | None:
    """Return which devices the specifications lack, or why nobody can read them."""
    devices = node["cdi"]["devices"]
    # The admin can have the service omit the device with everything, or list some devices only.
    has_all = node["toolkit"]["cdi_has_all"]
    if not any(name == _ALL or (not has_all and name.startswith(_OF_GPUS)) for name in devices):
        unread = (node["cdi"]["errors"].get(path) for path in _SPECIFICATIONS)
        if reason := next(filter(None, unread), None):
            return reason
        if _NONE not in (node["toolkit"]["cdi_devices"] or ()):
            return f"no CDI specification has {_ALL if has_all else 'a GPU'}"
    # The toolkit's configuration decides how devices are named: by number, UUID, or several ways. A
    # GPU with MIG is listed by its parts, such as 0:1 or MIG-UUID. A lost GPU is not listed.
    names = {name.partition("=")[2] for name in devices if name.startswith(_OF_GPUS)}
    listed = names | {number for name in names if (number := gpu_number(name))}
    modes = {gpu["pci_address"]: gpu["mig"] for gpu in node["health"]["gpus"]}
    missing = [
        name_gpu(gpu)
        for gpu in node["nvml"]["devices"]
        if gpu["error"] is None
        and modes.get(gpu["pci_address"] or "") != ON
        and not {str(gpu["index"]), gpu["uuid"]} & listed
    ]
    if missing and node["toolkit"]["cdi_devices"] is None:
        return f"the CDI specification lacks {', '.join(missing)}"
    return None


def _past(node: Node) -> list[str]:
    """Return what the service's specification says about GPUs, and is no longer so.

    Nothing tells the service that a card was replaced.
    """
    names = [one for path in _SPECIFICATIONS for one in node["cdi"]["names"].get(path, ())]
    listed = [gpu_uuid(name.partition("=")[2]) for name in names]
    uuids = {gpu["uuid"] for gpu in node["nvml"]["devices"]}
    is_known = node["nvml"]["complete"] and None not in uuids
    gone = [uuid for uuid in listed if uuid and uuid not in uuids and is_known]
    return [f"{uuid} is no GPU of this node" for uuid in gone]


def _empty(node: Node) -> list[str]:
    """Return all usable GPUs, if none of them has anything that a specification could list.

    This is how a node with MIG comes up, before something creates its instances again.
    """
    usable = [gpu for gpu in node["nvml"]["devices"] if gpu["error"] is None]
    empty = {gpu["pci_address"] for gpu in node["health"]["gpus"] if is_empty(gpu)}
    is_all = all(gpu["pci_address"] in empty for gpu in usable)
    return [name_gpu(gpu) for gpu in usable] if is_all else []


def _other_libraries(node: Node) -> dict[str, str]:
    """Return the specifications with libraries of another driver, which are gone or do not fit."""
    version = node["driver"]["module_version"]
    if version is None or not works(node):
        return {}
    return {
        path: f"the libraries are those of driver {', '.join(found)}, but the driver is {version}"
        for path, found in node["cdi"]["drivers"].items()
        if version not in found
    }


def _other_numbers(node: Node) -> dict[str, str]:
    """Return the specifications with a number that neither the driver has nor the file in /dev.

    The generator takes the number of the file. If that is outdated, it is corrected first.
    """
    majors = node["device_majors"]
    wrong = outdated(node["device_files"], majors)
    found = {}
    for specification, numbers in node["cdi"]["majors"].items():
        right = {path: number for path, number in numbers.items() if path not in wrong}
        reasons = outdated_numbers(right, majors)
        if reasons:
            found[specification] = next(iter(reasons.values()))
    return found


def _skipped(node: Node, reason: str | None) -> str | None:
    """Return why the service that writes the CDI specification at boot skips this node."""
    if CDI_DROP_IN["path"] in node["ours"]["files"]:
        return None
    if reason is None and any(path.startswith(_STATIC) for path in node["cdi"]["spec_files"]):
        return None
    files = node["driver"]["module_files"]
    if files and not any(_ACCEPTED.search(f"/{file}") for file in files):
        return f"it accepts nvidia.ko or nvidia-current.ko, but the module is {', '.join(files)}"
    if node["toolkit"]["cdi_skipped"] and node["driver"]["module_version"]:
        return "the service finds no kernel module, but one is loaded"
    return None


def generated(node: Node) -> list[str]:
    """Return the CDI specifications that the toolkit or the device plugin wrote."""
    return [path for path, kind in node["cdi"]["kinds"].items() if _is_generated(path, kind)]


def _is_generated(path: str, kind: str | None) -> bool:
    if kind is None:
        return False
    if _SPECIFICATIONS.get(path) == kind:
        return True
    folder, _slash, name = path.rpartition("/")
    named_after_kind = name.rpartition(".")[0] == kind.replace("/", "-")
    return folder in _RUN and kind.startswith(_PLUGIN_VENDOR) and named_after_kind
