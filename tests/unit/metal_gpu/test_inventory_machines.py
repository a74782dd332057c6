# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine of a scan that is in the inventory already, also under another name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from metal_gpu.inventory_file import Entry, merge, prepare, save
from metal_gpu.inventory_machines import addresses_of

BY_ADDRESS = Entry("gpu-1", "192.0.2.11", 4, (), {}, "gpu-1")
NAMES = {
    "gpu-1": "192.0.2.11",
    "gpu-1.example.com": "192.0.2.11",
    "node-7.example.com": "192.0.2.11",
    "gpu-1.other.example": "192.0.2.99",
}


def _addresses(names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    return {name: frozenset([NAMES[name]]) if name in NAMES else frozenset() for name in names}


def _nobody(names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    return dict.fromkeys(names, frozenset[str]())


def _merge(
    hosts: str, entry: Entry = BY_ADDRESS, *, knows: bool = True
) -> tuple[dict[str, Any], list[str]]:
    """Return the hosts of an inventory after the merge, and what differs."""
    text = f"gpu_nodes:\n  hosts:\n    {hosts}\n"
    look_up = _addresses if knows else _nobody
    merged, notices = merge("inventory.yml", text, [entry], addresses_of=look_up)
    content: dict[str, Any] = yaml.safe_load(merged)
    return content["gpu_nodes"]["hosts"], notices


@pytest.mark.parametrize(
    ("hosts", "entry"),
    [
        pytest.param("192.0.2.11: {}", BY_ADDRESS, id="address"),
        pytest.param("gpu-1.example.com: {}", BY_ADDRESS, id="full name"),
        pytest.param("GPU-1.Example.COM.: {}", BY_ADDRESS, id="full name in capital letters"),
        pytest.param("node-7.example.com: {}", BY_ADDRESS, id="another name of the address"),
        pytest.param("a: {ansible_host: gpu-1.example.com}", BY_ADDRESS, id="ansible_host"),
        pytest.param(
            "gpu-1: {ansible_host: '{{ inventory_hostname }}.{{ domain }}', domain: example.com}",
            BY_ADDRESS,
            id="template",
        ),
        pytest.param(
            "gpu-1: {}", Entry("gpu-1.example.com", "gpu-1.example.com", 4, (), {}), id="short"
        ),
        pytest.param("192.0.2.11: {}", Entry("gpu-1", "gpu-1", 4, (), {}), id="scanned by name"),
        pytest.param(
            "gpu-1:2222: {ansible_host: 192.0.2.11}",
            Entry("gpu-1", "192.0.2.11", 4, (), {"ansible_port": 2222}),
            id="port in the key",
        ),
        pytest.param(
            "'[2001:DB8::11]:2222': {}",
            Entry("gpu-1", "2001:db8::11", 4, (), {"ansible_port": 2222}),
            id="IPv6 address and port in the key",
        ),
        pytest.param("gpu-[1:3].example.com: {}", BY_ADDRESS, id="range"),
    ],
)
def test_machine_that_is_there_already(hosts: str, entry: Entry) -> None:
    found, notices = _merge(hosts, entry)
    assert notices == []
    added = [*found][1:]
    assert added == (["gpu-1.example.com"] if "[1:3]" in hosts else [])  # its gpu_count
    assert [one["gpu_count"] for one in found.values() if one] == [4]


@pytest.mark.parametrize(
    ("hosts", "knows", "reason"),
    [
        pytest.param(
            "gpu-1.example.com: {}",
            False,
            "it may be gpu-1.example.com of the inventory, and no name server tells the address of "
            "gpu-1.example.com",
            id="name that cannot be looked up",
        ),
        pytest.param(
            "gpu-1.other.example: {}",
            True,
            "it may be gpu-1.other.example of the inventory, which has the address 192.0.2.99",
            id="another address",
        ),
        pytest.param(
            "gpu-1: {ansible_host: 192.0.2.20}",
            True,
            "it may be gpu-1 of the inventory, which has the address 192.0.2.20",
            id="same name at another address",
        ),
        pytest.param(
            "gpu-1.example.com:2222: {}",
            True,
            "it may be gpu-1.example.com of the inventory, which has the port 2222",
            id="another port",
        ),
        pytest.param(
            "gpu-1: {ansible_host: \"{{ lookup('dig', 'x') }}\"}",
            True,
            "it may be gpu-1 of the inventory, whose ansible_host only Ansible renders",
            id="same name with a template",
        ),
        pytest.param(
            "node-[1:5]: {ansible_host: \"{{ lookup('dig', 'x') }}\"}",
            True,
            "it may be node-1, node-2, node-3 and 2 others of the inventory, whose ansible_host "
            "only Ansible renders",
            id="templates",
        ),
    ],
)
def test_machine_that_may_be_there_is_not_written(hosts: str, knows: bool, reason: str) -> None:
    found, notices = _merge(hosts, knows=knows)
    assert len(found) == 1
    right = "ansible_port of that host to 22"
    if "port" not in reason:
        right = "ansible_host of that host to 192.0.2.11"
    assert notices == [
        f"gpu-1 (192.0.2.11) is not written: {reason}. If it is a host of the inventory, set "
        f"{right}. If not, add it under a name of its own"
    ]


def test_machine_that_is_there_at_its_other_address() -> None:
    """As in a scan of two networks, of which the inventory has the second one."""
    entry = BY_ADDRESS._replace(other_addresses=("198.51.100.11",))
    found, notices = _merge("gpu-1: {ansible_host: 198.51.100.11, gpu_count: 3}", entry)
    assert [*found] == ["gpu-1"]
    assert found["gpu-1"]["ansible_host"] == "198.51.100.11"
    [notice] = notices
    assert "gpu_count" in notice


def test_its_own_address_comes_before_the_other_one() -> None:
    entry = BY_ADDRESS._replace(other_addresses=("198.51.100.11",))
    hosts = "{gpu-1.example.com: {}, old: {ansible_host: 198.51.100.11}}"
    text = f"gpu_nodes:\n  hosts: {hosts}\n"
    merged, notices = merge("inventory.yml", text, [entry], addresses_of=_addresses)
    found = yaml.safe_load(merged)["gpu_nodes"]["hosts"]
    assert (found, notices) == (
        {"gpu-1.example.com": {"gpu_count": 4}, "old": {"ansible_host": "198.51.100.11"}},
        [],
    )


def test_another_address_that_is_a_name_may_be_a_host() -> None:
    entry = BY_ADDRESS._replace(other_addresses=("gpu-1-mgmt",))
    found, [notice] = _merge("gpu-1-mgmt.example.com: {}", entry, knows=False)
    assert [*found] == ["gpu-1-mgmt.example.com"]
    assert "it may be gpu-1-mgmt.example.com of the inventory" in notice


def test_name_that_another_machine_has_in_the_inventory() -> None:
    """The entry of another machine must not get the GPUs of this one."""
    first = Entry("gpu-1", "192.0.2.11", 1, ("gpu_t4",), {}, "gpu-1", ("198.51.100.11",))
    second = Entry("gpu-2", "192.0.2.12", 8, ("gpu_h100",), {}, "gpu-2")
    text = "gpu_nodes:\n  hosts:\n    gpu-2: {ansible_host: 198.51.100.11}\n"
    merged, notices = merge("inventory.yml", text, [first, second], addresses_of=_addresses)
    assert "gpu_h100" not in merged
    assert yaml.safe_load(merged)["gpu_nodes"]["hosts"]["gpu-2"]["gpu_count"] == 1
    [notice] = notices
    assert "gpu-2 (192.0.2.12) is not written: it may be gpu-2 of the inventory" in notice


@pytest.mark.parametrize(
    ("hosts", "entry"),
    [
        pytest.param("gpu-2.example.com: {}", BY_ADDRESS, id="other name"),
        pytest.param(
            "gpu-1.other.example: {}",
            Entry("gpu-1.example.com", "gpu-1.example.com", 4, (), {}),
            id="other domain",
        ),
        pytest.param(
            "localhost: {ansible_connection: local}",
            BY_ADDRESS._replace(hostname="localhost"),
            id="localhost",
        ),
        pytest.param(
            "a: {ansible_host: \"{{ lookup('dig', 'x') }}\", ansible_port: 2222}",
            BY_ADDRESS,
            id="template with another port",
        ),
    ],
)
def test_machine_that_is_new(hosts: str, entry: Entry) -> None:
    found, notices = _merge(hosts, entry)
    assert (len(found), notices) == (2, [])


def test_two_machines_of_one_name() -> None:
    """The second one is not the host that the first one is."""
    first = Entry("192.0.2.11", "192.0.2.11", 4, (), {}, "gpu-1")
    second = Entry("192.0.2.12", "192.0.2.12", 4, (), {}, "gpu-1")
    text = "gpu_nodes:\n  hosts:\n    gpu-1.example.com:\n"
    merged, notices = merge("inventory.yml", text, [first, second], addresses_of=_addresses)
    assert "192.0.2.11" not in merged
    assert "192.0.2.12" in merged
    assert notices == []


def test_port_of_a_key_stays(tmp_path: Path) -> None:
    """Ansible takes the port of the first key of a host."""
    path = tmp_path / "inventory.yml"
    path.write_text(
        "gpu_nodes:\n  hosts: {}\n  children:\n    rack:\n"
        "rack:\n  hosts:\n    gpu-1:2222: {ansible_host: 192.0.2.11}\n    gpu-[2:3]:2200:\n"
    )
    ports = {"ansible_port": 2222}
    entries = [
        Entry("gpu-1", "192.0.2.11", 4, ("gpu_l4",), ports),
        Entry("gpu-2", "gpu-2", 4, ("gpu_l4",), {"ansible_port": 2200}),
    ]
    save(prepare(path, entries))
    program = Path(sys.executable).parent / "ansible-inventory"
    done = subprocess.run(
        [program, "-i", path, "--list"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    listed = json.loads(done.stdout)
    hosts = listed["_meta"]["hostvars"]
    assert sorted(hosts) == ["gpu-1", "gpu-2", "gpu-3"]
    assert [one["ansible_port"] for _name, one in sorted(hosts.items())] == [2222, 2200, 2200]
    assert sorted(listed["gpu_l4"]["hosts"]) == ["gpu-1", "gpu-2"]
    assert not prepare(path, entries).is_changed


@pytest.mark.parametrize("file", ["group_vars/all.yml", "host_vars/node-7.yml"])
def test_address_of_a_file_beside(tmp_path: Path, file: str) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text("gpu_nodes:\n  hosts:\n    node-7: {number: 11}\n")
    beside = tmp_path / file
    beside.parent.mkdir()
    beside.write_text("ansible_host: '192.0.2.{{ number }}'\n")
    prepared = prepare(path, [BY_ADDRESS])
    assert (prepared.after.count("gpu_count"), prepared.collisions) == (1, ())
    assert "gpu-1" not in prepared.after


def test_names_are_looked_up_as_ssh_does(home: Path) -> None:
    (home / ".ssh" / "config").write_text(
        "Host gpu-1\n HostName 127.0.0.1\nHost far\n ProxyJump gate\nHost odd\n Port many\n"
    )
    found = addresses_of(["gpu-1", "far", "odd", "no-such-name.invalid", "a" * 64])
    assert found.pop("gpu-1") == {"127.0.0.1"}
    assert not any(found.values())
