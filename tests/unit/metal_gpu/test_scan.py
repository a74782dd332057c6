# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from metal_gpu import gpu_names
from metal_gpu.answering import Answer, State
from metal_gpu.hosts import Host
from metal_gpu.nodes import Node
from metal_gpu.reach import Reached
from metal_gpu.scan import Found, Machine, find, hosts_with_gpus, name_machines
from metal_gpu.targets import Target

_PLANS = Path(__file__).parents[1] / "fixtures" / "plans"
_LINUX = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3"


def _observation(*names: str, **changes: Any) -> Any:
    """Return an observation from the fixtures of the plans, merged in their order."""
    found: dict[str, Any] = {}
    for name in names:
        found = _merged(found, yaml.safe_load((_PLANS / f"{name}.yml").read_text()))
    return _merged(found, changes)


def _merged(base: Any, changes: Any) -> Any:
    if not isinstance(base, dict) or not isinstance(changes, dict):
        return copy.deepcopy(changes)
    return {**base, **{key: _merged(base.get(key), value) for key, value in changes.items()}}


def _reached(
    host: str, state: State = State.SSH, said: str | None = _LINUX, *, member: bool = False
) -> Reached:
    target = Target(host, None, None, "argument 1", member)
    error = None if state is State.SSH else "Connection refused"
    answer = Answer(target, 22, state, said if state is State.SSH else None, error)
    return Reached(Host(host, host), answer)


def _observer(**found: Any) -> Callable[[Sequence[Host]], Iterable[Node]]:
    """Return what observes: a host's finding, or its observation; the last host answers first."""

    def observe(hosts: Sequence[Host]) -> Iterable[Node]:
        for host in reversed(hosts):
            result = found[host.name.replace(".", "_").replace("-", "_")]
            is_finding = "severity" in result
            yield Node(host, None if is_finding else result, result if is_finding else None)

    return observe


def test_virgin_machine() -> None:
    (machine,) = find([_reached("gpu-1")], _observer(gpu_1=_observation("virgin")))
    assert machine == {
        "host": "gpu-1",
        "address": "gpu-1",
        "other_addresses": [],
        "port": None,
        "user": None,
        "ssh": _LINUX,
        "observed": True,
        "hostname": "gpu-1",
        "boot_id": "5a1f4e0e-8b1b-4b43-9d0c-0c5d3e0c9a11",
        "host_key": None,
        "system": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0-26-amd64",
        "gpus": [
            {"model": "Tesla P100-PCIE-16GB", "address": "0000:03:00.0"},
            {"model": "Tesla P100-PCIE-16GB", "address": "0000:04:00.0"},
        ],
        "driver": None,
        "engine": "containerd 2.4.2",
        "kubelet": machine["kubelet"],
        "node": machine["node"],
        "problem": None,
        "finding": None,
    }


def test_model_is_the_same_with_and_without_a_driver() -> None:
    (before,) = find([_reached("gpu-1")], _observer(gpu_1=_observation("virgin")))
    (after,) = find([_reached("gpu-1")], _observer(gpu_1=_observation("virgin", "done")))
    assert before["gpus"] == after["gpus"]
    assert after["driver"] == "580.178.04"


@pytest.mark.parametrize(
    ("changes", "driver"),
    [
        ({"driver": {"module_version": "580.1"}}, "580.1 (does not answer)"),
        ({"driver": {"disk_version": "580.1"}}, "580.1 (not loaded)"),
    ],
)
def test_driver_that_does_not_work(changes: dict[str, Any], driver: str) -> None:
    (machine,) = find([_reached("gpu-1")], _observer(gpu_1=_observation("virgin", **changes)))
    assert machine["driver"] == driver


def test_each_machine_is_its_own_line_and_the_others_go_on() -> None:
    unknown = finding("NODE_UNREACHABLE", "gpu-2", error="the login failed")
    seen: list[Machine] = []
    machines = find(
        [
            _reached("gpu-1"),
            _reached("10.0.0.1", said="SSH-2.0-Cisco-1.25", member=True),
            _reached("10.0.0.2", State.SILENT, member=True),
            _reached("gpu-2"),
            _reached("gpu-3", State.REFUSED),
            _reached("win", said="SSH-2.0-OpenSSH_for_Windows_9.5"),
        ],
        _observer(gpu_1=_observation("virgin"), gpu_2=unknown),
        seen.append,
    )
    assert [(one["host"], one["problem"]) for one in machines] == [
        ("gpu-1", None),
        ("10.0.0.1", "not a Linux machine, but a network device of Cisco: SSH-2.0-Cisco-1.25"),
        ("gpu-2", "the node cannot be reached: the login failed"),
        ("gpu-3", "Connection refused"),
        ("win", "not a Linux machine, but Windows: SSH-2.0-OpenSSH_for_Windows_9.5"),
    ]
    assert machines[2]["finding"] == unknown
    assert sorted(one["host"] for one in seen) == sorted(one["host"] for one in machines)


def test_a_target_that_cannot_be_used_has_its_finding() -> None:
    """Also an address of a network, because nobody knows whether a machine is there."""
    (machine,) = find([_reached("10.0.0.2", State.NOT_ASKED, member=True)], _observer())
    assert machine["finding"] is not None
    assert machine["finding"]["code"] == "NODE_UNREACHABLE"
    assert machine["problem"] == machine["finding"]["message"]
    assert machine["problem"].endswith("the node cannot be reached: Connection refused")


def test_an_observation_of_an_unexpected_form_does_not_end_the_others() -> None:
    odd = {**_observation("virgin"), "pci": None}
    odd_one, good = find(
        [_reached("gpu-1"), _reached("gpu-2")],
        _observer(gpu_1=odd, gpu_2=_observation("virgin")),
    )
    assert (odd_one["finding"] or {})["code"] == "OBSERVATION_FAILED"
    assert good["observed"]


def test_addresses_of_a_network_behind_a_jump_host_may_not_exist() -> None:
    nobody = finding("NODE_UNREACHABLE", "10.0.0.2", error="no route")
    login = {"machine": "10.0.0.3", "user": "root", "login": "root@10.0.0.3", "error": "no key"}
    locked = finding("LOGIN_REFUSED", "10.0.0.3", **login)
    machines = find(
        [
            _reached("10.0.0.2", said=None, member=True),
            _reached("10.0.0.3", said=None, member=True),
        ],
        _observer(**{"10_0_0_2": nobody, "10_0_0_3": locked}),
    )
    assert [one["host"] for one in machines] == ["10.0.0.3"]


def _named(*rows: tuple[str, str, str]) -> tuple[list[str], Found]:
    """Name machines of (host, host name, boot id)."""
    reached = [_reached(host) for host, _hostname, _boot_id in rows]
    found = {
        host.replace(".", "_").replace("-", "_"): _observation(
            "virgin", hostname=hostname, boot_id=boot_id
        )
        for host, hostname, boot_id in rows
    }
    named = name_machines(find(reached, _observer(**found)))
    return [one["host"] for one in named.machines], named


@pytest.mark.parametrize(("other_key", "kept"), [("a", 1), ("b", 2)])
def test_a_machine_does_not_hide_another_one(other_key: str, kept: int) -> None:
    """It chooses its boot id and its host name, but has no other machine's host key."""
    keys = {"10.0.0.1": "a", "10.0.0.2": other_key}
    observed = _observation("virgin", hostname="gpu-1", boot_id="a")
    found = name_machines(
        find(
            [*map(_reached, keys)],
            lambda hosts: [Node(one, observed, host_key=keys[one.name]) for one in hosts],
        )
    )
    assert len(found.machines) == kept
    assert (len(found.notices), len(found.collisions)) == ((1, 0) if kept == 1 else (0, 1))


def test_names_are_host_names_where_addresses_were_given() -> None:
    names, found = _named(
        ("10.0.0.1", "GPU-1.example", "a"), ("rack-2", "gpu-2", "b"), ("10.0.0.3", "localhost", "c")
    )
    assert names == ["gpu-1", "rack-2", "10.0.0.3"]
    assert (found.notices, found.collisions) == ([], [])


@pytest.mark.parametrize("hostname", ["all", "gpu-[1:9999]", "x{{ 1 }}", "a\x1b[31m", "-x", ""])
def test_host_names_that_ansible_would_misread(hostname: str) -> None:
    names, _found = _named(("10.0.0.1", hostname, "a"))
    assert names == ["10.0.0.1"]


def test_texts_of_a_machine_do_not_control_the_terminal() -> None:
    observed = _observation("virgin", os={"name": "Debian \x1b[2J"}, hostname="a\x07")
    (machine,) = find([_reached("gpu-1")], _observer(gpu_1=observed))
    assert (machine["system"], machine["hostname"]) == ("Debian ?[2J", "a?")


def test_names_that_collide() -> None:
    names, found = _named(("10.0.0.1", "debian", "a"), ("10.0.0.2", "debian", "b"))
    assert names == ["10.0.0.1", "10.0.0.2"]
    assert found.notices == []
    assert found.collisions == [
        "the host name debian collides: 10.0.0.1, 10.0.0.2 have it; they are named as you named "
        "them. Give each machine a name of its own"
    ]


def test_a_machine_with_two_addresses_is_kept_once() -> None:
    names, found = _named(("10.0.0.1", "gpu-1", "a"), ("10.1.0.1", "gpu-1", "a"))
    assert (names, found.collisions) == (["gpu-1"], [])
    [notice] = found.notices
    assert found.machines[0]["other_addresses"] == ["10.1.0.1"]
    assert notice.startswith("10.1.0.1 and 10.0.0.1 are the same machine, gpu-1")


def test_hosts_of_a_fleet() -> None:
    """Those with GPUs, and those that a login or a connection kept from an answer."""
    unknown = finding("NODE_UNREACHABLE", "gpu-2", error="the login failed")
    machines = find(
        [
            _reached("gpu-1"),
            _reached("gpu-2"),
            _reached("gpu-3", State.REFUSED),
            _reached("no-gpu"),
            _reached("win", said="SSH-2.0-OpenSSH_for_Windows_9.5"),
        ],
        _observer(
            gpu_1=_observation("virgin"), gpu_2=unknown, no_gpu=_observation("virgin", pci=[])
        ),
    )
    hosts = {one.name: one.variables for one in hosts_with_gpus(machines)}
    assert hosts == {"gpu-1": {"gpu_count": 2}, "gpu-2": {}, "gpu-3": {}}


@pytest.mark.parametrize(
    ("device", "reported", "name", "group"),
    [
        ("15f8", None, "Tesla P100-PCIE-16GB", "gpu_tesla_p100_pcie_16gb"),
        ("2330", "NVIDIA H100 80GB HBM3", "H100 80GB HBM3", "gpu_h100_80gb_hbm3"),
        ("2684", "NVIDIA GeForce RTX 4090", "GeForce RTX 4090", "gpu_geforce_rtx_4090"),
        ("2684", None, "Ada 2684", "gpu_ada_2684"),
    ],
)
def test_names_of_models(device: str, reported: str | None, name: str, group: str) -> None:
    assert gpu_names.name(device, reported) == name
    assert gpu_names.group(name) == group


def test_names_are_those_of_the_record() -> None:
    record = Path(__file__).parents[2] / "recorded" / "gpu_names.yml"
    rows = yaml.safe_load(record.read_text())["names"]
    assert {row["device"]: row["name"] for row in rows} == gpu_names.NAMES
