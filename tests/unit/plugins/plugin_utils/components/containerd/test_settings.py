# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import (
    settings as containerd_keys,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents

GOLDEN = Path(__file__).parents[4] / "fixtures" / "containerd_keys"
MAIN = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-metal-gpu.toml"


RUNC = {"type": "io.containerd.runc.v2", "systemd_cgroup": True, "base_runtime_spec": ""}


def engine(version: str, text: str | None, *, cdi_enabled: bool) -> dict[str, Any]:
    own = tomllib.loads(text or "")
    return {
        "version": version,
        "config": {
            "path": MAIN,
            "exists": text is not None,
            "version": own.get("version"),
            "imports": own.get("imports", []),
            "cri_tables": containerd.cri_tables(own),
            "outline": own,
        },
        "cdi_enabled": cdi_enabled,
        "default_runtime": "runc",
        "runtimes": {"runc": {**RUNC}},
    }


@pytest.mark.parametrize(
    ("version", "name", "cdi_enabled", "path"),
    [
        pytest.param("1.6.20", "1.6-version-2", False, MAIN, id="1.6"),
        pytest.param("1.7.33", "1.7-version-2", False, MAIN, id="1.7"),
        pytest.param("2.0.5", "2.0-version-3", True, DROP_IN, id="2.0: drop-ins merge"),
        pytest.param("2.4.2", "2.4-version-3", True, DROP_IN, id="2.4: drop-ins merge"),
        pytest.param("2.4.2", "2.4-version-2", True, MAIN, id="2.4, old file"),
        pytest.param("2.4.2", "2.4-no-version", True, MAIN, id="2.4, Docker's file"),
        pytest.param("1.7.33", "1.7-new", False, MAIN, id="1.7, no file"),
        pytest.param("2.4.2", "2.4-new", True, MAIN, id="2.4, no file"),
    ],
)
def test_file_becomes_the_golden_one(version: str, name: str, cdi_enabled: bool, path: str) -> None:
    source = GOLDEN / f"{name}.toml"
    text = source.read_text() if source.exists() else None
    found = engine(version, text, cdi_enabled=cdi_enabled)
    edit = containerd_keys.edit(found, found["version"], cdi=True)
    assert edit["path"] == path
    before = (text or "") if path == MAIN else ""
    wanted = documents.apply(documents.parse(before, "toml"), documents.Edits(merge=edit["merge"]))
    assert documents.render(before, "toml", wanted) == (GOLDEN / f"{name}.golden").read_text()


@pytest.mark.parametrize("default", ["nvidia", None])
def test_default_runtime_is_a_wish(default: str | None) -> None:
    keys = containerd_keys.runtime_keys(
        "io.containerd.cri.v1.runtime",
        systemd_cgroup=True,
        default=default,
        enable_cdi=False,
        keep_runc=None,
    )
    table = keys["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]
    assert table.get("default_runtime_name") == default


def test_type_of_the_owners_runc_stays() -> None:
    found = engine("1.7.33", "version = 2\n", cdi_enabled=True)
    found["runtimes"]["runc"]["type"] = "io.containerd.runc.v1"
    keys = containerd_keys.edit(found, found["version"], cdi=True)["merge"]
    runtimes = keys["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
    assert runtimes["runc"]["runtime_type"] == "io.containerd.runc.v1"


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.6.20", False), ("1.7.15", False), ("1.7.16", True), ("1.7.24~ds1", True), ("2.0.0", True)],
)
def test_which_containerd_reads_the_specifications(version: str, expected: bool) -> None:
    assert containerd_keys.reads_cdi(version) is expected


@pytest.mark.parametrize(
    ("imports", "path"),
    [
        pytest.param([], MAIN, id="none"),
        pytest.param(["/etc/containerd/one.toml"], MAIN, id="single file"),
        pytest.param(["conf.d/*.toml"], DROP_IN, id="relative"),
        pytest.param(["/etc/*/conf.d/*.toml"], MAIN, id="several folders"),
        pytest.param(["/a/one.toml", "/b/*.toml"], "/b/99-metal-gpu.toml", id="second"),
    ],
)
def test_drop_in_only_where_it_is_imported(imports: list[str], path: str) -> None:
    assert containerd_keys.target(MAIN, imports, "2.4.2") == path
