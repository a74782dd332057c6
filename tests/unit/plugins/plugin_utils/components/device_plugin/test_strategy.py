# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Engine, version, CDI, default runtime and the desired strategy: the strategy, or why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.device_plugin import strategy

RECORD = yaml.safe_load(
    (Path(__file__).parents[6] / "tests/recorded/engine_strategies.yml").read_text()
)
ALL = {*strategy.CDI, *strategy.BY_RUNTIME}


def member(
    engine: str | None,
    version: str | None = None,
    *,
    cdi: bool | None = None,
    default: str | None = None,
) -> Any:
    program = "cri-dockerd" if engine == "docker" else engine
    return {
        "host": "h1",
        "node": "n1",
        "engine": engine,
        "versions": {program: version} if program else {},
        "cdi": cdi,
        "default": default,
    }


@pytest.mark.parametrize(
    ("row", "version"),
    [
        pytest.param(row, version, id=f"{row['program']} {version}")
        for row in RECORD["rows"]
        for version in row["versions"]
    ],
)
def test_table_is_as_recorded(row: Any, version: str) -> None:
    found = strategy.row_of(member(row["engine"], version))
    assert (found.program, {*found.works}) == (row["program"], {*row["works"]})
    assert bool(found.reason) == ({*row["works"]} != ALL)
    assert found.ignores == (row.get("others") == "ignored")


CDI_OFF = ("CDI is off in containerd",)
NO_CLASS = (
    "Docker's default runtime is runc, and cri-dockerd supports no RuntimeClass, so no pod gets "
    "a GPU",
)
OLD = ("containerd before 1.7.16 cannot read the CDI specifications of the device plugin",)
SILENT = ("no known release of cri-dockerd passes CDI devices to Docker",)


@pytest.mark.parametrize(
    ("node", "desired", "expected", "reasons"),
    [
        pytest.param(member("containerd", "2.4.1"), "auto", "cdi-cri", (), id="containerd"),
        pytest.param(member("containerd"), "auto", "cdi-cri", (), id="not installed yet"),
        pytest.param(member("containerd", "1.6.20"), "auto", "envvar", (), id="1.6"),
        pytest.param(member("containerd", "1.7.16"), "auto", "cdi-cri", (), id="1.7.16"),
        pytest.param(member("containerd", "2.4.1", cdi=False), "auto", "envvar", (), id="CDI off"),
        pytest.param(
            member("containerd", "2.4.1", cdi=False), "cdi-cri", "cdi-cri", CDI_OFF,
            id="CDI off, and desired",
        ),
        pytest.param(member("containerd", "1.6.20"), "cdi-cri", "cdi-cri", OLD, id="1.6 and CDI"),
        pytest.param(
            member("containerd", "1.6.20", default="runc"), "envvar", "envvar", (),
            id="pods name the runtime by their RuntimeClass",
        ),
        pytest.param(member("docker", "0.4.3"), "auto", "envvar", (), id="Docker"),
        pytest.param(member("docker"), "cdi-cri", "cdi-cri", SILENT, id="cri-dockerd comes"),
        pytest.param(
            member("docker", "0.4.3"), "envvar,cdi-cri", "envvar,cdi-cri", (), id="one of two"
        ),
        pytest.param(
            member("docker", "0.4.3", default="runc"), "envvar,cdi-cri", "envvar,cdi-cri",
            (*NO_CLASS, *SILENT), id="neither of two",
        ),
        pytest.param(
            member("containerd", "1.6.20", cdi=False), "envvar,cdi-cri", "envvar,cdi-cri", (),
            id="1.6, one of two",
        ),
        pytest.param(
            member("containerd", "1.7.15", cdi=True), "envvar,cdi-cri", "envvar,cdi-cri", OLD,
            id="1.7.15, one of two, and the other fails",
        ),
        pytest.param(
            member("containerd", "1.7.15", cdi=False), "envvar,cdi-cri", "envvar,cdi-cri", (),
            id="1.7.15 without CDI, one of two",
        ),
        pytest.param(
            member("docker", "0.4.3"), "cdi-annotations,cdi-cri", "cdi-annotations,cdi-cri", SILENT,
            id="one reason for two",
        ),
        pytest.param(
            member("docker", "0.4.3", default="nvidia"), "auto", "envvar", (), id="as we set it up"
        ),
        pytest.param(
            member("docker", "0.4.3", default="runc"), "auto", "envvar", NO_CLASS,
            id="another default runtime",
        ),
        pytest.param(
            member("docker", "0.5.0", default="runc"), "auto", "envvar", NO_CLASS,
            id="a release of cri-dockerd that nobody has seen",
        ),
        pytest.param(member("docker", "0.4.4"), "cdi-cri", "cdi-cri", SILENT, id="and its CDI"),
        pytest.param(member("other", "1"), "auto", "cdi-cri", (), id="an engine without a row"),
        pytest.param(member(None), "auto", "cdi-cri", (), id="no engine"),
        pytest.param(member("docker", "0.4.3"), "new-way", "new-way", (), id="unknown strategy"),
    ],
)  # fmt: skip
def test_decision(node: Any, desired: str, expected: str, reasons: tuple[str, ...]) -> None:
    decision = strategy.decide(node, desired)
    assert decision.strategy == expected
    assert tuple(problem.reason for problem in decision.problems) == reasons
    assert all(problem.remedy for problem in decision.problems)


def observed(**engine: Any) -> Any:
    given = {
        "installed": True,
        "version": "29.8.1",
        "cdi_enabled": True,
        "default_runtime": "runc",
        "runtimes": {"runc": {"type": None, "binary": "runc"}},
        "cri_dockerd": {"version": "0.4.3"},
    }
    return {"engines": {"docker": given | engine, "containerd": {}}}


GPU_RUNTIME = {"gpu": {"type": None, "binary": "nvidia-container-runtime"}}


@pytest.mark.parametrize(
    ("engine", "pending", "cdi", "default"),
    [
        pytest.param({}, False, True, "runc", id="as it is"),
        pytest.param({}, True, None, None, id="about to change"),
        pytest.param({"installed": False}, False, None, None, id="about to be installed"),
        pytest.param(
            {"default_runtime": "gpu", "runtimes": GPU_RUNTIME}, False, True, "nvidia",
            id="NVIDIA's runtime under another name",
        ),
    ],
)  # fmt: skip
def test_what_of_an_observation_decides(
    engine: Any, pending: bool, cdi: bool | None, default: str | None
) -> None:
    found = strategy.facts("docker", observed(**engine), is_pending=pending)
    assert found["versions"] == {"docker": "29.8.1", "cri-dockerd": "0.4.3"}
    assert (found["cdi"], found["default"]) == (cdi, default)


def test_node_without_an_engine() -> None:
    assert strategy.facts(None, observed(), is_pending=False)["versions"] == {}


def test_label_has_a_version_only_where_it_decides() -> None:
    labels = [
        strategy.decide(node, "auto").label
        for node in (
            member("containerd", "2.4.1"),
            member("containerd", "1.6.20"),
            member("docker", "0.4.3"),
            member("docker", "0.5.0"),
        )
    ]
    assert labels == [
        "containerd",
        "containerd 1.6.20",
        "docker",
        "docker",
    ]
