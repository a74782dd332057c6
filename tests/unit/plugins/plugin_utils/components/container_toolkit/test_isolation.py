# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files
from ansible_collections.metal.gpu.plugins.plugin_utils.components.container_toolkit import (
    isolation,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    CRIO,
    DOCKER,
    DONE,
    VIRGIN,
    merge,
    plan,
    record,
    without_nulls,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

ROOT = Path(__file__).parents[6]
RECORD = yaml.safe_load((ROOT / "tests/recorded/isolation.yml").read_text())
SWARM = [row for row in RECORD["swarm"]["rows"] if "set" in row]
ROLE = "nvidia_container_runtime"
FILE = "/etc/nvidia-container-runtime/config.toml"
ENVVAR, MOUNTS = isolation.SETTINGS
PREFIXES = "nvidia-container-runtime/modes/cdi/annotation-prefixes"
OPEN: dict[str, Any] = {"toolkit": {"settings": {}}}
OURS = {"ours": record(ROLE, {"nvidia-container-toolkit": "1.20.1-1"})}
ADMINS = {"ours": {"packages": {}}}
EDIT = {
    "path": FILE,
    "actor": f"metal.gpu.{ROLE}",
    "changes": [{"key": [name], "before": None} for name in isolation.SETTINGS],
    "untouched": True,
    "error": None,
}


def node(base: Any, *changes: Any) -> Any:
    """Return a node. In a settings table, only what is given is set."""
    found = base
    for change in changes:
        found = merge(found, change)
        settings = change.get("toolkit", {}).get("settings")
        if settings is not None:
            found["toolkit"]["settings"] = dict(settings)
        if change is ADMINS:
            found["ours"]["packages"] = {}
    return found


def slugs(found: Any, **desired: Any) -> set[str]:
    made = plan(ROLE, without_nulls(found), **desired)
    assert made["refusals"] == []
    return {step["slug"] for step in made["steps"]} & {"isolate", "accept"}


@pytest.mark.parametrize(
    ("base", "changes", "desired", "expected"),
    [
        pytest.param(VIRGIN, [], {}, {"isolate"}, id="containerd, new toolkit"),
        pytest.param(DONE, [OURS, OPEN], {}, {"isolate"}, id="containerd, our toolkit"),
        pytest.param(DONE, [OURS], {}, set(), id="done"),
        pytest.param(DONE, [ADMINS, OPEN], {}, set(), id="the admin's toolkit"),
        pytest.param(
            DONE, [ADMINS, OPEN], {"envvar": "ignore"}, {"isolate"}, id="the admin's, on demand"
        ),
        pytest.param(VIRGIN, [], {"default": True}, set(), id="default runtime"),
        pytest.param(VIRGIN, [], {"cdi": False}, set(), id="no CDI"),
        pytest.param(VIRGIN, [], {"envvar": "accept"}, set(), id="pods need the variable"),
        pytest.param(DOCKER, [], {}, set(), id="Docker"),
        pytest.param(DOCKER, [], {"envvar": "ignore"}, {"isolate"}, id="Docker, on demand"),
        pytest.param(
            DONE, [OURS, {"toolkit": {"settings": {ENVVAR: True}}}], {}, set(),
            id="the admin has chosen the variable",
        ),
        pytest.param(
            DONE, [OURS, {"toolkit": {"settings": {ENVVAR: False}}}], {}, {"isolate"},
            id="the admin has done half of it",
        ),
    ],
)  # fmt: skip
def test_which_nodes_ignore_the_variable(
    base: Any, changes: list[Any], desired: dict[str, Any], expected: set[str]
) -> None:
    assert slugs(node(base, *changes), **desired) == expected


@pytest.mark.parametrize(
    ("settings", "desired", "expected"),
    [
        pytest.param(isolation.SETTINGS, {}, set(), id="stays"),
        pytest.param({ENVVAR: True, MOUNTS: True}, {}, {"isolate"}, id="undone by another tool"),
        pytest.param(isolation.SETTINGS, {"envvar": "accept"}, {"accept"}, id="taken back"),
        pytest.param(isolation.SETTINGS, {"default": True}, {"accept"}, id="default runtime now"),
        pytest.param(isolation.SETTINGS, {"state": "absent"}, {"accept"}, id="teardown"),
    ],
)
def test_what_this_role_has_set(settings: Any, desired: Any, expected: set[str]) -> None:
    found = node(DONE, OURS, {"toolkit": {"settings": settings}})
    found["ours"]["edits"] = [*found["ours"]["edits"], EDIT]
    assert slugs(found, **desired) == expected


@pytest.mark.parametrize(
    ("prefixes", "desired", "expected"),
    [
        pytest.param(isolation.OF_TOOLKIT, {}, {"isolate"}, id="as the package made it"),
        pytest.param(None, {}, {"isolate"}, id="not set"),
        pytest.param([], {}, set(), id="done"),
        pytest.param(["acme.example/"], {}, set(), id="the admin's"),
        pytest.param(["acme.example/"], {"envvar": "ignore"}, {"isolate"}, id="on demand"),
        pytest.param(isolation.OF_TOOLKIT, {"envvar": "accept"}, set(), id="accepted"),
        pytest.param(
            isolation.OF_TOOLKIT, {"default": True}, {"isolate"}, id="added after the guard looked"
        ),
        pytest.param([], {"default": True}, set(), id="default runtime, done"),
        pytest.param(
            ["acme.example/"], {"default": True}, set(), id="default runtime, the admin's"
        ),
        pytest.param(
            isolation.OF_TOOLKIT,
            {"default": True, "envvar": "accept"},
            set(),
            id="default runtime, accepted",
        ),
    ],
)
def test_annotations_under_cri_o(prefixes: Any, desired: dict[str, Any], expected: Any) -> None:
    """CRI-O passes a pod's annotations to its runtime. containerd does not."""
    changes = {"toolkit": {"settings": isolation.SETTINGS, "annotation_prefixes": prefixes}}
    assert slugs(node(CRIO, OURS, changes), **desired) == expected
    made = plan(ROLE, without_nulls(node(CRIO, OURS, changes)), **desired)
    if expected:
        settings = {} if desired.get("default") else isolation.SETTINGS
        merged = {**settings, **isolation.NO_ANNOTATIONS}
        assert made["data"]["settings"]["merge"] == merged
    if not desired:
        assert slugs(node(DONE, OURS, changes)) == set()


@pytest.mark.parametrize(
    ("base", "changes", "desired", "expected"),
    [
        pytest.param(DOCKER, [], {}, True, id="Docker"),
        pytest.param(DOCKER, [], {"envvar": "ignore"}, False, id="Docker, no variable counts"),
        pytest.param(
            DOCKER, [{"kubelet": {"installed": False}}], {}, False, id="Docker without pods"
        ),
        pytest.param(DONE, [OURS], {}, False, id="containerd"),
        pytest.param(DONE, [ADMINS], {}, False, id="containerd, the admin's toolkit"),
        pytest.param(
            DONE,
            [ADMINS, {"toolkit": {"settings": {ENVVAR: False}}}],
            {"default": True},
            False,
            id="the admin's, no variable counts",
        ),
        pytest.param(DONE, [OURS], {"default": True}, True, id="containerd, default runtime"),
        pytest.param(CRIO, [OURS], {"default": True}, True, id="CRI-O, default runtime"),
        pytest.param(DOCKER, [], {"state": "absent"}, False, id="teardown"),
    ],
)
def test_variables_of_docker_swarm(
    base: Any, changes: list[Any], desired: dict[str, Any], *, expected: bool
) -> None:
    """They matter where the guard has to set NVIDIA_VISIBLE_DEVICES."""
    toolkit = {"settings": {}, "swarm_resource": ["DOCKER_RESOURCE_GPU", "ACME"]}
    found = node(base, {"toolkit": toolkit}, *changes)
    found["ours"]["edits"] = []
    made = plan(ROLE, without_nulls(found), **desired)
    assert made["refusals"] == []
    said = [one["message"] for one in made["notices"] if one["code"] == "SWARM_RESOURCE_SET"]
    assert len(said) == expected
    if expected:
        assert f"{FILE} has swarm-resource with DOCKER_RESOURCE_GPU and ACME," in said[0]
        found["toolkit"]["swarm_resource"] = []
        again = plan(ROLE, without_nulls(found), **desired)
        assert "SWARM_RESOURCE_SET" not in [one["code"] for one in again["notices"]]


def test_variables_of_docker_swarm_count_again_with_the_settings_of_the_toolkit() -> None:
    toolkit = {"settings": isolation.SETTINGS, "swarm_resource": ["DOCKER_RESOURCE_GPU"]}
    found = node(DONE, OURS, {"toolkit": toolkit})
    found["ours"]["edits"] = [*found["ours"]["edits"], EDIT]
    for default in (False, True):
        made = plan(ROLE, without_nulls(found), default=default)
        assert ("SWARM_RESOURCE_SET" in [one["code"] for one in made["notices"]]) is default


@pytest.mark.parametrize("line", [f'swarm-resource = "{row["set"]}"' for row in SWARM])
def test_variables_are_read_as_the_toolkit_does(observe: Any, tmp_path: Path, line: str) -> None:
    plant(tmp_path, {FILE: f"{line}\n{FROM_PACKAGE}"})
    (names,) = {tuple(row["uses"]) for row in SWARM if len(row["uses"]) == 2}
    assert observe(Programs({}))["toolkit"]["swarm_resource"] == [*names]


def test_no_variable_is_set_in_the_file_of_the_package(observe: Any, tmp_path: Path) -> None:
    for line in ("", '#swarm-resource = "DOCKER_RESOURCE_GPU"', 'swarm-resource = ""'):
        plant(tmp_path, {FILE: f"{line}\n{FROM_PACKAGE}"})
        assert observe(Programs({}))["toolkit"]["swarm_resource"] == []


def test_default_runtime_of_the_admins_toolkit() -> None:
    packages = {"nvidia-container-toolkit": "1.20.1-1"}
    changes = {
        "toolkit": {
            "settings": {},
            "annotation_prefixes": isolation.OF_TOOLKIT,
            "packages": packages,
        }
    }
    assert slugs(node(CRIO, ADMINS, changes), default=True) == set()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        pytest.param([ENVVAR, MOUNTS, PREFIXES], ["accept", "isolate"], id="it was runc"),
        pytest.param([PREFIXES], [], id="done"),
    ],
)
def test_the_default_runtime_needs_the_variable_and_no_annotations(
    keys: list[str], expected: list[str]
) -> None:
    """Pods get their GPUs by the variable now, so the other two settings are given back."""
    changes = {"toolkit": {"settings": isolation.SETTINGS, "annotation_prefixes": []}}
    found = node(CRIO, OURS, changes)
    edit = {**EDIT, "changes": [{"key": key.split("/"), "before": None} for key in keys]}
    found["ours"]["edits"] = [*found["ours"]["edits"], edit]
    made = plan(ROLE, without_nulls(found), default=True)
    steps = [step["slug"] for step in made["steps"] if step["slug"] in ("isolate", "accept")]
    assert (made["refusals"], steps) == ([], expected)
    if expected:
        assert made["data"]["settings"]["merge"] == isolation.NO_ANNOTATIONS
    tasks = (ROOT / f"roles/{ROLE}/tasks/present.yml").read_text()
    assert tasks.index(isolation.ACCEPT.title) < tasks.index(isolation.ISOLATE.title)


def test_annotations_are_those_of_the_toolkit(observe: Any, tmp_path: Path) -> None:
    rows = RECORD["annotations"]["rows"]
    (packaged,) = (row["value"] for row in rows if row["what"] == "annotation-prefixes")
    assert packaged == isolation.OF_TOOLKIT
    gives = {tuple(row["prefixes"]): row["gives"] for row in rows if "prefixes" in row}
    assert gives == {tuple(packaged): True, (): False}
    plant(tmp_path, {FILE: FROM_PACKAGE})
    assert observe(Programs({}))["toolkit"]["annotation_prefixes"] == packaged


@pytest.mark.parametrize(
    "base",
    [
        pytest.param(DONE, id="containerd"),
        pytest.param(DOCKER, id="Docker"),
        pytest.param(CRIO, id="CRI-O"),
        pytest.param(
            merge(CRIO, {"engines": {"containerd": {"installed": True, "running": True}}}),
            id="CRI-O with a containerd beside it",
        ),
    ],
)
def test_teardown_of_the_settings_leaves_the_engine(base: Any) -> None:
    found = node(base, OURS)
    found["ours"]["edits"] = [EDIT]
    made = plan(ROLE, without_nulls(found), state="absent")
    assert made["refusals"] == []
    assert made["data"]["containerd_edits"] == []
    steps = {step["slug"] for step in made["steps"]}
    assert "accept" in steps
    assert not [slug for slug in steps if slug.startswith(("unregister", "restart", "reload"))]


def test_a_file_that_cannot_be_edited_is_refused() -> None:
    found = node(DONE, OURS, OPEN)
    found["toolkit"]["config_error"] = f"{FILE}, line 3, column 1: expected a value"
    made = plan(ROLE, without_nulls(found))
    (refusal,) = made["refusals"]
    assert refusal["code"] == "CONFIG_NOT_EDITABLE"
    assert "line 3, column 1" in refusal["message"]


FROM_PACKAGE = f"""#{ENVVAR} = true

[nvidia-container-runtime]
runtimes = ["runc", "crun"]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
"""
LIST = {"nvidia-container-runtime": {"runtimes": ["/usr/libexec/crio/crun"]}}
OF_ROLE: tuple[str, Any] = (EDIT["actor"], {**isolation.SETTINGS, **isolation.NO_ANNOTATIONS})
OF_CRIO = (f"{EDIT['actor']}.crio", LIST)


BACK = (EDIT["actor"], None)  # the role takes its settings back


@pytest.mark.parametrize(
    ("edits", "before", "after", "goes"),
    [
        pytest.param([OF_ROLE], "", "", True, id="as the package made it"),
        pytest.param([OF_ROLE, OF_CRIO, BACK], "", "", True, id="taken back"),
        pytest.param([OF_ROLE, OF_CRIO, BACK, OF_ROLE], "", "", True, id="taken back and again"),
        pytest.param(
            [OF_ROLE, OF_CRIO, BACK, OF_ROLE], "", "x = 1\n", False, id="the admin's after these"
        ),
        pytest.param([OF_ROLE, OF_CRIO], "", "", True, id="both edits for CRI-O"),
        pytest.param([OF_CRIO, OF_ROLE], "", "", True, id="the other way round"),
        pytest.param([OF_ROLE], "x = 1\n", "", False, id="the admin's before ours"),
        pytest.param([OF_ROLE], "", "x = 1\n", False, id="the admin's after ours"),
        pytest.param([OF_ROLE, OF_CRIO], "", "x = 1\n", False, id="the admin's after both"),
    ],
)
def test_the_teardown_removes_only_the_file_of_the_package(
    observe: Any, tmp_path: Path, edits: list[Any], before: str, after: str, goes: bool
) -> None:
    content = before + FROM_PACKAGE
    pasts: dict[str, history.History] = {}
    for actor, merged in edits:
        if merged is None:
            content = history.restore(content, "toml", pasts.pop(actor)) or ""
            continue
        written = history.change(content, "toml", documents.Edits(merge=merged))
        assert written
        pasts[actor] = history.extend(None, content, "toml", written=written)
        content = written
    for actor, past in pasts.items():
        name = document_history_files.file_name(FILE, actor)
        plant(tmp_path, {f"{document_history_files.DIRECTORY}/{name}": history.remember(past)})
    plant(tmp_path, {FILE: after + content})
    observed = observe(Programs({}))
    found = node(DONE, OURS, {"toolkit": {"config_sha256": observed["toolkit"]["config_sha256"]}})
    digest = sha256(FROM_PACKAGE.encode()).hexdigest()
    entry = {"version": "1.20.1-1", "before": None, "config_sha256": digest}
    found["ours"]["packages"][ROLE]["packages"]["nvidia-container-toolkit-base"] = entry
    found["ours"]["edits"] = [*found["ours"]["edits"], *observed["ours"]["edits"]]
    assert len(observed["ours"]["edits"]) == len(pasts)
    made = plan(ROLE, without_nulls(found), state="absent")
    assert made["refusals"] == []
    assert (FILE in made["data"].get("files", [])) is goes
    assert made["data"]["purge"] is goes


def test_the_settings_are_those_of_the_toolkit() -> None:
    rows = {row["what"]: row["value"] for row in RECORD["settings"]["rows"]}
    assert {*isolation.SETTINGS} == {*rows}
    # Each is the opposite of what the toolkit does without a configuration.
    assert {name: not value for name, value in rows.items()} == isolation.SETTINGS
