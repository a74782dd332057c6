# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node must have, given how its GPUs are shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import sharing
from ansible_collections.metal.gpu.plugins.module_utils.cluster.sharing import Setup, Sharing

MAP = Setup(name="kube-system/config")
SOURCE = "the configuration in the ConfigMap kube-system/config"
FOLDER = {"name": "sockets", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}


def config(text: str) -> Sharing:
    return sharing.of_config(yaml.safe_load(text), MAP)


def time_slicing(replicas: int = 20, more: str = "") -> str:
    resources = f"[{{name: nvidia.com/gpu, replicas: {replicas}}}]"
    return f"version: v1\nsharing: {{timeSlicing: {{{more}resources: {resources}}}}}"


@pytest.mark.parametrize(
    ("text", "expected", "source"),
    [
        pytest.param("version: v1", {"nvidia.com/gpu": 2}, "", id="no sharing"),
        pytest.param(
            time_slicing(), {"nvidia.com/gpu": 40},
            f"20 replicas of each GPU by time-slicing, says {SOURCE}", id="time-slicing",
        ),
        pytest.param(
            time_slicing(20, "failRequestsGreaterThanOne: true, "), {"nvidia.com/gpu": 40},
            f"20 replicas of each GPU by time-slicing, says {SOURCE}", id="one for each pod",
        ),
        pytest.param(
            time_slicing(4, "renameByDefault: true, "), {"nvidia.com/gpu.shared": 8},
            f"4 replicas of each GPU by time-slicing, says {SOURCE}", id="renamed",
        ),
        pytest.param(time_slicing(1), {"nvidia.com/gpu": 2}, "", id="one replica"),
        pytest.param(
            time_slicing().replace("timeSlicing", "mps"), {"nvidia.com/gpu": 40},
            f"20 replicas of each GPU by MPS, says {SOURCE}", id="MPS",
        ),
        pytest.param(
            "flags: {migStrategy: single}", None,
            f"the MIG strategy single, says {SOURCE}; nothing shows whether GPUs are split",
            id="MIG, nobody knows how many parts",
        ),
        *(
            pytest.param(text, {"nvidia.com/gpu": 2}, "", id=f"garbage: {text}")
            for text in ("", "[]", "sharing: 7", "sharing: {timeSlicing: {resources: x}}",
                         "sharing: {timeSlicing: {resources: [7, {replicas: many}]}}")
        ),
    ],
)  # fmt: skip
def test_two_gpus_with_a_configuration(
    text: str, expected: dict[str, int] | None, source: str
) -> None:
    wanted = sharing.expect(2, config(text), {}, {"nvidia.com/gpu": 2})
    assert wanted.resources == expected
    assert wanted.source == source
    assert wanted.as_row()["shared"] is bool(source)


SLICED = {
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/gpu.replicas": "4",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.product": "Tesla-T4-SHARED",
    "nvidia.com/mig.strategy": "none",
}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(SLICED, {"nvidia.com/gpu": 8}, id="time-slicing"),
        pytest.param(
            {**SLICED, "nvidia.com/gpu.product": "Tesla-T4"}, {"nvidia.com/gpu.shared": 8},
            id="renamed",
        ),
        pytest.param(
            {**SLICED, "nvidia.com/gpu.sharing-strategy": "none"}, {"nvidia.com/gpu": 2}, id="none"
        ),
        pytest.param(
            {**SLICED, "nvidia.com/gpu.replicas": "many"}, {"nvidia.com/gpu": 2}, id="garbage"
        ),
        pytest.param(
            {
                "nvidia.com/mig.strategy": "single",
                "nvidia.com/gpu.count": "14",
                "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb",
            },
            {"nvidia.com/gpu": 14}, id="MIG single",
        ),
        pytest.param(
            {"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.count": "2"}, None,
            id="MIG single, not split",
        ),
        pytest.param(
            {
                "nvidia.com/mig.strategy": "mixed",
                "nvidia.com/mig-1g.5gb.count": "7",
                "nvidia.com/mig-3g.20gb.count": "2",
            },
            {"nvidia.com/mig-1g.5gb": 7, "nvidia.com/mig-3g.20gb": 2}, id="MIG mixed",
        ),
    ],
)  # fmt: skip
def test_two_gpus_with_labels(labels: dict[str, str], expected: dict[str, int] | None) -> None:
    found = sharing.of_labels(labels)
    assert found is not None
    assert sharing.expect(2, found, labels, {"nvidia.com/gpu": 2}).resources == expected


def test_other_labels_say_nothing() -> None:
    assert sharing.of_labels({"nvidia.com/gpu.present": "true"}) is None


@pytest.mark.parametrize(
    ("amounts", "shared"),
    [
        ({"nvidia.com/gpu": 4}, False),
        ({"nvidia.com/gpu": 3}, False),
        ({"example.com/h100": 4}, False),
        ({"nvidia.com/gpu": 80}, True),
        ({"nvidia.com/gpu.shared": 8}, True),
        ({"nvidia.com/mig-1g.5gb": 7, "nvidia.com/gpu": 3}, True),
    ],
)
def test_by_hand(amounts: dict[str, int], shared: bool) -> None:
    row = sharing.by_hand(amounts, 4).as_row()
    assert row["resources"] == amounts
    assert row["shared"] is shared
    assert row["source"] == ("" if amounts == {"nvidia.com/gpu": 4} else "gpu_expected")


def daemonset(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    mounts = [{"name": "sockets", "mountPath": "/x"}, *container.pop("volumeMounts", ())]
    plugin = {"name": "plugin", "volumeMounts": mounts, **container}
    volumes = [FOLDER, *spec.pop("volumes", ())]
    template = {"spec": {"containers": [plugin], "volumes": volumes, **spec}}
    return {"metadata": {"namespace": "gpus", "name": "p"}, "spec": {"template": template}}


@pytest.mark.parametrize(
    ("container", "mig"),
    [
        ({}, ""),
        ({"env": [{"name": "MIG_STRATEGY", "value": "mixed"}]}, "mixed"),
        ({"args": ["--mig-strategy=single"]}, "single"),
        ({"command": ["nvidia-device-plugin", "--mig-strategy", "single"]}, "single"),
        ({"args": ["--mig-strategy"]}, ""),
    ],
)
def test_strategy_for_mig_without_a_configuration(container: dict[str, Any], mig: str) -> None:
    setup = sharing.of_setup(daemonset(container), {})
    assert setup == Setup(mig)
    assert sharing.of_config(None, setup).mig == (mig or "none")


def test_configuration_is_a_key_of_a_config_map() -> None:
    made = daemonset(
        {
            "args": ["--config-file=/config/plugin.yaml"],
            "volumeMounts": [{"name": "c", "mountPath": "/config/"}],
        },
        volumes=[{"name": "c", "configMap": {"name": "sharing"}}],
    )
    assert sharing.of_setup(made, {}) == Setup("", "gpus/sharing", "plugin.yaml")


@pytest.mark.parametrize(
    ("labels", "key"),
    [({}, "any"), ({"nvidia.com/device-plugin.config": "t4"}, "t4")],
)
def test_the_label_of_a_node_selects_a_configuration_of_the_chart(
    labels: dict[str, str], key: str
) -> None:
    made = daemonset(
        {
            "env": [{"name": "CONFIG_FILE", "value": "/config/config.yaml"}],
            "volumeMounts": [{"name": "config", "mountPath": "/config"}],
        },
        volumes=[
            {"name": "available", "configMap": {"name": "nvdp-configs"}},
            {"name": "config", "emptyDir": {}},
        ],
        initContainers=[
            {
                "name": "config-manager-init",
                "env": [{"name": "DEFAULT_CONFIG", "value": "any"}],
                "volumeMounts": [{"name": "available", "mountPath": "/available-configs"}],
            }
        ],
    )
    assert sharing.of_setup(made, labels) == Setup("", "gpus/nvdp-configs", key)


@pytest.mark.parametrize(
    ("setup", "keys", "key"),
    [
        (Setup(key="t4"), ["t4", "default"], "t4"),
        (Setup(key="t4"), ["default"], None),
        (Setup(), ["default", "t4"], "default"),
        (Setup(), ["t4"], "t4"),
        (Setup(), ["t4", "a100"], None),
        (Setup(fallbacks=["single", "named"]), ["default", "t4"], "default"),
        (Setup(fallbacks=["single"]), ["default", "t4"], None),
        (Setup(fallbacks=["named", "empty"]), ["t4"], ""),
        (Setup(), [], None),
    ],
)
def test_the_key_of_a_configuration(setup: Setup, keys: list[str], key: str | None) -> None:
    assert sharing.choose_key(setup, keys) == key


def test_the_choice_without_a_label_is_the_recorded_one() -> None:
    text = (Path(__file__).parents[4] / "recorded" / "device_plugin.yml").read_text()
    rows = {row["what"]: row["value"] for row in yaml.safe_load(text)["sharing"]["rows"]}
    ways = rows["env FALLBACK_STRATEGIES of the chart's config-manager"]
    assert list(Setup().fallbacks) == ways
    assert sharing.choose_key(Setup(), ["a", "b", rows["strategy named"]]) == "default"


def test_what_is_no_device_plugin_has_no_configuration() -> None:
    other = {"metadata": {"namespace": "a"}, "spec": {"template": {"spec": {"containers": []}}}}
    assert sharing.of_setup(other, {}) == Setup()
