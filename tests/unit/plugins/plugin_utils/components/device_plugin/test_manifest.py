# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Our objects beside NVIDIA's: what differs has a reason, and everything else is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import sharing
from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import (
    manifest,
    strategy,
)

ROOT = Path(__file__).parents[6]
RECORDED = ROOT / "tests" / "recorded"
RECORD = yaml.safe_load((RECORDED / "device_plugin.yml").read_text())
DEFAULTS = {
    name.removeprefix("device_plugin_"): value
    for name, value in yaml.safe_load(
        (ROOT / "roles/device_plugin/defaults/main.yml").read_text()
    ).items()
}


def objects(way: str = "cdi-cri", runtime_class: str = "nvidia", **more: Any) -> list[Any]:
    desired: Any = DEFAULTS | more
    creates = bool(runtime_class)
    return [*manifest.manifests(desired, way, runtime_class, creates_runtime_class=creates)]


def pod(*arguments: str, **more: Any) -> Any:
    return objects(*arguments, **more)[-1]["spec"]["template"]["spec"]


def leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what is at the ends of nested mappings. What is empty says nothing."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(f"{path}.{key}".removeprefix("."), item)
    elif value != []:
        yield path, value


def said(daemonset: Any) -> dict[str, Any]:
    """Return what a DaemonSet says, in the words of the record."""
    spec = {**daemonset["spec"]}
    pod = {**spec.pop("template")["spec"]}
    (container,) = ({**one} for one in pod.pop("containers"))
    del container["name"]
    volumes = {one["name"]: {**one} for one in pod.pop("volumes")}
    found = {"selector": spec.pop("selector")["matchLabels"]}
    for mount in container.pop("volumeMounts"):
        one = {**volumes[mount["name"]], **mount}
        del one["name"]
        path = one.pop("mountPath")
        found[f"mount {path}"] = one
    for variable in container.pop("env"):
        found[f"env {variable['name']}"] = variable["value"]
    for toleration in pod.pop("tolerations"):
        found[f"toleration {toleration['key']}"] = {
            key: value for key, value in toleration.items() if key != "key"
        }
    for path, part in (("", spec), ("pod", pod), ("container", container)):
        found |= leaves(path, part)
    return found


def recorded(source: str, tag: str = DEFAULTS["version"]) -> dict[str, Any]:
    return {
        row["what"]: row["value"].format(tag=tag) if "image" in row["what"] else row["value"]
        for row in RECORD[source]["rows"]
    }


class Other(NamedTuple):
    """What ours says instead; None: nothing."""

    value: Any
    reason: str


LEAST = "least privilege: the plugin uses neither the API server nor anything of its namespace"
NO_MPS = "this collection does not share GPUs with MPS"
FROM_BOTH = {
    "selector": Other(manifest.SELECTOR, "the role knows its objects by labels of its own"),
    "updateStrategy.rollingUpdate.maxUnavailable": Other(
        "10%", "one node at a time, as by default, takes hours in a large cluster"
    ),
    "pod.automountServiceAccountToken": Other(False, LEAST),
    "pod.enableServiceLinks": Other(False, LEAST),
    "pod.securityContext.seccompProfile.type": Other("RuntimeDefault", "least privilege"),
    "mount /var/run/nvidia-container-devices/all": Other(
        {"hostPath": {"path": "/dev/null", "type": "CharDevice"}, "readOnly": True},
        "the plugin's own GPUs where the runtime ignores the environment (decision 046)",
    ),
    "pod.nodeSelector.nvidia.com/gpu.present": Other(
        "true", "the role labels the nodes that it has prepared, and no others run the plugin"
    ),
    "pod.runtimeClassName": Other(
        "nvidia", "the plugin needs NVML, and NVIDIA's runtime is not containerd's default"
    ),
}
FROM_STATIC = {
    "env DEVICE_LIST_STRATEGY": Other("envvar", "said, so that the next run can read it"),
    "env NVIDIA_VISIBLE_DEVICES": Other("all", "said by the image, too"),
    "env NVIDIA_DRIVER_CAPABILITIES": Other("compute,utility", "said by the image, too"),
}
FROM_CHART = {
    "pod.affinity": Other(None, "one of the three labels, as a nodeSelector"),
    "pod.serviceAccountName": Other(None, LEAST),
    "toleration CriticalAddonsOnly": Other(None, "deprecated by upstream"),
    "container.command": Other(None, "it is the image's entry point"),
    "container.imagePullPolicy": Other(None, "Kubernetes' default for every tag but latest"),
    "env MPS_ROOT": Other(None, NO_MPS),
    "mount /mps": Other(None, NO_MPS),
    "mount /dev/shm": Other(None, NO_MPS),
    "mount /etc/alternatives/nvidia--nvidia-smi": Other(
        {
            "downwardAPI": {
                "defaultMode": 0o755,
                "items": [{"path": "nvidia-smi", "fieldRef": {"fieldPath": "metadata.name"}}],
            },
            "subPath": "nvidia-smi",
            "readOnly": True,
        },
        "the target of Debian's link, see docs/decisions/021-links-of-the-node-in-the-plugin.md",
    ),
}


@pytest.mark.parametrize("tag", RECORD["tags"])
@pytest.mark.parametrize(
    ("source", "way", "differences"),
    [("static", "envvar", FROM_BOTH | FROM_STATIC), ("chart", "cdi-cri", FROM_BOTH | FROM_CHART)],
)
def test_each_difference_from_upstream_has_a_reason(
    source: str, way: str, differences: dict[str, Other], tag: str
) -> None:
    ours, theirs = said(objects(way, version=tag)[-1]), recorded(source, tag)
    assert {
        what: ours.get(what) for what in {*ours, *theirs} if ours.get(what) != theirs.get(what)
    } == {what: other.value for what, other in differences.items()}


def test_what_the_reasons_say_of_upstream() -> None:
    image, program, chart = (recorded(source) for source in ("image", "program", "chart"))
    assert image["entrypoint"] == chart["container.command"]
    assert {name: FROM_STATIC[name].value for name in image if name in FROM_STATIC} == {
        name: value for name, value in image.items() if name.startswith("env ")
    }
    assert program["env DEVICE_LIST_STRATEGY"] == FROM_STATIC["env DEVICE_LIST_STRATEGY"].value
    (label,) = DEFAULTS["node_selector"].items()
    assert "=".join(label) in chart["pod.affinity"]


def test_the_default_version_is_recorded() -> None:
    assert DEFAULTS["version"] in RECORD["tags"]


def test_the_program_understands_its_environment() -> None:
    """A name that it does not know would be ignored without a word."""
    ours, program = said(objects("cdi-cri")[-1]), recorded("program")
    names = {what for what in ours if what.startswith("env ")}
    assert names <= {*program, *recorded("image")}
    assert f"mount {program['env DRIVER_ROOT_CTR_PATH']}" in ours  # which the role does not set
    (strategies,) = (row["choices"] for row in RECORD["program"]["rows"] if "choices" in row)
    assert {*strategy.CDI, *strategy.BY_RUNTIME} == {*strategies}
    assert {word for row in strategy.ROWS for word in row.works} <= {*strategies}


@pytest.mark.parametrize("way", ["envvar", "volume-mounts"])
def test_only_cdi_needs_the_file_system_of_the_node(way: str) -> None:
    mounted = [what for what in said(objects(way)[-1]) if what.startswith("mount ")]
    # The second one is none of the node's: /dev/null, by which the plugin asks for its own GPUs.
    assert mounted == [
        "mount /var/lib/kubelet/device-plugins",
        "mount /var/run/nvidia-container-devices/all",
    ]
    both = said(objects(f"cdi-annotations,{way}")[-1])
    assert both["mount /driver-root"]["readOnly"] is True
    assert both["env NVIDIA_DRIVER_ROOT"] == "/"


@pytest.mark.parametrize(
    ("version", "image"),
    [
        ("v0.20.0", "r.example:5000/plugin:v0.20.0"),
        ("sha256:0e1", "r.example:5000/plugin@sha256:0e1"),
        ("v1@sha256:0e1", "r.example:5000/plugin:v1@sha256:0e1"),
    ],
)
def test_image_by_tag_or_by_digest(version: str, image: str) -> None:
    (container,) = pod(image="r.example:5000/plugin", version=version)["containers"]
    assert container["image"] == image


def test_what_users_set_arrives_as_it_is() -> None:
    desired: dict[str, Any] = {
        "name": "plugin",
        "namespace": "gpus",
        "image_pull_secrets": ["a", "b"],
        "args": ["--mig-strategy=single"],
        "node_selector": {"pool": "a"},
        "tolerations": [{"operator": "Exists"}],
        "priority_class": "high",
        "resources": {"limits": {"cpu": 1}},
    }
    (daemonset,) = objects("envvar", "", **desired)
    made = daemonset["spec"]["template"]["spec"]
    (container,) = made["containers"]
    assert daemonset["metadata"].items() >= {"name": "plugin", "namespace": "gpus"}.items()
    assert made["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert made["priorityClassName"] == "high"
    assert "runtimeClassName" not in made
    for where, field, name in (
        (container, "args", "args"),
        (container, "resources", "resources"),
        (made, "nodeSelector", "node_selector"),
        (made, "tolerations", "tolerations"),
    ):
        assert where[field] == desired[name]


SHARED = {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}}


def test_configuration_is_read_where_the_program_expects_it() -> None:
    config, daemonset = objects(runtime_class="", config=SHARED)
    rows = {row["what"]: row["value"] for row in RECORD["configuration"]["rows"]}
    found = said(daemonset)
    (folder,) = (what.removeprefix("mount ") for what in found if "/config" in what)
    assert found[f"mount {folder}"] == {
        "configMap": {"name": config["metadata"]["name"]},
        "readOnly": True,
    }
    (key,) = config["data"]
    assert f"{folder}/{key}" == rows["path in the chart"]
    assert found["container.args"] == [f"{rows['option']}={folder}/{key}"]
    assert yaml.safe_load(config["data"][key]) == {"version": rows["version"], **SHARED}
    setup = sharing.of_setup(daemonset, {})
    assert setup.name == f"kube-system/{config['metadata']['name']}"
    assert sharing.of_config(yaml.safe_load(config["data"][key]), setup).replicas == 4
    assert config["metadata"]["labels"] == manifest.MARKS


def test_pods_are_replaced_with_another_configuration() -> None:
    """The program reads it only when it starts."""
    marks = [
        objects(config=config)[-1]["spec"]["template"]["metadata"].get("annotations")
        for config in ({}, SHARED, SHARED, {"flags": {"migStrategy": "none"}})
    ]
    assert marks[0] is None
    assert marks[1] == marks[2] != marks[3]


def test_environment_and_affinity() -> None:
    env = {"PASS_DEVICE_SPECS": True, "NVIDIA_DRIVER_ROOT": "/run/nvidia/driver", "LEVEL": 2}
    affinity = {"nodeAffinity": {"x": []}}
    found = said(objects(env=env, affinity=affinity)[-1])
    assert found["env PASS_DEVICE_SPECS"] == "true"
    assert found["env NVIDIA_DRIVER_ROOT"] == "/run/nvidia/driver"
    assert found["env LEVEL"] == "2"
    assert pod(affinity=affinity)["affinity"] == affinity
    assert "affinity" not in pod()


def test_the_class_comes_before_the_pods_that_need_it() -> None:
    created, daemonset = objects(runtime_class="gpu")
    assert (created["kind"], created["metadata"]["name"], created["handler"]) == (
        "RuntimeClass", "gpu", "nvidia",
    )  # fmt: skip
    assert daemonset["spec"]["template"]["spec"]["runtimeClassName"] == "gpu"


def test_every_object_and_every_pod_has_the_marks() -> None:
    created, daemonset = objects()
    template = daemonset["spec"]["template"]["metadata"]
    for metadata in (created["metadata"], daemonset["metadata"], template):
        assert metadata["labels"] == manifest.MARKS
    assert manifest.SELECTOR.items() <= manifest.MARKS.items()


def test_debians_nvidia_smi_is_found_and_no_node_gets_a_folder() -> None:
    """The container has the target of the link that Debian's alternatives make."""
    record = yaml.safe_load((RECORDED / "debian_driver.yml").read_text())
    (target,) = {
        f"/etc/alternatives/{slave['name']}"
        for alternative in record["alternatives"]
        for slave in alternative["slaves"]
        if slave["link"] == "/usr/bin/nvidia-smi"
    }
    found = said(objects("cdi-cri")[-1])
    mount = found[f"mount {target}"]
    assert [item["path"] for item in mount["downwardAPI"]["items"]] == [mount["subPath"]]
    assert mount["downwardAPI"]["defaultMode"] & 0o111
    made = [
        one["hostPath"]["path"]
        for what, one in found.items()
        if what.startswith("mount ") and one.get("hostPath", {}).get("type") == "DirectoryOrCreate"
    ]
    assert made == ["/var/run/cdi"]


@pytest.mark.parametrize(
    ("args", "has_mig"),
    [
        ([], False),
        (["--mig-strategy=none"], False),
        (["--mig-strategy=single"], True),
        (["--mig-strategy", "mixed"], True),
        (["--fail-on-init-error=false"], False),
    ],
)
def test_parts_of_gpus_need_what_the_chart_gives(args: list[str], has_mig: bool) -> None:
    """Without both, the plugin sees no part of a GPU: the runtime refuses the container."""
    check_mig(has_mig, args=args)


@pytest.mark.parametrize("mode", ["none", "single", "mixed"])
def test_mig_by_the_environment_or_by_the_configuration(mode: str) -> None:
    has_mig = mode != "none"
    check_mig(has_mig, env={"MIG_STRATEGY": mode})
    check_mig(has_mig, config={"flags": {"migStrategy": mode}})
    check_mig(False, args=["--mig-strategy=none"], config={"flags": {"migStrategy": mode}})


def check_mig(has_mig: bool, **desired: Any) -> None:
    (container,) = pod(**desired)["containers"]
    rows = {row["what"]: row["value"] for row in RECORD["sharing"]["rows"]}
    env = {one["name"]: one["value"] for one in container["env"]}
    wanted = rows["chart, MIG: env NVIDIA_MIG_MONITOR_DEVICES"] if has_mig else None
    assert env.get("NVIDIA_MIG_MONITOR_DEVICES") == wanted
    context = container["securityContext"]
    theirs = rows["chart, MIG: container.securityContext"]["capabilities"]["add"]
    assert context["capabilities"] == {"drop": ["ALL"]} | ({"add": theirs} if has_mig else {})
    assert context.get("allowPrivilegeEscalation") is (None if has_mig else False)
