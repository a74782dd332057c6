# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plans of every role for the virgin nodes of one system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    plan as plan_nvidia_container_runtime,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    plan as plan_containerd,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import (
    plan as plan_crio,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker import (
    plan as plan_docker_ce,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    known,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    plan as plan_nvidia_driver,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import System
from ansible_collections.metal.gpu.plugins.plugin_utils.plan import PlanResult
from ansible_collections.metal.gpu.tests.unit.golden import render
from ansible_collections.metal.gpu.tests.unit.golden.nodes import (
    CARDS,
    ENGINES,
    HOPPER,
    Card,
    node,
    variables,
    with_driver,
)

# What the user brings.
CONFIRMED = "as it was confirmed to you"
MIRROR = "https://mirror.example/cuda/"
YOURS = "https://yours.example/"
ENGINE_PLANS = {
    engines.CONTAINERD: ("containerd", plan_containerd, {}),
    engines.DOCKER: ("docker_ce", plan_docker_ce, {"cri_dockerd_checksum": CONFIRMED}),
    engines.CRIO: ("crio", plan_crio, {"repository_fingerprint": CONFIRMED}),
}


def driver(
    system: System, engine: str, card: Card, *, has_secure_boot: bool = False, **desired: str
) -> PlanResult:
    found = node(system, engine, card, has_engine=False) | {"secure_boot": has_secure_boot}
    return plan_nvidia_driver.plan(found, variables("nvidia_driver", **desired))


def behind_switches(system: System) -> PlanResult:
    found = node(system, engines.CONTAINERD, HOPPER, has_engine=False)
    switch = {**found["pci"][0], "address": "0000:c4:00.0", "device": "22a3", "class": "0680"}
    found["fabric"] = {**found["fabric"], "switches": [switch]}
    confirmed = {} if system.driver.fingerprint else {"repository_fingerprint": CONFIRMED}
    return plan_nvidia_driver.plan(found, variables("nvidia_driver", **confirmed))


def behind_adapters(system: System) -> PlanResult:
    """NVLink 5: the NVSwitches of B200 are no functions on the bus."""
    card = next(one for one in CARDS if one.name == "B200")
    found = node(system, engines.CONTAINERD, card, has_engine=False)
    found["fabric"] = {**found["fabric"], "ports": ["0000:41:00.0"]}
    confirmed = {} if system.driver.fingerprint else {"repository_fingerprint": CONFIRMED}
    return plan_nvidia_driver.plan(found, variables("nvidia_driver", **confirmed))


def sections(system: System) -> Iterator[tuple[str, PlanResult]]:
    """Yield headings and plans; GPUs that are treated alike share one."""
    yield from drivers(system, "driver for")
    yield "driver for H100 behind NVSwitches", behind_switches(system)
    yield "driver for B200 behind NVSwitches of NVLink 5", behind_adapters(system)
    if not system.driver.fingerprint:
        confirmed = {"repository_fingerprint": CONFIRMED}
        yield from drivers(system, "driver, fingerprint set, for", **confirmed)
    if 580 not in known.repository(system).seen:
        yield from drivers(system, "driver, a mirror set, for", repository_url=MIRROR)
    if known.archives(system):
        yield from drivers(system, "driver, source distribution, for", source="distribution")
    yield from drivers(system, "driver, Secure Boot on, for", has_secure_boot=True)
    for engine in ENGINES:
        role, planner, needed = ENGINE_PLANS[engine]
        bare = node(system, engine, CARDS[0], has_engine=False)
        desired = variables(role, **needed)
        made = planner.plan(bare, desired)
        yield f"engine {engine} {desired['version']}, where there is none", made
        if any(refusal["code"] == "CRI_DOCKERD_UNPACKAGED" for refusal in made["refusals"]):
            url = f"{YOURS}cri-dockerd.rpm"
            own = planner.plan(bare, {**desired, "cri_dockerd_url": url})
            heading = (
                f"engine {engine} {desired['version']}, with a package of cri-dockerd of yours"
            )
            yield heading, own
    for engine in ENGINES:
        ready = with_driver(node(system, engine, CARDS[0], has_engine=True))
        desired = variables("nvidia_container_runtime", engine=engine)
        made = plan_nvidia_container_runtime.plan(ready, desired)
        yield f"container toolkit {desired['version']} and runtime in {engine}", made


def drivers(system: System, heading: str, **desired: Any) -> Iterator[tuple[str, PlanResult]]:
    plans: dict[str, PlanResult] = {}
    alike: dict[str, list[str]] = {}
    for card in CARDS:
        made = driver(system, engines.CONTAINERD, card, **desired)
        text = render.plan(made, system.family)
        plans[text] = made
        alike.setdefault(text, []).append(card.generations)
    for text, generations in alike.items():
        yield f"{heading} {', '.join(generations)}", plans[text]
