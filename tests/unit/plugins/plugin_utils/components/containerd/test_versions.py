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
from ansible_collections.metal.gpu.plugins.plugin_utils.components.docker.settings import put
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


def table(path: str, version: str) -> list[str]:
    """Return the key path of a row of cri_checks in a file of the newest version."""
    alias, *rest = path.split(".")
    names = {"T": TABLE_3, "I": "io.containerd.cri.v1.images", "X": TABLE_2}
    plugin = names[alias] if version.startswith("2.") else TABLE_2
    return ["plugins", plugin, *rest]


def with_settings(row: dict[str, Any], version: str, **engine: Any) -> dict[str, Any]:
    """Return a node whose containerd has the settings of a row and its defaults."""
    type_2 = "io.containerd.runc.v2"
    dump: dict[str, Any] = {"plugins": {"io.containerd.snapshotter.v1.overlayfs": {}}}
    defaults = {"T.containerd.default_runtime_name": "runc"}
    if not row.get("no_runc") or version.startswith("2."):
        defaults["T.containerd.runtimes.runc.runtime_type"] = type_2
    for path, value in {**defaults, **row["set"]}.items():
        put(dump, tuple(table(path, version)), value)
    found = containerd.parse_effective(dump, version)
    node = with_containerd({"version": version, "conflicts": [*found.conflicts], **engine})
    found_runtimes = {"default_runtime": found.default_runtime, "runtimes": found.runtimes}
    node["engines"]["containerd"] |= {**found_runtimes, **engine}
    return node


@pytest.mark.parametrize("row", RECORD["cri_checks"], ids=lambda row: " ".join(row["set"]))
@pytest.mark.parametrize("version", RECORD["cri_checks"][1]["fatal"])
def test_what_ends_the_cri_plugin_is_known_before_a_restart(row, version):
    """Before a restart, it is a refusal; without one, the next boot is the restart."""
    if version in row.get("unknown", ()):
        return
    is_fatal = version in row["fatal"]
    unread = {"changed_since_start": [MAIN], "edited_since_start": [MAIN]}
    made = plan("containerd", with_settings(row, version, **unread))
    assert set(codes(made)) == ({"CONTAINERD_FATAL"} if is_fatal else set())
    made = plan("containerd", with_settings(row, version))
    assert [one["code"] for one in made["notices"]] == ["ENGINE_NOT_STARTABLE"] * is_fatal
    assert (codes(made), made["steps"]) == ([], [])


def test_file_of_nvidia_ctk_gets_runc():
    """nvidia-ctk writes the runtime nvidia alone where no file was. Up to 1.7, runc is lost."""
    (row,) = [one for one in RECORD["cri_checks"] if one.get("no_runc") and one["fatal"]]
    for version in row["fatal"]:
        made = plan("nvidia_container_runtime", with_settings(row, version), cdi=False)
        assert (codes(made), names(made)[-1]) == ([], "Restart containerd")
        merged = made["data"]["config"]["merge"]["plugins"][TABLE_3]["containerd"]["runtimes"]
        assert merged["runc"]["runtime_type"] == settings.RUNTIME_TYPE
    other = with_settings(row, version, default_runtime="kata")
    made = plan("nvidia_container_runtime", other, cdi=False)
    assert codes(made) == ["CONTAINERD_FATAL"]


@pytest.mark.parametrize("before", [None, settings.RUNTIME_TYPE])
def test_removal_leaves_a_default_runtime(before):
    """Our edit has added runc. Where nvidia was there before, its list without runc is fatal."""
    runtimes = ("plugins", TABLE_2, "containerd", "runtimes")
    changes = [
        {"key": [*runtimes, name, "runtime_type"], "before": former, "after": "x"}
        for name, former in (("runc", None), ("nvidia", before))
    ]
    ours = {"path": MAIN, "actor": "metal.gpu.nvidia_container_runtime", "changes": changes}
    engine = {"version": "1.7.27", "config": {"version": 2}}
    edits = {"ours": {"edits": [{**ours, "untouched": True, "error": None}]}}
    made = plan(
        "nvidia_container_runtime", merge(with_containerd(engine, node=DONE), edits), state="absent"
    )
    assert codes(made) == (["CONTAINERD_FATAL"] if before else [])


@pytest.mark.parametrize("row", RECORD["spelling"], ids=str)
@pytest.mark.parametrize("number", [0, 1])
def test_names_are_read_as_containerd_matches_them(row, number):
    """Kubespray wrote systemdCgroup and binaryName from v2.18 to v2.27."""
    version = ("1.7.27", "2.1.4")[number]
    runc = {"runtime_type": settings.RUNTIME_TYPE, "options": row["options"]}
    in_file = {"plugins": {TABLE_3: {"containerd": {"runtimes": {"runc": runc}}}}}
    found = containerd.parse_effective(in_file, version).runtimes["runc"]
    assert found["systemd_cgroup"] is row["counts"][number]
    # The edit sets the key that counts, and adds none that another one hides.
    wanted = {
        "plugins": {
            TABLE_3: {"containerd": {"runtimes": {"runc": {"options": {"SystemdCgroup": "new"}}}}}
        }
    }
    written = containerd.as_written(wanted, in_file, version)
    after = merge(in_file, written)
    assert (
        containerd.as_read(after, version)["plugins"][TABLE_3]["containerd"]["runtimes"]["runc"][
            "options"
        ]["SystemdCgroup"]
        == "new"
    )


@pytest.mark.parametrize("row", RECORD["cgroup_driver"], ids=str)
@pytest.mark.parametrize("driver", ["systemd", "cgroupfs"])
def test_nvidia_gets_the_cgroup_driver_of_the_kubelet(row, driver):
    """Its model has the other one. If the kubelet takes it from containerd, they do not differ."""
    is_systemd = driver == "systemd"
    runtimes = {"runc": runtime(systemd_cgroup=not is_systemd)}
    node = merge(
        with_containerd({"version": row["containerd"], "runtimes": runtimes, "config": IMPORTS}),
        {"kubelet": {"version": row["kubelet"]}, "cgroup": {"driver": driver}},
    )
    made = plan("nvidia_container_runtime", node)
    is_own = row["of"] == "kubelet"
    options = find(made["data"]["config"]["merge"], "nvidia")["options"]
    assert options["SystemdCgroup"] is (is_systemd if is_own else not is_systemd)
    notices = [one for one in made["notices"] if one["code"] == "CGROUP_DRIVERS_DIFFER"]
    assert len(notices) == is_own
    assert all(f"SystemdCgroup = {str(is_systemd).lower()}" in one["remedy"] for one in notices)
    unknown = merge(node, {"cgroup": {"driver": None}})
    assert (
        find(plan("nvidia_container_runtime", unknown)["data"]["config"]["merge"], "nvidia")[
            "options"
        ]["SystemdCgroup"]
        is not is_systemd
    )


def find(keys: dict[str, Any], name: str) -> Any:
    """Return the keys of a runtime in an edit."""
    (plugin,) = keys["plugins"].values()
    return plugin["containerd"]["runtimes"][name]


def test_plugin_that_is_disabled_is_refused_if_no_role_of_the_run_enables_it():
    node = with_containerd({"cri_enabled": False, "config": {"version": None, "cri_tables": []}})
    assert codes(plan("nvidia_container_runtime", node)) == ["CRI_DISABLED"]
    assert codes(plan("nvidia_container_runtime", node, cri_is_planned=True)) == []


@pytest.mark.parametrize(
    ("outline", "found"),
    [
        pytest.param({"plugins": []}, "plugins is a list", id="list"),
        pytest.param(
            {"plugins": {TABLE_3: {"containerd": {"runtimes": ""}}}}, "runtimes is a", id="text"
        ),
    ],
)
def test_edit_that_the_editor_refuses_is_no_plan(outline, found):
    made = register({"config": {"outline": outline}})
    assert codes(made) == ["CONFIG_NOT_EDITABLE"]
    assert found in made["refusals"][0]["message"]


FATAL = [
    {"config": {"missing_imports": ["/etc/containerd/gone.toml in /etc/containerd/config.toml"]}},
    {"missing_specs": ["/etc/containerd/cri-base.json of the runtime runc"]},
]


@pytest.mark.parametrize(
    ("cause", "engine"),
    list(zip([row["cause"] for row in RECORD["fatal"]], FATAL, strict=True)),
    ids=["missing import", "missing spec"],
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
                                "changes": [],
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


@pytest.mark.parametrize("engine", FATAL, ids=["missing import", "missing spec"])
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
