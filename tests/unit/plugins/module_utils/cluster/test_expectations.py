# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node must have if its GPUs are shared, split or renamed, as gpu_capacity reports it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import expectations
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube_errors import ApiBusy
from ansible_collections.metal.gpu.plugins.modules import gpu_capacity
from ansible_collections.metal.gpu.tests.unit.support.api_server import Refusal

GPU, PART, H100 = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "example.com/h100"
READY = {"type": "Ready", "status": "True"}
MIXED = {"nvidia.com/mig.strategy": "mixed", f"{PART}.count": "21", f"{GPU}.count": "8"}
SINGLE = {"nvidia.com/mig.strategy": "single", f"{GPU}.product": "NVIDIA-H100-80GB-HBM3"}


def node(capacity: dict[str, int], allocatable: dict[str, int] | None, labels: Any) -> Any:
    amounts = [
        {name: str(amount) for name, amount in one.items()}
        for one in (capacity, {**capacity, **(allocatable or {})})
    ]
    status = {"capacity": amounts[0], "allocatable": amounts[1], "conditions": [READY]}
    return {"metadata": {"name": "gpu-1", "labels": labels}, "status": status}


def plugin(*env: tuple[str, str], config: bool = False, **manager: str) -> dict[str, Any]:
    """Return the DaemonSet of the chart; `manager` is the environment of its config-manager."""
    mounts = [{"name": "sockets", "mountPath": "/sockets"}]
    volumes: list[Any] = [
        {"name": "sockets", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    ]
    container = {"name": "nvidia-device-plugin-ctr", "volumeMounts": mounts}
    container["env"] = [{"name": name, "value": value} for name, value in env]
    spec: dict[str, Any] = {"containers": [container], "volumes": volumes}
    if config:
        container["env"].append({"name": "CONFIG_FILE", "value": "/config/config.yaml"})
        volumes += [
            {"name": "available", "configMap": {"name": "configs"}},
            {"name": "config", "emptyDir": {}},
        ]
        spec["initContainers"] = [
            {
                "name": "nvidia-device-plugin-init",
                "env": [{"name": name, "value": value} for name, value in manager.items()],
                "volumeMounts": [{"name": "available", "mountPath": "/available-configs"}],
            }
        ]
    metadata = {"name": "nvidia-device-plugin", "namespace": "kube-system"}
    return {"metadata": metadata, "spec": {"template": {"spec": spec}}}


@pytest.fixture
def count(api: Any, call: Any) -> Any:
    """Return the row of a node with 8 GPUs."""

    def run(
        capacity: dict[str, int],
        allocatable: dict[str, int] | None = None,
        labels: Any = None,
        **options: Any,
    ) -> Any:
        api.put("nodes", node(capacity, allocatable, labels or {}))
        options = {"sharing": True, "wait_timeout": 0, "report_only": True, **options}
        return call(gpu_capacity, nodes={"gpu-1": 8}, **options)["nodes"]["gpu-1"]

    return run


# --- parts of GPUs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capacity", "allocatable", "split", "state"),
    [
        pytest.param({GPU: 5, PART: 21}, None, 3, "ok", id="as it must be"),
        pytest.param({GPU: 5, PART: 21}, {GPU: 4}, 3, "differs", id="a whole GPU is unhealthy"),
        pytest.param({GPU: 5, PART: 21}, {GPU: 0}, 3, "differs", id="all of them are"),
        pytest.param({GPU: 2, PART: 21}, None, 3, "differs", id="whole GPUs are missing"),
        pytest.param({GPU: 5, PART: 21}, {PART: 14}, 3, "differs", id="parts are unhealthy"),
        pytest.param({GPU: 5, PART: 21}, None, None, "ok", id="no modes"),
        pytest.param({GPU: 5, PART: 21}, {GPU: 4}, None, "differs", id="no modes, unhealthy"),
        pytest.param({GPU: 5, PART: 21}, {GPU: 0}, 8, "ok", id="whole GPUs of the past"),
    ],
)
def test_whole_gpus_count_beside_parts(
    count: Any, capacity: Any, allocatable: Any, split: int | None, state: str
) -> None:
    modes = {"gpu-1": split}
    row = count(capacity, allocatable, MIXED, split=modes)
    assert row["state"] == state, row["message"]
    unknown = "nothing shows how many GPUs are not split" in row["wanted"]["source"]
    assert unknown is (split is None)


@pytest.mark.parametrize(
    ("capacity", "allocatable", "split", "state"),
    [
        pytest.param({GPU: 4, PART: 28}, None, 4, "ok", id="as it must be"),
        pytest.param({GPU: 1, PART: 28}, None, 4, "differs", id="whole GPUs are missing"),
        pytest.param({GPU: 4, PART: 3}, None, 4, "differs", id="less parts than split GPUs"),
        pytest.param({GPU: 4, PART: 28}, {GPU: 0}, 4, "differs", id="whole GPUs are unhealthy"),
        pytest.param({GPU: 4, PART: 28}, None, None, "ok", id="no modes"),
        pytest.param({GPU: 0, PART: 56}, None, 8, "ok", id="all are split"),
        pytest.param({GPU: 7}, None, 0, "differs", id="none is split, and one is missing"),
        pytest.param({GPU: 5, PART: 21}, None, 0, "differs", id="parts of GPUs without MIG mode"),
    ],
)
def test_parts_of_which_nobody_has_a_number(
    api: Any, count: Any, capacity: Any, allocatable: Any, split: int | None, state: str
) -> None:
    api.put("daemonsets", plugin(("MIG_STRATEGY", "mixed")))
    row = count(capacity, allocatable, split={"gpu-1": split})
    assert row["state"] == state, row["message"]


def test_the_message_has_what_is_known(api: Any, count: Any) -> None:
    api.put("daemonsets", plugin(("MIG_STRATEGY", "mixed")))
    row = count({GPU: 1, PART: 28}, split={"gpu-1": 4})
    assert row["message"].startswith("expected 4 nvidia.com/gpu, at least 4 parts of GPUs (")


@pytest.mark.parametrize(
    ("amount", "labels", "split", "state"),
    [
        pytest.param(16, {}, 0, "differs", id="more than the GPUs, none is split"),
        pytest.param(16, SINGLE, None, "differs", id="a label says that none is split"),
        pytest.param(7, {}, 0, "differs", id="one is missing"),
        pytest.param(56, {}, 8, "ok", id="parts"),
        pytest.param(7, {}, 8, "differs", id="less parts than GPUs"),
        pytest.param(56, {}, None, "ok", id="nobody knows"),
    ],
)
def test_one_kind_of_parts(
    api: Any, count: Any, amount: int, labels: Any, split: int | None, state: str
) -> None:
    api.put("daemonsets", plugin(("MIG_STRATEGY", "single")))
    row = count({GPU: amount}, None, labels, split={"gpu-1": split})
    assert row["state"] == state, row["message"]


@pytest.mark.parametrize(
    ("wanted", "allocatable", "state"),
    [
        pytest.param({PART: 28}, {}, "ok", id="whole GPUs, however many"),
        pytest.param({PART: 28}, {GPU: 3}, "differs", id="a whole GPU is unhealthy"),
        pytest.param({PART: 28, GPU: 4}, {}, "ok", id="both"),
        pytest.param({PART: 28, GPU: 5}, {}, "differs", id="another number of whole GPUs"),
    ],
)
def test_parts_that_the_admin_expects(
    count: Any, wanted: Any, allocatable: Any, state: str
) -> None:
    capacity = {GPU: 4, PART: 28}
    assert count(capacity, allocatable, by_hand={"gpu-1": wanted})["state"] == state


def test_a_pod_asks_for_what_there_is(api: Any, count: Any) -> None:
    """A node whose GPUs are all split has 0 whole ones."""
    api.put("daemonsets", plugin(("MIG_STRATEGY", "mixed")))
    amounts = {GPU: 0, PART: 56}
    for more in ({}, {"split": {"gpu-1": 8}}, {"by_hand": {"gpu-1": amounts}}):
        row = count(amounts, **more)
        assert (row["state"], row["wanted"]["resource"], row["wanted"]["shared"]) == (
            "ok", PART, True,
        )  # fmt: skip


# --- what the admin expects -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "capacity", "state", "asked", "shared"),
    [
        pytest.param({GPU: 6}, {GPU: 6}, "ok", GPU, False, id="fewer whole GPUs"),
        pytest.param({GPU: 6}, {GPU: 8}, "differs", GPU, False, id="more than that"),
        pytest.param({GPU: 16}, {GPU: 16}, "ok", GPU, True, id="shares"),
        pytest.param({H100: 8}, {H100: 8}, "ok", H100, False, id="another name"),
        pytest.param({H100: 8}, {H100: 7}, "differs", H100, False, id="another name, one less"),
        pytest.param({H100: 16}, {H100: 16}, "ok", H100, True, id="shares with another name"),
    ],
)
def test_the_admin_names_amounts(
    count: Any, wanted: Any, capacity: Any, state: str, asked: str, shared: bool
) -> None:
    row = count(capacity, by_hand={"gpu-1": wanted})
    assert row["state"] == state, row["message"]
    assert (row["wanted"]["resource"], row["wanted"]["shared"]) == (asked, shared)
    assert row["wanted"]["source"] == "gpu_expected"
    if H100 in wanted:  # a device plugin registers it that nobody here knows
        assert row["cause"] is None


# --- configurations ---------------------------------------------------------------------------

TIMES_4 = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
PLAIN = "version: v1"


def config_map(**data: str) -> dict[str, Any]:
    return {"metadata": {"name": "configs", "namespace": "kube-system"}, "data": data}


@pytest.mark.parametrize(
    ("data", "ways", "default", "amount"),
    [
        pytest.param({"default": TIMES_4, "other": PLAIN}, "named,single", "", 32, id="named"),
        pytest.param({"default": TIMES_4, "other": PLAIN}, "", "", 32, id="named, by default"),
        pytest.param({"any": TIMES_4}, "named,single", "", 32, id="the only one"),
        pytest.param({"any": TIMES_4}, "empty", "", 8, id="none"),
        pytest.param({"a": TIMES_4, "b": PLAIN}, "single,empty", "", 8, id="none of two"),
        pytest.param({"default": PLAIN, "b": TIMES_4}, "named", "b", 32, id="another default"),
    ],
)
def test_the_configuration_of_a_node_without_the_label(
    api: Any, count: Any, data: Any, ways: str, default: str, amount: int
) -> None:
    made = plugin(config=True, DEFAULT_CONFIG=default, FALLBACK_STRATEGIES=ways)
    api.put("daemonsets", made)
    api.put("configmaps", config_map(**data))
    row = count({GPU: 32})
    assert row["wanted"]["resources"] == {GPU: amount}
    assert row["state"] == ("ok" if amount == 32 else "differs")


FORBIDDEN = Refusal(403, 'configmaps is forbidden: User "v" cannot list resource "configmaps"')


@pytest.mark.parametrize(
    ("refused", "data", "label", "why"),
    [
        pytest.param("configmaps", {"any": TIMES_4}, "", str(FORBIDDEN), id="forbidden"),
        pytest.param("daemonsets", {"any": TIMES_4}, "", str(FORBIDDEN), id="no DaemonSets"),
        pytest.param("", None, "", "there is no ConfigMap kube-system/configs", id="gone"),
        pytest.param(
            "", {"a": TIMES_4}, "b",
            "the ConfigMap kube-system/configs has no configuration b", id="no such key",
        ),
        pytest.param(
            "", {"a": TIMES_4, "b": PLAIN}, "",
            "the ConfigMap kube-system/configs has no configuration for this node among a, b",
            id="none fits",
        ),
        pytest.param(
            "", {"a": "a: b: c"}, "", "a in the ConfigMap kube-system/configs is not valid YAML",
            id="garbage",
        ),
    ],
)  # fmt: skip
def test_a_configuration_that_cannot_be_read(
    api: Any, count: Any, refused: str, data: Any, label: str, why: str
) -> None:
    api.put("daemonsets", plugin(config=True, FALLBACK_STRATEGIES="named,single"))
    if data is not None:
        api.put("configmaps", config_map(**data))
    if refused:
        api.refusals["list", refused] = FORBIDDEN
    labels = {"nvidia.com/device-plugin.config": label} if label else {}
    row = count({GPU: 32}, None, labels)
    assert row["state"] == "differs"
    assert row["evidence"][0] == f"cannot read how the device plugin shares GPUs: {why}"
    # No pod asks for 32 GPUs of a node that has 8.
    assert (row["wanted"]["resource"], row["wanted"]["shared"]) == (GPU, True)
    assert row["wanted"]["source"] == "how they are shared could not be read"
    # A node with too few GPUs needs no other explanation.
    row = count({GPU: 7}, None, labels)
    assert (row["state"], row["wanted"]["source"]) == ("differs", "")
    assert why not in row["evidence"][0] or refused == "daemonsets"


def test_a_failure_is_tried_again_and_a_refusal_is_not() -> None:
    now = [0.0]
    answers: list[Any] = [ApiBusy("busy", "busy", 503), ["a"]]
    asked: list[Any] = []

    def read() -> Any:
        asked.append(answers.pop(0))
        if isinstance(asked[-1], Exception):
            raise asked[-1]
        return asked[-1]

    known = expectations._Known(read, lambda: now[0])
    for _time in range(2):
        with pytest.raises(expectations._Unread, match="busy"):
            known.get()
    assert len(asked) == 1
    now[0] += 60
    assert known.get() == known.get() == ["a"]
    assert len(asked) == 2


def test_a_forbidden_list_is_asked_for_once(api: Any, count: Any) -> None:
    api.put("daemonsets", plugin(config=True))
    api.refusals["list", "configmaps"] = FORBIDDEN
    count({GPU: 32})
    assert len(api.made("list", "configmaps")) == 1
