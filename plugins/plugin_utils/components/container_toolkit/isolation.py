# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""May an unprivileged container choose its GPUs by its environment?

By default, NVIDIA's runtime gives all GPUs to a container with NVIDIA_VISIBLE_DEVICES=all. With
containerd or CRI-O, that is every pod with the RuntimeClass `nvidia` and such an image. Two
settings stop it: the runtime ignores the variable, and takes requests from mounts of /dev/null
instead, which need a hostPath. The device plugin of this collection has both, so it works with
either. CRI-O passes the annotations of a pod to its runtime, and NVIDIA's runtime takes CDI devices
from them. There, a third setting stops that.

Source: tests/recorded/isolation.yml
"""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit.shapes import (
    Data,
    Desired,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import (
    Plan,
    Step,
    changes,
    edited,
    refuse_uneditable,
)

ISOLATE = Step("isolate", "Ignore the environment of unprivileged containers")
ACCEPT = Step("accept", "Restore the settings of the container toolkit")

STEPS = (ISOLATE, ACCEPT)

_ENVVAR = "accept-nvidia-visible-devices-envvar-when-unprivileged"
_MOUNTS = "accept-nvidia-visible-devices-as-volume-mounts"
SETTINGS: dict[str, object] = {_ENVVAR: False, _MOUNTS: True}
# Empty: the runtime reads no annotation. CRI-O itself reads those of the device plugin.
NO_ANNOTATIONS: dict[str, object] = {
    "nvidia-container-runtime": {"modes": {"cdi": {"annotation-prefixes": []}}}
}
OF_TOOLKIT = ["cdi.k8s.io/"]  # the prefixes in the file of the package
_WITH_CDI = (engines.CONTAINERD, engines.CRIO)
_PATH = nvidia_driver.TOOLKIT_CONFIG
_AUTO, _IGNORE = "auto", "ignore"


def plan_isolation(plan: Plan[Data], node: Node, desired: Desired, engine: str | None) -> None:
    """Plan the settings of the runtime. It reads them at the start of each container."""
    is_crio = engine == engines.CRIO
    if ignores_environment(node, desired, engine):
        _plan_settings(plan, node, SETTINGS, annotations=is_crio)
        return
    if is_crio and _closes_annotations(node, desired):
        if any(key[0] in SETTINGS for key in changes(node, runtime.ROLE, _PATH)):
            plan.step(ACCEPT, "this role has changed them, and pods need the variable now")
        _plan_settings(plan, node, {}, annotations=True)
    else:
        plan_no_isolation(plan, node)
    _notice_swarm_resource(plan, node, engine, is_wanted=bool(desired["default"]))


def _notice_swarm_resource(
    plan: Plan[Data], node: Node, engine: str | None, *, is_wanted: bool
) -> None:
    """Name the variables that lead past the guard, where pods need it."""
    toolkit = node["toolkit"]
    names = toolkit["swarm_resource"]
    is_read = plan.has_step(ACCEPT) or toolkit["settings"].get(_ENVVAR) is not False
    is_for_pods = node["kubelet"]["installed"]
    is_open = runtime.gives_gpus_by_default(engine, node, is_wanted=is_wanted)
    if names and is_read and is_for_pods and is_open:
        plan.notice("SWARM_RESOURCE_SET", path=_PATH, names=" and ".join(names))


def _plan_settings(
    plan: Plan[Data], node: Node, settings: Mapping[str, object], *, annotations: bool
) -> None:
    """Plan to write some settings, and that the runtime reads no annotations."""
    plan.data["settings"] = {
        "path": _PATH,
        "merge": {**settings, **(NO_ANNOTATIONS if annotations else {})},
    }
    found = node["toolkit"]["settings"]
    texts = [
        f"{name} is {_text(found.get(name))}"
        for name, value in settings.items()
        if found.get(name) != value
    ]
    prefixes = node["toolkit"]["annotation_prefixes"]
    # Before it is written, the other step gives back the value of the package.
    if annotations and (prefixes != [] or plan.has_step(ACCEPT)):
        texts.append(f"annotation-prefixes is {prefixes or 'not set'}")
    if texts:
        refuse_uneditable(plan, _PATH, node["toolkit"]["config_error"])
        plan.step(ISOLATE, f"in {_PATH}, {' and '.join(texts)}")


def plan_no_isolation(plan: Plan[Data], node: Node) -> None:
    """Plan to give back the settings that this role has changed."""
    if _PATH in edited(node, runtime.ROLE):
        plan.step(ACCEPT, "this role has changed them")


def ignores_environment(node: Node, desired: Desired, engine: str | None) -> bool:
    """Decide whether the runtime ignores the variable of unprivileged containers.

    | engine     | default runtime | how pods get GPUs | toolkit of | ignores it |
    | containerd, CRI-O | runc     | CDI               | this role  | yes        |
    | containerd, CRI-O | runc     | CDI               | the admin  | no: pods may need it |
    | containerd, CRI-O | nvidia   | any               | any        | no: the guard does, and
                                                              `_closes_annotations` under CRI-O |
    | any        | any             | the variable      | any        | no: pods need it |
    | Docker     | any             | any               | any        | no: `docker run` may need it |
    """
    if desired["envvar"] != _AUTO:
        return desired["envvar"] == _IGNORE
    is_cdi = engine in _WITH_CDI and desired["cdi"] and not desired["default"]
    return is_cdi and _is_ours(node) and not _is_chosen(node, engine)


def _closes_annotations(node: Node, desired: Desired) -> bool:
    """Decide whether the default runtime of CRI-O takes no devices from annotations.

    The guard judges the annotations of a pod when it is created. Later ones count when its sandbox
    is created again, after a reboot of the node for example.
    """
    is_open = desired["envvar"] == _AUTO and bool(desired["default"])
    return is_open and _is_ours(node) and not _has_own_prefixes(node)


def _is_ours(node: Node) -> bool:
    """Tell whether no container can rely on the settings: this role installs the toolkit."""
    return runtime.ROLE in node["ours"]["packages"] or not node["toolkit"]["packages"]


def _is_chosen(node: Node, engine: str | None) -> bool:
    """Tell whether the admin has chosen one of the values.

    In a new file, they are comments, except the prefixes.
    """
    if _PATH in edited(node, runtime.ROLE):
        return False
    found = node["toolkit"]["settings"]
    if engine == engines.CRIO and _has_own_prefixes(node):
        return True
    return any(found.get(name) not in (None, value) for name, value in SETTINGS.items())


def _has_own_prefixes(node: Node) -> bool:
    """Tell whether the admin has chosen prefixes of annotations."""
    is_edited = _PATH in edited(node, runtime.ROLE)
    return not is_edited and node["toolkit"]["annotation_prefixes"] not in (None, [], OF_TOOLKIT)


def _text(value: object) -> str:
    return "not set" if value is None else str(value).lower()
