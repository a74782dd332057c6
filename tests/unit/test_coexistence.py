# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What docs/coexistence.md says to set in other tools, compared with the records about them.

Neither Kubespray nor helm runs here. So the names are checked, and that the two sides agree.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import (
    containerd,
    distributions,
    tools,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import settings
from ansible_collections.metal.gpu.plugins.plugin_utils.components.engines import runtime
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    merge,
    plan,
)

ROOT = Path(__file__).parents[2]
CONFIG_FILES = ROOT / "tests" / "unit" / "fixtures" / "config_files" / "containerd"
PAGE = (ROOT / "docs" / "coexistence.md").read_text()
RECORDED = yaml.safe_load((ROOT / "tests" / "recorded" / "distributions.yml").read_text())


def paths(values: dict[str, Any], *above: str) -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from paths(value, *above, key)
        else:
            yield ".".join((*above, key)), value


def test_values_of_the_operator_have_keys_of_its_chart() -> None:
    values = dict(paths(yaml.safe_load((ROOT / "docs" / "gpu-operator-values.yml").read_text())))
    assert values.keys() <= {*RECORDED["operator_values"]["keys"]}
    assert values["driver.enabled"] is False
    assert values["toolkit.enabled"] is False
    assert values["operator.runtimeClass"] == runtime.NAME


def rendered(found: dict[str, Any]) -> dict[str, Any]:
    """Return the runtime that Kubespray writes for an entry of containerd_additional_runtimes."""
    spec = found.get("base_runtime_spec")
    return {
        "runtime_type": found["type"],
        "runtime_engine": found["engine"],
        "runtime_root": found["root"],
        **({"base_runtime_spec": f"/etc/containerd/{spec}"} if spec else {}),
        "options": {key: yaml.safe_load(value) for key, value in found["options"].items()},
    }


def test_the_role_leaves_the_runtime_of_kubespray_as_it_is() -> None:
    """Otherwise both would write the file in turn, each with a restart of containerd."""
    (block,) = re.findall(r"```yaml\n(containerd_additional_runtimes:.*?)```", PAGE, re.DOTALL)
    (found,) = yaml.safe_load(block)["containerd_additional_runtimes"]
    document = tomllib.loads((CONFIG_FILES / "05-kubespray-v3.toml").read_text())
    cri = document["plugins"]["io.containerd.cri.v1.runtime"]
    cri["containerd"]["runtimes"][found["name"]] = rendered(found)
    effective = containerd.parse_effective(document, "2.4.2")
    engine = {
        "path": "/usr/local/bin/containerd",
        "runtimes": effective.runtimes,
        "default_runtime": effective.default_runtime,
        "cdi_enabled": effective.cdi_enabled,
    }
    assert engine["runtimes"]["runc"]["base_runtime_spec"] == tools.MARKS["Kubespray"]
    node = merge(DONE, {"tools": ["Kubespray"], "engines": {"containerd": engine}})
    made = plan("nvidia_container_runtime", merge(node, {"ours": {"edits": []}}))
    assert (made["steps"], made["refusals"]) == ([], [])


def test_the_page_names_what_the_roles_recognise() -> None:
    for home in distributions.HOMES:
        assert home.config in PAGE
        for unit in home.units:
            assert f"`{unit.removesuffix('.service')}`" in PAGE
    for name, path in tools.MARKS.items():
        assert path in PAGE, name
    assert settings.DROP_IN in PAGE


def test_the_label_that_takes_a_node_from_the_operator_is_recorded() -> None:
    (label,) = re.findall(r"kubectl label node NODE (\S+)=false", PAGE)
    facts = [row["what"] for row in RECORDED["behaviour"]]
    assert any(f"{label}=true" in fact for fact in facts)


def test_a_node_is_drained_before_its_engine_restarts_and_proven_before_it_is_uncordoned() -> None:
    section = PAGE.partition("### Take over, node by node")[2]
    steps = ("kubectl cordon", "kubectl drain", "systemctl restart", "metal.gpu.site")
    places = [section.index(one) for one in (*steps, "metal.gpu.verify", "kubectl uncordon")]
    assert places == sorted(places)
