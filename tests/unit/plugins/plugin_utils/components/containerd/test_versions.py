# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the code knows about versions of containerd, against what these versions did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import containerd
from ansible_collections.metal.gpu.plugins.plugin_utils.components.containerd import settings
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    VIRGIN,
    codes,
    merge,
    names,
    plan,
)

TESTS = next(one for one in Path(__file__).parents if one.name == "tests")
RECORD = yaml.safe_load((TESTS / "recorded" / "containerd.yml").read_text())
VERSIONS = [pytest.param(row, id=row["containerd"]) for row in RECORD["versions"]]
MAIN = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/99-metal-gpu.toml"
TABLE_2, TABLE_3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
IMPORTS = {"version": 2, "imports": ["/etc/containerd/conf.d/*.toml"], "cri_tables": [TABLE_2]}


def with_containerd(changes: dict[str, Any], *, node: dict[str, Any] = VIRGIN) -> dict[str, Any]:
    return merge(node, {"engines": {"containerd": changes}})


def register(engine: dict[str, Any], **desired: Any) -> Any:
    return plan("nvidia_container_runtime", with_containerd(engine), **desired)


@pytest.mark.parametrize("row", VERSIONS)
def test_new_file_has_a_version_that_containerd_reads(row):
    assert settings.new_config_version(row["containerd"]) <= row["newest"]


@pytest.mark.parametrize("row", VERSIONS)
def test_drop_in_is_written_only_where_files_are_merged(row):
    assert settings.merges(row["containerd"]) is (row["import"] == "merges")
    made = register({"version": row["containerd"], "config": IMPORTS}, cdi=False)
    merges = row["import"] == "merges"
    assert made["data"]["config"]["path"] == (DROP_IN if merges else MAIN)
    if merges:  # never a higher version than the importing file
        assert made["data"]["config"]["merge"]["version"] == IMPORTS["version"]


@pytest.mark.parametrize("row", VERSIONS)
def test_keys_are_in_the_table_that_containerd_reads(row):
    read = TABLE_3 if row["tables_3_in_2"] == "read" else TABLE_2
    assert settings.cri_plugin(2, row["containerd"], [TABLE_3]) == read
    both = settings.cri_plugin(2, row["containerd"], [TABLE_3, TABLE_2])
    assert both == {2: TABLE_2, 3: TABLE_3}[row["both"]]
    assert settings.cri_plugin(2, row["containerd"], [TABLE_2]) == TABLE_2


@pytest.mark.parametrize("row", VERSIONS)
@pytest.mark.parametrize("version", [None, 1])
def test_packaged_file_gets_keys_that_containerd_reads(row, version):
    """Docker's package ships a file without a version."""
    table = {"read": "cri", "ignored": TABLE_3}[row["tables_1"]]
    assert settings.cri_plugin(version, row["containerd"], ["cri"]) == table
    engine = {"version": row["containerd"], "cri_enabled": False}
    made = plan(
        "containerd", with_containerd({**engine, "config": {"version": None, "cri_tables": []}})
    )
    assert list(made["data"]["config"]["merge"]["plugins"]) == [table]


@pytest.mark.parametrize("row", VERSIONS)
def test_cdi_is_switched_on_only_where_it_is_off(row):
    """A dump of containerd 2.4 has no key any more."""
    has_key = row["cdi"] in ("true", "false")
    cri = {"enable_cdi": row["cdi"] == "true"} if has_key else {}
    dump = {"plugins": {TABLE_3 if row["newest"] > 2 else TABLE_2: cri}}
    enabled = containerd.parse_effective(dump, row["containerd"]).cdi_enabled
    assert enabled is (row["cdi"] in ("true", "always"))
    made = register({"version": row["containerd"], "cdi_enabled": enabled, "config": IMPORTS})
    if row["cdi"] == "none":
        assert codes(made) == ["CDI_UNSUPPORTED"]
    else:
        assert ("enable_cdi" in str(made["data"]["config"])) is (row["cdi"] == "false")


@pytest.mark.parametrize("row", VERSIONS)
def test_dump_is_not_believed_where_it_is_incomplete(row):
    blind = RECORD["blind"]
    is_blind = row["containerd"] == blind["from"]
    assert containerd.needs_migration(row["containerd"]) is is_blind
    assert containerd.needs_migration(blind["seen until"])
    assert not containerd.needs_migration(blind["sees again"])


FATAL = [
    {"config": {"missing_imports": ["/etc/containerd/gone.toml in /etc/containerd/config.toml"]}},
    {"registry_conflict": True},
    {"missing_specs": ["/etc/containerd/cri-base.json of the runtime runc"]},
]


@pytest.mark.parametrize(
    ("cause", "engine"),
    list(zip([row["cause"] for row in RECORD["fatal"]], FATAL, strict=True)),
    ids=["missing import", "registry", "missing spec"],
)
@pytest.mark.parametrize(
    ("role", "node", "state"),
    [
        pytest.param("nvidia_container_runtime", VIRGIN, "present", id="register"),
        pytest.param(
            "containerd",
            with_containerd({"changed_since_start": [MAIN], "edited_since_start": [MAIN]}),
            "present",
            id="restart",
        ),
        pytest.param("containerd", with_containerd({"running": False}), "present", id="start"),
        pytest.param(
            "nvidia_container_runtime",
            merge(
                DONE,
                {
                    "ours": {
                        "edits": [
                            {
                                "path": MAIN,
                                "actor": "metal.gpu.nvidia_container_runtime",
                                "error": None,
                            }
                        ]
                    }
                },
            ),
            "absent",
            id="unregister",
        ),
    ],
)
def test_containerd_that_would_not_come_back_is_not_restarted(cause, engine, role, node, state):
    assert codes(plan(role, merge(node, {"engines": {"containerd": engine}}), state=state)) == [
        "CONTAINERD_FATAL"
    ], cause


@pytest.mark.parametrize("engine", FATAL, ids=["missing import", "registry", "missing spec"])
def test_node_without_work_is_left_alone(engine):
    node = merge(DONE, {"engines": {"containerd": engine}})
    for role in ("containerd", "nvidia_container_runtime"):
        assert (codes(plan(role, node)), names(plan(role, node))) == ([], [])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({"path": MAIN, "imports": []}, ["/x/a.toml"], id="imports-replace-the-file"),
        pytest.param(IMPORTS, ["/etc/containerd/conf.d/99-nvidia.toml"], id="later-by-name"),
    ],
)
@pytest.mark.parametrize("binary", ["", "/usr/local/nvidia/toolkit/nvidia-container-runtime"])
def test_two_tools_that_set_the_runtime_are_named(config, expected, binary):
    """`containerd config dump`: the later file wins. Without a refusal, each run restarts it."""
    others = [*expected, "/etc/containerd/conf.d/10-first.toml"]
    theirs = {"type": settings.RUNTIME_TYPE, "binary": binary, "systemd_cgroup": True}
    engine = {
        "config": {**config, "imported_nvidia": others if config is IMPORTS else expected},
        "runtimes": {"nvidia": {**theirs, "base_runtime_spec": ""}},
    }
    made = register(engine)
    of_operator = ["OPERATOR_TOOLKIT"] if binary else []
    assert codes(made) == [*of_operator, "CONTAINERD_RUNTIME_CONTESTED"]
    refusal = made["refusals"][-1]
    assert expected[0] in refusal["message"]
    assert "10-first" not in refusal["message"]


@pytest.mark.parametrize("row", RECORD["import_order"]["rows"], ids=str)
def test_files_that_containerd_reads_after_ours_are_named(row):
    """Ours is in the first imported folder, whether it is there already or not."""
    files = [f"/etc/containerd/{name}" for name in row["files"]]
    ours = f"/etc/containerd/{row['imports'][0]}".replace("*", "99-metal-gpu")
    theirs = {"type": settings.RUNTIME_TYPE, "binary": "/opt/other", "systemd_cgroup": True}
    for there in (files, [name for name in files if name != ours]):
        made = register(
            {
                "config": {**IMPORTS, "imports": row["imports"], "imported_nvidia": there},
                "runtimes": {"nvidia": {**theirs, "base_runtime_spec": ""}},
            }
        )
        assert made["data"]["config"]["path"] == ours
        is_later = f"/etc/containerd/{row['counts']}" != ours
        assert codes(made) == ["CONTAINERD_RUNTIME_CONTESTED"] * is_later
        assert all(row["counts"] in one["message"] for one in made["refusals"])


def test_another_tool_with_the_same_runtime_is_no_contest():
    made = plan(
        "nvidia_container_runtime",
        merge(DONE, {"engines": {"containerd": {"config": {"imported_nvidia": ["/x/a.toml"]}}}}),
    )
    assert (codes(made), names(made)) == ([], [])


TEN = [f"/etc/containerd/conf.d/{number}0-part.toml" for number in range(10)]


@pytest.mark.parametrize("row", VERSIONS)
def test_configuration_in_ten_drop_ins(row):
    """Where files are merged, an eleventh one is added. Elsewhere, all ten are named."""
    config = {**IMPORTS, "imported_cri": TEN}
    made = register({"version": row["containerd"], "config": config}, cdi=False)
    if row["import"] == "merges":
        assert codes(made) == []
        assert made["data"]["config"]["path"] == DROP_IN
    else:
        assert codes(made) == ["CONTAINERD_IMPORT_REPLACES"]
        assert all(name in made["refusals"][0]["message"] for name in TEN)


@pytest.mark.parametrize("role", ["containerd", "nvidia_container_runtime"])
def test_version_that_nobody_has_seen(role):
    """A containerd of the future with the known tables is used; without them, it is refused."""
    known = with_containerd({"version": "5.0.0", "config": {"version": 7}})
    assert codes(plan(role, known)) == []
    source = {"source": "containerd config dump"}
    unknown = with_containerd({"version": "5.0.0", "cri_enabled": None, "config": source})
    made = plan(role, unknown)
    assert codes(made) == ["CONTAINERD_UNKNOWN"]
    assert TABLE_3 in made["refusals"][0]["message"]
    assert codes(plan(role, merge(unknown, {"ours": {"packages": {}}}), state="absent")) == []
    dump = {"version": 7, "plugins": {"io.containerd.cri.v9.everything": {"x": 1}}}
    assert containerd.parse_effective(dump, "5.0.0").cri_enabled is None


def test_file_of_nvidia_ctk_gets_its_plugin_back():
    recorded = RECORD["nvidia_ctk_on_packaged_file"]
    config = {"version": recorded["version"], "cri_tables": [recorded["table"]]}
    made = plan("containerd", with_containerd({"cri_enabled": False, "config": config}))
    assert names(made) == ["Enable the CRI plugin of containerd", "Restart containerd"]
    assert "nvidia-ctk has added a runtime" in made["steps"][0]["reason"]
    discard = [{"path": ["disabled_plugins"], "items": recorded["disabled_plugins"]}]
    assert made["data"]["config"]["discard"] == discard
    bare = {"version": recorded["version"], "cri_tables": []}
    refused = plan("containerd", with_containerd({"cri_enabled": False, "config": bare}))
    assert codes(refused) == ["CRI_DISABLED"]


def runtime(**changes: Any) -> dict[str, Any]:
    """A runtime as Kubespray and Amazon write theirs."""
    return {
        "type": settings.RUNTIME_TYPE,
        "binary": "",
        "systemd_cgroup": True,
        "base_runtime_spec": "/etc/containerd/cri-base.json",
        **changes,
    }


def registered(made: Any) -> Any:
    merged = made["data"]["config"]["merge"]["plugins"][TABLE_3]
    return merged["containerd"]["runtimes"]["nvidia"]


def test_runtime_gets_the_limits_of_runc():
    made = register({"runtimes": {"runc": runtime()}})
    assert registered(made)["base_runtime_spec"] == "/etc/containerd/cri-base.json"
    again = merge(DONE, {"engines": {"containerd": {"runtimes": {"runc": runtime()}}}})
    made = plan("nvidia_container_runtime", again)
    assert "base_runtime_spec" in made["steps"][0]["reason"]
    assert registered(made)["base_runtime_spec"] == "/etc/containerd/cri-base.json"


def test_default_runtime_of_the_admin_is_the_model():
    """Azure's nodes: containerd 2 reports a runc that no file mentions, without SystemdCgroup."""
    theirs = runtime(binary="/usr/bin/nvidia-container-runtime", base_runtime_spec="")
    runtimes = {
        "nvidia-container-runtime": theirs,
        "runc": runtime(systemd_cgroup=False, base_runtime_spec=""),
    }
    made = register({"default_runtime": "nvidia-container-runtime", "runtimes": runtimes})
    assert registered(made)["options"]["SystemdCgroup"] is True


@pytest.mark.parametrize("kind", ["io.containerd.runsc.v1", "io.containerd.kata.v2"])
def test_default_runtime_of_another_type_is_no_model(kind):
    """It has no SystemdCgroup, and the limits of its containers are its own."""
    other = runtime(type=kind, systemd_cgroup=False, base_runtime_spec="/srv/other.json")
    engine = {"default_runtime": "other", "runtimes": {"other": other}}
    made = plan("nvidia_container_runtime", merge(DONE, {"engines": {"containerd": engine}}))
    assert (codes(made), names(made)) == ([], [])
    made = register(engine)
    assert registered(made)["options"]["SystemdCgroup"] is True
    assert "base_runtime_spec" not in registered(made)
    wrong = {"nvidia": runtime(systemd_cgroup=False), "other": other}
    node = merge(DONE, {"engines": {"containerd": {**engine, "runtimes": wrong}}})
    reasons = [one["reason"] for one in plan("nvidia_container_runtime", node)["steps"]]
    assert "its runtimes runc and nvidia differ in SystemdCgroup" in reasons[0]


def test_node_whose_admin_made_nvidia_the_default_is_left_alone():
    """Amazon's nodes: nvidia is the only runtime in the file."""
    theirs = runtime(binary="/usr/bin/nvidia-container-runtime")
    engine = {
        "default_runtime": "nvidia",
        "runtimes": {"nvidia": theirs, "runc": runtime(systemd_cgroup=False, base_runtime_spec="")},
    }
    made = plan("nvidia_container_runtime", merge(DONE, {"engines": {"containerd": engine}}))
    assert (codes(made), names(made)) == ([], [])


@pytest.mark.parametrize("untouched", [True, False])
def test_other_tool_that_undoes_the_edit_is_named_in_the_reason(untouched):
    edit = {
        "path": MAIN,
        "actor": "metal.gpu.nvidia_container_runtime",
        "changes": [],
        "untouched": untouched,
        "error": None,
    }
    made = plan("nvidia_container_runtime", merge(VIRGIN, {"ours": {"edits": [edit]}}))
    (reason,) = [step["reason"] for step in made["steps"] if step["slug"] == "register"]
    assert (f"something else has changed {MAIN}" in reason) is not untouched
