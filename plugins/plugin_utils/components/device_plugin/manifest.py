# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which objects does the device plugin need in the cluster?

tests/recorded/device_plugin.yml has what upstream's manifests say. The test of this file names each
difference, with its reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.proof_pod import (
    MANAGED_BY,
    MANAGER,
    NEVER,
    PRIORITY,
    PRIORITY_CLASS,
)
from ansible_collections.metal.gpu.plugins.module_utils.mappings import section
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import options
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin.shapes import (
    Desired,
    Manifest,
    Object,
    Values,
)


class _Volume(NamedTuple):
    """A volume, and where the container has it."""

    name: str
    source: Values
    path: str
    options: Values  # of the mount


HANDLER = "nvidia"  # the name of the runtime in the container engines

# The pods of the DaemonSet have the first label. Every object of this role has both. Others are the
# admin's, whatever their name.
SELECTOR = {"app.kubernetes.io/name": "nvidia-device-plugin"}
MARKS = {**SELECTOR, MANAGED_BY: MANAGER}

_ENV = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
# The plugin writes CDI specifications for its devices. For these, it searches the driver's files in
# the node's file system.
_CDI_ENV = {"NVIDIA_DRIVER_ROOT": "/", "NVIDIA_CDI_HOOK_PATH": "/usr/bin/nvidia-cdi-hook"}


# With parts of GPUs (MIG), the plugin also needs the device file that shows all of them. NVIDIA's
# runtime gives it only to a container with this capability.
_MIG_ENV = {"NVIDIA_MIG_MONITOR_DEVICES": "all"}
_MIG_CONTEXT = {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}
_CONTEXT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}

_CONFIG_FOLDER, _CONFIG_FILE = "/config", "config.yaml"
# The plugin reads its configuration only when it starts, so other pods come with another one.
_CONFIG_MARK = "metal.gpu/config-sha256"


def _folder(path: str, kind: str = "Directory") -> Values:
    return {"hostPath": {"path": path, "type": kind}}


def _file(name: str) -> Values:
    """Return an executable file of the downward API, which has the pod's name in it."""
    item = {"path": name, "fieldRef": {"fieldPath": "metadata.name"}}
    return {"downwardAPI": {"defaultMode": 0o755, "items": [item]}}


_SOCKETS = "/var/lib/kubelet/device-plugins"
# How a container without privileges asks for all GPUs where the runtime ignores its environment. A
# runtime that does not know this way sees a mount that nobody uses.
_ALL_GPUS = "/var/run/nvidia-container-devices/all"
_VOLUMES = (
    _Volume("device-plugins", _folder(_SOCKETS), _SOCKETS, {}),
    _Volume("all-gpus", _folder("/dev/null", "CharDevice"), _ALL_GPUS, {"readOnly": True}),
)
_CDI_VOLUMES = (
    _Volume("driver-root", _folder("/"), "/driver-root", {"readOnly": True}),
    _Volume("cdi", _folder("/var/run/cdi", "DirectoryOrCreate"), "/var/run/cdi", {}),
    # With Debian's driver, /usr/bin/nvidia-smi is an absolute link. The plugin resolves links of
    # the node in its own container, where this link is broken. Then pods get no nvidia-smi. The
    # plugin only checks that an executable file exists, so an empty file at the link's target is
    # enough: the specification names /usr/bin/nvidia-smi, which the engine resolves on the node.
    # Volumes of the target's folders would also work, but would create these folders on nodes
    # without them. The plugin does not read the file's content.
    _Volume(
        "link-targets",
        _file("nvidia-smi"),
        "/etc/alternatives/nvidia--nvidia-smi",
        {"subPath": "nvidia-smi", "readOnly": True},
    ),
)


def manifests(
    desired: Desired, strategy: str, runtime_class: str, *, creates_runtime_class: bool
) -> list[Manifest]:
    """Return the objects to apply, in this order: the API server rejects pods without their class.

    `strategy` is how GPUs get into containers; `runtime_class` is that of the plugin's own pods,
    empty for none.
    """
    daemonset: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": desired["name"], "namespace": desired["namespace"], "labels": MARKS},
        "spec": {
            "selector": {"matchLabels": SELECTOR},
            # Pods keep their GPUs while the plugin restarts. One node at a time takes hours in a
            # large cluster.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {
                "metadata": {"labels": MARKS, **_config_mark(desired)},
                "spec": _pod(desired, strategy, runtime_class),
            },
        },
    }
    created: Manifest = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": runtime_class, "labels": MARKS},
        "handler": HANDLER,
    }
    config: Manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _config_name(desired),
            "namespace": desired["namespace"],
            "labels": MARKS,
        },
        "data": {_CONFIG_FILE: options.text_of(desired["config"])},
    }
    return [
        *([created] if creates_runtime_class else []),
        *([config] if desired["config"] else []),
        daemonset,
    ]


def proof_class(found: Iterable[Object]) -> list[Manifest]:
    """Return the PriorityClass of the pods that prove GPUs, unless an admin has one."""
    name = {"name": PRIORITY_CLASS}
    if any(
        name.items() <= one["metadata"].items()
        and MARKS.items() - section(one, "metadata", "labels").items()
        for one in found
    ):
        return []
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {**name, "labels": MARKS},
            "value": PRIORITY,
            "preemptionPolicy": NEVER,
            "description": "Pods of metal.gpu that prove GPUs. They displace no other pod.",
        }
    ]


def _config_name(desired: Desired) -> str:
    return f"{desired['name']}-config"


def former_config(desired: Desired, found: Iterable[Object]) -> list[Manifest]:
    """Return the ConfigMap of this role that its DaemonSet no longer mounts."""
    name = {"name": _config_name(desired), "namespace": desired["namespace"]}
    is_ours = any(
        name.items() <= one["metadata"].items()
        and MARKS.items() <= section(one, "metadata", "labels").items()
        for one in found
    )
    if desired["config"] or not is_ours:
        return []
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": name}]


def _config_mark(desired: Desired) -> Values:
    """Return the annotations of the pods."""
    if not desired["config"]:
        return {}
    text = options.text_of(desired["config"])
    return {"annotations": {_CONFIG_MARK: sha256(text.encode()).hexdigest()}}


def _pod(desired: Desired, strategy: str, runtime_class: str) -> Values:
    is_cdi = "cdi" in strategy
    volumes = _VOLUMES + (_CDI_VOLUMES if is_cdi else ())
    args, has_mig = desired["args"], options.has_mig(desired)
    if desired["config"]:
        source = {"configMap": {"name": _config_name(desired)}}
        volumes += (_Volume("config", source, _CONFIG_FOLDER, {"readOnly": True}),)
        args = [*args, f"{options.CONFIG_OPTION}={_CONFIG_FOLDER}/{_CONFIG_FILE}"]
    env = {options.STRATEGY: strategy, **_ENV, **(_CDI_ENV if is_cdi else {})}
    env |= _MIG_ENV if has_mig else {}
    env |= options.texts_of(desired["env"])
    separator = "@" if desired["version"].startswith("sha256:") else ":"
    container = {
        "name": "nvidia-device-plugin",
        "image": f"{desired['image']}{separator}{desired['version']}",
        "args": args,
        "env": [{"name": name, "value": value} for name, value in env.items()],
        "resources": desired["resources"],
        "securityContext": _MIG_CONTEXT if has_mig else _CONTEXT,
        "volumeMounts": [
            {"name": one.name, "mountPath": one.path, **one.options} for one in volumes
        ],
    }
    return {
        **({"runtimeClassName": runtime_class} if runtime_class else {}),
        "priorityClassName": desired["priority_class"],
        "nodeSelector": desired["node_selector"],
        "tolerations": desired["tolerations"],
        **({"affinity": desired["affinity"]} if desired["affinity"] else {}),
        "imagePullSecrets": [{"name": secret} for secret in desired["image_pull_secrets"]],
        # The plugin connects to the kubelet, not to the API server.
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": one.name, **one.source} for one in volumes],
    }
