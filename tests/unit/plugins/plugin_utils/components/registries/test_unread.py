# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restarts for what an engine has not read since its start."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import (
    document_history_files,
    registries,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    codes,
    names,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import on_disk, write
from ansible_collections.metal.gpu.tests.unit.support.distributions import K3S, plant_node, programs
from ansible_collections.metal.gpu.tests.unit.support.observing import active_since
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording
from ansible_collections.metal.gpu.tests.unit.support.registry_machine import (
    OF_ITSELF,
    OF_NVCR,
    Machine,
)

START_S_AGO = 60
FILES = {
    "containerd-1.7": "/etc/containerd/config.toml",
    "crio": "/etc/containers/registries.conf.d/50-metal-gpu.conf",
    "k3s": "/etc/rancher/k3s/registries.yaml",
}
STEPS = {
    "containerd-1.7": "Restart containerd",
    "crio": "Restart CRI-O",
    "k3s": "Restart the Kubernetes distribution",
}


def started(machine: Callable[[str], Machine], engine: str) -> Machine:
    """Return a node whose engine has run for a while, and on which the role has just written."""
    node = machine(engine)
    node.run([OF_NVCR])
    if engine == "k3s":
        plant_node(node.root, K3S, started_s_ago=START_S_AGO)
        node.programs = programs(K3S, recording("containerd/dump-2.2.0-k3s-virgin.toml"))
    else:
        state = active_since(engine.split("-")[0], time.monotonic() - START_S_AGO)
        node.programs = Programs({"systemctl show": (0, state, "")})
    return node


def age(node: Machine, pattern: str, seconds: float) -> None:
    then = time.time() - seconds
    for file in on_disk(node.root, document_history_files.DIRECTORY).glob(pattern):
        os.utime(file, (then, then))


def edit_as_admin(node: Machine, path: str) -> None:
    with on_disk(node.root, path).open("a") as file:
        file.write("# of the admin\n")


@pytest.mark.parametrize("engine", FILES)
def test_run_that_stopped_before_the_restart(
    machine: Callable[[str], Machine], engine: str
) -> None:
    """The restart undoes the change if the engine does not come back."""
    node = started(machine, engine)
    planned = node.plan([OF_NVCR])
    assert names(planned) == [STEPS[engine]]
    change: dict[str, Any] = planned["data"]["change"]
    assert change["path"] in (FILES[engine], "/etc/crio/crio.conf.d/98-metal-gpu-registries.conf")
    assert change["actor"] == "metal.gpu.registries"
    age(node, "*", START_S_AGO + 30)
    assert names(node.plan([OF_NVCR])) == []


@pytest.mark.parametrize("engine", FILES)
def test_change_of_the_admin_waits_for_their_restart(
    machine: Callable[[str], Machine], engine: str
) -> None:
    """Also in a file that the role has edited before the engine started."""
    node = started(machine, engine)
    age(node, "*", START_S_AGO + 30)
    edit_as_admin(node, FILES[engine])
    for is_permitted in (True, False):
        planned = node.plan([OF_NVCR], restart_ok=is_permitted)
        assert (names(planned), codes(planned)) == ([], [])


@pytest.mark.parametrize("engine", FILES)
def test_change_that_the_admin_has_added_to_is_not_undone(
    machine: Callable[[str], Machine], engine: str
) -> None:
    node = started(machine, engine)
    age(node, "*crio.conf.d*", START_S_AGO + 30)
    edit_as_admin(node, FILES[engine])
    planned = node.plan([OF_NVCR])
    assert names(planned) == [STEPS[engine]]
    assert planned["data"]["change"] is None


@pytest.mark.parametrize("key", ["ca", "client"])
def test_k3s_keeps_the_certificates_that_it_names_until_it_is_restarted(
    machine: Callable[[str], Machine], key: str
) -> None:
    """containerd pulls nothing from a registry with a certificate that does not exist."""
    node = machine("k3s")
    before = node.tree()
    node.run([OF_ITSELF])
    place = "/var/lib/rancher/k3s/agent/etc/containerd"
    own = [f"/etc/rancher/k3s/certs.d/registry.example/{name}" for name in registries.OWN]
    values = {"ca": own[:1], "client": [own[1:]]}
    write(node.root, f"{place}/config.toml", f'config_path = "{place}/certs.d"\n')
    generated = f"{place}/certs.d/registry.example/hosts.toml"
    write(node.root, generated, f"{key} = {json.dumps(values[key])}\n")
    node.programs = Programs({"containerd": (0, node.text(f"{place}/config.toml"), "")})
    for steps in (["Restore the former settings of registries"], []):
        planned = node.run([], state="absent", restart_ok=False)
        assert names(planned) == steps
        assert [one["code"] for one in planned["notices"]] == ["REGISTRIES_RESTART_DUE"]
        assert all(on_disk(node.root, path).exists() for path in own)
    permitted = ["Remove certificates of registries", "Restart the Kubernetes distribution"]
    assert names(node.plan([], state="absent")) == permitted
    write(node.root, generated, "")  # of k3s that the admin has restarted
    planned = node.run([], state="absent", restart_ok=False)
    assert (names(planned), planned["notices"]) == (permitted[:1], [])
    assert not any(path.startswith("etc") for path in node.tree().keys() - before.keys())
