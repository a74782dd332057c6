# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""CRI-O itself, and the runtime in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.crio import packages, settings
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import fingerprint
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import systems
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN,
    codes,
    load,
    merge,
    names,
    plan,
    record,
    repository,
)
from ansible_collections.metal.gpu.tests.unit.support import carry_out
from ansible_collections.metal.gpu.tests.unit.support.config_files import FOLDER
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant, recording

ENGINE, RUNTIME = "crio", "nvidia_container_runtime"
ACTOR = "metal.gpu.nvidia_container_runtime.crio"
DROP_IN = settings.DROP_IN
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
HOOK = "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"
CONMON, CRUN, RUNC = (f"/usr/libexec/crio/{name}" for name in ("conmon", "crun", "runc"))
NODE = merge(VIRGIN, load("crio"))
NONE = merge(
    merge(VIRGIN, {"engines": {"containerd": {"installed": False, "running": False}}}),
    {"kubelet": {"endpoint": "unix:///var/run/crio/crio.sock"}},
)
# The toolkit is there, and CRI-O knows nothing of it.
TOOLKIT = {key: value for key, value in load("done").items() if key not in ("engines", "ours")}
FRESH = merge(NODE, TOOLKIT)
NVIDIA = {
    "type": "oci",
    "binary": "/usr/bin/nvidia-container-runtime",
    "root": "/run/crun",
    "monitor": CONMON,
    "monitor_cgroup": "system.slice",
    "annotations": ["io.containers.trace-syscall"],
}


def crio(**values: Any) -> dict[str, Any]:
    return {"engines": {"crio": values}}


def edits(path: str, *changes: tuple[list[str], Any]) -> dict[str, Any]:
    made = [{"key": key, "before": before} for key, before in changes]
    edit = {"path": path, "actor": ACTOR, "changes": made, "untouched": True, "error": None}
    return {"ours": {"edits": [edit]}}


DONE = merge(
    FRESH,
    {
        **crio(
            runtimes={"nvidia": NVIDIA},
            config={
                "files": [
                    *(
                        f"/etc/crio/crio.conf.d/{name}"
                        for name in ("10-crio.conf", "20-admin.conf")
                    ),
                    DROP_IN,
                ],
                "runtime_files": {"nvidia": [DROP_IN]},
            },
        ),
        "toolkit": {"runtimes": [CRUN, RUNC], "annotation_prefixes": []},
        "ours": load("done")["ours"],
    },
)
REGISTER = [
    "Tell the NVIDIA runtime where CRI-O's runtimes are",
    "Register the NVIDIA runtime with CRI-O",
    "Restart CRI-O",
]


def test_crio_of_the_admin_stays() -> None:
    assert names(plan(ENGINE, NODE)) == []


def test_node_without_crio_gets_it_from_the_repository_of_its_minor_version() -> None:
    planned = plan(ENGINE, NONE, repository_url="", repository_key="", repository_suite="")
    steps = ["Add the CRI-O repository", "Install CRI-O", "Hold CRI-O", "Start CRI-O"]
    assert names(planned)[-4:] == steps
    data = planned["data"]
    assert data["packages"] == ["cri-o=1.36.6-*"]
    stream = "https://download.opensuse.org/repositories/isv:/cri-o:/stable:/v1.36/deb/"
    assert (data["repository"]["url"], data["repository"]["suite"]) == (stream, "/")
    assert data["repository"]["key"] == f"{stream}Release.key"


def test_key_that_nobody_has_confirmed_is_refused() -> None:
    planned = plan(ENGINE, NONE, repository_url="", repository_key="", repository_fingerprint="")
    assert codes(planned) == ["KEY_UNKNOWN"]


def test_own_sources_need_no_key() -> None:
    planned = plan(ENGINE, NONE, repository=False, repository_fingerprint="")
    assert codes(planned) == []
    assert "Add the CRI-O repository" not in names(planned)


@pytest.mark.parametrize("system", systems.SYSTEMS, ids=lambda one: one.name)
def test_every_system_has_a_source(system: systems.System) -> None:
    source = packages.source(system, "1.35.10")
    assert "/stable:/v1.35/" in source.url
    assert source.url.endswith("/deb/" if system.family == systems.DEBIAN else "/rpm/")


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        pytest.param({"running": False}, ["Start CRI-O"], id="stopped"),
        pytest.param(
            {"changed_since_start": [DROP_IN]}, ["Restart CRI-O"], id="has not read our file yet"
        ),
        pytest.param(
            {"changed_since_start": ["/etc/crio/crio.conf.d/20-admin.conf"]},
            [],
            id="a file of the admin waits for the next start",
        ),
    ],
)
def test_existing_crio(changes: dict[str, Any], steps: list[str]) -> None:
    assert names(plan(ENGINE, merge(NODE, crio(**changes)))) == steps


def test_change_that_crio_has_not_read_can_be_undone() -> None:
    unread = crio(changed_since_start=[DROP_IN], edited_since_start=[DROP_IN])
    node = merge(merge(NODE, unread), edits(DROP_IN))
    assert plan(ENGINE, node)["data"]["change"] == {"path": DROP_IN, "actor": ACTOR}


OF_TOOL = "/etc/crio/crio.conf.d/99-nvidia.toml"
OF_OPERATOR = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
EARLY, LAST = (f"/etc/crio/crio.conf.d/{name}.conf" for name in ("50-gpu-cr", "99-site"))


def unmonitored(name: str, *paths: str) -> dict[str, Any]:
    """Return files whose table of a runtime has no monitor."""
    return {"runtime_files": {name: [*paths]}, "without_monitor": {name: [*paths]}}


UNREAD = {"changed_since_start": [DROP_IN]}


@pytest.mark.parametrize(
    ("planner", "changes", "expected"),
    [
        pytest.param(
            ENGINE,
            crio(**UNREAD, config=unmonitored("nvidia", OF_TOOL)),
            ["CRIO_MONITOR_MISSING"],
            id="the file of nvidia-ctk, written after the start",
        ),
        pytest.param(
            ENGINE, crio(config=unmonitored("nvidia", OF_TOOL)), [], id="the same without a restart"
        ),
        pytest.param(
            ENGINE,
            crio(**UNREAD, config={"defaults": {LAST: "gvisor"}}),
            ["CRIO_CONFIG_INVALID"],
            id="default runtime that no file has",
        ),
        pytest.param(
            ENGINE,
            crio(**UNREAD, config={"runtime_files": {"crun": [], "runc": []}}),
            [],
            id="default runtime that CRI-O contains",
        ),
        pytest.param(
            RUNTIME,
            crio(config=unmonitored("legacy", OF_TOOL)),
            ["CRIO_MONITOR_MISSING"],
            id="another runtime, and our drop-in to come",
        ),
        pytest.param(
            RUNTIME,
            crio(config={**unmonitored("nvidia", EARLY), "defaults": {EARLY: "nvidia"}}),
            [],
            id="our drop-in comes later, and has the monitor",
        ),
    ],
)
def test_restart_reveals_what_a_running_crio_has_not_read(
    planner: str, changes: dict[str, Any], expected: list[str]
) -> None:
    assert codes(plan(planner, merge(FRESH, changes))) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, [], id="as before"),
        pytest.param(
            {"defaults": {LAST: "nvidia"}}, ["CRIO_CONFIG_INVALID"], id="default of the admin"
        ),
        pytest.param({"defaults": {DROP_IN: "nvidia"}}, [], id="default of this role"),
        pytest.param(
            {
                "runtime_files": {"nvidia": [EARLY, DROP_IN]},
                "without_monitor": {"nvidia": [EARLY]},
            },
            ["CRIO_MONITOR_MISSING"],
            id="the table of nvidia-ctk comes back",
        ),
    ],
)
def test_crio_starts_without_our_drop_in(config: dict[str, Any], expected: list[str]) -> None:
    node = merge(merge(DONE, crio(config=config)), edits(DROP_IN))
    assert codes(plan(RUNTIME, node, state="absent")) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            crio(config={"error": f"{OF_TOOL}, line 1, column 5: bad"}),
            ["CRIO_CONFIG_INVALID"],
            id="TOML",
        ),
        pytest.param(
            crio(running=False, config={"defaults": {OF_TOOL: "gvisor"}}),
            ["CRIO_CONFIG_INVALID"],
            id="default runtime that no file has",
        ),
        pytest.param(
            crio(
                running=False,
                runtimes={"nvidia": {**NVIDIA, "monitor": None}},
                config=unmonitored("nvidia", OF_TOOL),
            ),
            ["CRIO_MONITOR_MISSING"],
            id="the file of nvidia-ctk without a crio.conf to copy from",
        ),
        pytest.param(
            crio(
                running=False,
                monitor_in_path=True,
                runtimes={"nvidia": {**NVIDIA, "monitor": None}},
                config=unmonitored("nvidia", OF_TOOL),
            ),
            [],
            id="conmon of the distribution",
        ),
        pytest.param(
            crio(
                running=False,
                monitor="/usr/local/bin/conmon",
                runtimes={"nvidia": {**NVIDIA, "monitor": None}},
                config={**unmonitored("nvidia", OF_TOOL), "monitor": "/usr/local/bin/conmon"},
            ),
            [],
            id="one monitor for all, as Kubespray sets it",
        ),
        pytest.param(
            crio(
                running=False,
                config={
                    "runtime_files": {"legacy": [OF_TOOL, LAST]},
                    "without_monitor": {"legacy": [OF_TOOL]},
                },
            ),
            [],
            id="a later table has the monitor",
        ),
        pytest.param(
            crio(openshift="/etc/os-release has VARIANT_ID=coreos"),
            ["OPENSHIFT_UNSUPPORTED"],
            id="OpenShift",
        ),
        pytest.param(
            {"kubelet": {"endpoint": "unix:///run/containerd/containerd.sock"}},
            ["ENGINE_MISMATCH"],
            id="another engine",
        ),
    ],
)
@pytest.mark.parametrize("planner", [ENGINE, RUNTIME])
def test_refusals(planner: str, changes: dict[str, Any], expected: list[str]) -> None:
    if planner == RUNTIME and expected == ["ENGINE_MISMATCH"]:
        return
    assert codes(plan(planner, merge(FRESH, changes))) == expected


def test_crio_of_this_role_goes_unless_a_kubelet_runs() -> None:
    noted = record(ENGINE, {"cri-o": "1.36.3-*"})
    ours = merge(NODE, {"ours": noted, "repositories": repository("crio")})
    assert codes(plan(ENGINE, ours, state="absent")) == ["CRIO_IN_USE"]
    stopped = plan(ENGINE, merge(ours, {"kubelet": {"running": False}}), state="absent")
    assert "Remove CRI-O" in names(stopped)


def test_crio_of_the_admin_is_never_removed() -> None:
    planned = plan(ENGINE, NODE, state="absent")
    assert (names(planned), [one["code"] for one in planned["notices"]]) == (
        [],
        ["ENGINE_OF_ADMIN"],
    )


def test_runtime_gets_what_the_default_runtime_has() -> None:
    planned = plan(RUNTIME, FRESH)
    assert names(planned) == REGISTER
    data = planned["data"]
    assert data["crio_low_level"] == [CRUN, RUNC]
    assert data["crio_config"] == {
        "path": DROP_IN,
        "remove": [],
        "merge": {
            "crio": {
                "runtime": {
                    "runtimes": {
                        "nvidia": {
                            "runtime_path": "/usr/bin/nvidia-container-runtime",
                            "runtime_type": "oci",
                            "runtime_root": "/run/crun",
                            "monitor_path": CONMON,
                            "monitor_cgroup": "system.slice",
                            "allowed_annotations": ["io.containers.trace-syscall"],
                        }
                    }
                }
            }
        },
    }
    assert data["crio_change"] == {"path": DROP_IN, "actor": ACTOR}


def test_crio_that_does_not_start_again_is_named_before_the_next_boot() -> None:
    found = crio(
        runtimes={"nvidia": {**NVIDIA, "monitor": None}}, config=unmonitored("nvidia", OF_TOOL)
    )
    (notice,) = plan(ENGINE, merge(NODE, found))["notices"]
    assert notice["code"] == "ENGINE_NOT_STARTABLE"
    assert f"its runtime nvidia in {OF_TOOL} has no monitor_path" in notice["message"]


def test_second_run_changes_nothing() -> None:
    assert names(plan(RUNTIME, DONE)) == []


@pytest.mark.parametrize("name", sorted(one.name for one in (FOLDER / "crio").iterdir()))
@pytest.mark.parametrize("default", [True, False])
def test_edit_empties_its_plan(observe: Any, tmp_path: Path, name: str, default: bool) -> None:
    """Beside the file of the package. What is not about the runtime has its own tests."""
    files = {
        "/etc/crio/crio.conf.d/10-crio.conf": recording("crio/10-crio.conf"),
        f"/etc/crio/crio.conf.d/20-{name}": (FOLDER / "crio" / name).read_text(),
    }
    plant(tmp_path, files)
    answers = {"crio --version": (0, "crio version 1.36.3\n", ""), "crio status": (1, "", "down")}
    for run in range(2):
        seen = observe(Programs(answers))
        node = {**FRESH, "engines": {**FRESH["engines"], "crio": seen["engines"]["crio"]}}
        made = plan(RUNTIME, {**node, "ours": seen["ours"]}, default=default)
        refusals = {"02-nvidia.conf": "CRIO_MONITOR_MISSING", "03-by-hand.conf": "OPERATOR_TOOLKIT"}
        if name in refusals:
            assert codes(made) == [refusals[name]]
            return
        assert codes(made) == []
        assert run == 0 or "register_crio" not in [one["slug"] for one in made["steps"]]
        arguments = {**made["data"]["crio_config"], "append": [], "mode": "0644"}
        carry_out.merge(tmp_path, {**arguments, "language": "toml"}, actor=ACTOR)


def test_runc_as_the_default_comes_first() -> None:
    planned = plan(RUNTIME, merge(FRESH, crio(default_runtime="runc")))
    assert planned["data"]["crio_low_level"] == [RUNC, CRUN]
    table = planned["data"]["crio_config"]["merge"]["crio"]["runtime"]["runtimes"]["nvidia"]
    assert table["runtime_root"] == "/run/runc"


def test_list_of_the_admin_stays() -> None:
    """It names one of CRI-O's runtimes. The table fits the runtime that is called."""
    mine = merge(DONE, {"toolkit": {"runtimes": [RUNC]}})
    planned = plan(RUNTIME, mine)
    assert "Tell the NVIDIA runtime where CRI-O's runtimes are" not in names(planned)
    table = planned["data"]["crio_config"]["merge"]["crio"]["runtime"]["runtimes"]["nvidia"]
    assert table["runtime_root"] == "/run/runc"


@pytest.mark.parametrize("untouched", [True, False], ids=["alone", "with the role's other keys"])
def test_list_of_this_role_follows_the_default_runtime(*, untouched: bool) -> None:
    ours = edits(TOOLKIT_CONFIG, (["nvidia-container-runtime", "runtimes"], ["runc", "crun"]))
    (edit,) = ours["ours"]["edits"]
    edit["changes"][0]["after"] = fingerprint([CRUN, RUNC])
    edit["untouched"] = untouched
    node = merge(merge(DONE, crio(default_runtime="runc")), ours)
    planned = plan(RUNTIME, node)
    assert planned["data"]["crio_low_level"] == [RUNC, CRUN]
    assert names(planned) == REGISTER


def test_order_stays_when_nvidia_is_the_default() -> None:
    """The other files say which runtime it calls first. They have it, whoever made it default."""
    admins = "/etc/crio/crio.conf.d/20-admin.conf"
    changes = crio(
        default_runtime="nvidia", config={"defaults": {admins: "runc", DROP_IN: "nvidia"}}
    )
    planned = plan(RUNTIME, merge(DONE, {**changes, "toolkit": {"runtimes": [RUNC, CRUN]}}))
    assert planned["data"]["crio_low_level"] == [RUNC, CRUN]


def test_monitor_of_all_runtimes_counts() -> None:
    planned = plan(RUNTIME, merge(FRESH, crio(monitor="/usr/local/bin/conmon")))
    table = planned["data"]["crio_config"]["merge"]["crio"]["runtime"]["runtimes"]["nvidia"]
    assert table["monitor_path"] == "/usr/local/bin/conmon"


def test_crio_that_is_still_to_come() -> None:
    planned = plan(RUNTIME, merge(NONE, TOOLKIT))
    assert names(planned) == REGISTER
    assert planned["data"]["crio_config"] is None


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        pytest.param(
            crio(runtimes={"nvidia": {**NVIDIA, "binary": "/opt/nvidia-container-runtime"}}),
            ["Register the NVIDIA runtime with CRI-O", "Restart CRI-O"],
            id="another program",
        ),
        pytest.param(
            crio(runtimes={"nvidia": {**NVIDIA, "monitor": "/usr/bin/conmon"}}),
            ["Register the NVIDIA runtime with CRI-O", "Restart CRI-O"],
            id="the monitor of CRI-O moved",
        ),
        pytest.param(
            {"toolkit": {"runtimes": ["runc", "crun"]}},
            ["Tell the NVIDIA runtime where CRI-O's runtimes are"],
            id="the toolkit's own list is back",
        ),
        pytest.param(crio(changed_since_start=[DROP_IN]), ["Restart CRI-O"], id="not read yet"),
        pytest.param(
            crio(
                runtimes={"nvidia": {**NVIDIA, "root": None}},
                config={"runtime_files": {"nvidia": [DROP_IN, OF_TOOL]}},
            ),
            [],
            id="a later table of another tool that does the same",
        ),
        pytest.param(
            crio(runtimes={"nvidia": {**NVIDIA, "root": ""}, "crun": {"root": ""}}),
            [],
            id="CRI-O prints the keys that its default runtime lacks",
        ),
    ],
)
def test_drift(changes: dict[str, Any], steps: list[str]) -> None:
    assert names(plan(RUNTIME, merge(DONE, changes))) == steps


def test_default_runtime_comes_and_goes() -> None:
    planned = plan(RUNTIME, DONE, default=True)
    assert planned["data"]["crio_config"]["merge"]["crio"]["runtime"]["default_runtime"] == "nvidia"
    key = ["crio", "runtime", "default_runtime"]
    ours = merge(merge(DONE, crio(default_runtime="nvidia")), edits(DROP_IN, (key, None)))
    assert names(plan(RUNTIME, ours, default=True)) == []
    back = plan(RUNTIME, ours, default=False)
    assert back["data"]["crio_config"]["remove"] == [key]
    assert names(back) == ["Register the NVIDIA runtime with CRI-O", "Restart CRI-O"]


def test_default_runtime_nvidia_of_the_admin_stays() -> None:
    assert names(plan(RUNTIME, merge(DONE, crio(default_runtime="nvidia")), default=None)) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            crio(
                runtimes={"nvidia": {**NVIDIA, "binary": "/opt/nvidia-container-runtime"}},
                config={"files": [OF_TOOL], "runtime_files": {"nvidia": [OF_TOOL]}},
            ),
            ["CRIO_DROP_IN_REPLACED"],
            id="a later file of another tool",
        ),
        pytest.param(
            crio(
                runtimes={"nvidia": {**NVIDIA, "binary": OF_OPERATOR}},
                config={"files": [OF_TOOL], "runtime_files": {"nvidia": [OF_TOOL]}},
            ),
            ["OPERATOR_TOOLKIT", "CRIO_DROP_IN_REPLACED"],
            id="a later file of the GPU Operator",
        ),
        pytest.param(
            crio(
                runtimes={"nvidia": {**NVIDIA, "binary": OF_OPERATOR}},
                config={"runtime_files": {"nvidia": ["/etc/crio/crio.conf.d/99-gpu.conf"]}},
            ),
            ["OPERATOR_TOOLKIT"],
            id="an earlier file of the GPU Operator",
        ),
        pytest.param(
            crio(runtimes={"crun": {"monitor": None}, "runc": {"binary": "runc"}}),
            ["CRIO_RUNTIME_UNKNOWN"],
            id="no runtime has a monitor and a path",
        ),
        pytest.param(crio(version="1.29.13"), ["CDI_UNSUPPORTED"], id="before CDI 0.7.0"),
        pytest.param(crio(version="1.30.0"), [], id="the first one with it"),
        pytest.param(crio(cdi_dirs=["/srv/cdi"]), ["CRIO_CDI_UNREAD"], id="CDI"),
        pytest.param(
            crio(version=None, version_error="nothing"), ["VERSION_UNKNOWN"], id="version"
        ),
        pytest.param(
            crio(config={"obstacles": {DROP_IN: f"{DROP_IN}, line 1: odd"}}),
            ["CONFIG_NOT_EDITABLE"],
            id="the drop-in cannot be edited",
        ),
    ],
)
def test_runtime_is_refused(changes: dict[str, Any], expected: list[str]) -> None:
    assert codes(plan(RUNTIME, merge(FRESH, changes))) == expected


def hook(**values: Any) -> dict[str, Any]:
    program = "/usr/bin/nvidia-container-runtime-hook"
    return crio(hooks=[{"path": HOOK, "program": program, "always": True, "error": None} | values])


def test_hook_of_2018_is_named_and_goes_only_with_permission() -> None:
    node = merge(DONE, hook())
    named = plan(RUNTIME, node)
    assert (names(named), [one["code"] for one in named["notices"]]) == ([], ["OCI_HOOK_FOUND"])
    permitted = plan(RUNTIME, node, replace_oci_hooks=True)
    assert names(permitted) == ["Turn off the OCI hooks of NVIDIA", "Restart CRI-O"]
    assert permitted["data"]["crio_hooks"] == [HOOK]
    off = plan(RUNTIME, merge(DONE, hook(always=False)))
    assert (names(off), off["notices"]) == ([], [])


def test_hook_in_an_old_form_is_refused_where_it_should_go() -> None:
    node = merge(DONE, hook(error=f'{HOOK}: its "version" is not 1.0.0'))
    assert codes(plan(RUNTIME, node, replace_oci_hooks=True)) == ["CONFIG_NOT_EDITABLE"]


def test_everything_is_given_back() -> None:
    ours = {
        "ours": {
            "edits": [
                {"path": path, "actor": ACTOR, "changes": [], "untouched": True, "error": None}
                for path in (DROP_IN, TOOLKIT_CONFIG, HOOK)
            ]
        }
    }
    planned = plan(RUNTIME, merge(DONE, ours), state="absent")
    assert planned["data"]["crio_edits"] == [DROP_IN, TOOLKIT_CONFIG, HOOK]
    given_back = [name for name in names(planned) if "CRI-O" in name]
    assert given_back == ["Remove the NVIDIA runtime from CRI-O", "Restart CRI-O"]
    assert planned["data"]["containerd_edits"] == planned["data"]["docker_edits"] == []


@pytest.mark.parametrize(
    ("changes", "restarts"),
    [
        pytest.param({}, True, id="the toolkit is still to go"),
        pytest.param(crio(running=False), False, id="CRI-O does not run"),
        pytest.param(
            crio(config={"runtime_files": {"nvidia": [OF_TOOL]}}), False, id="another file has it"
        ),
        pytest.param({"ours": {"packages": {}}}, False, id="the toolkit is the admin's"),
    ],
)
def test_removal_that_stopped_before_the_restart(changes: Any, *, restarts: bool) -> None:
    """The drop-in is gone with its history, and the running CRI-O still has the runtime."""
    left = crio(runtimes={"nvidia": NVIDIA}, config={"runtime_files": {}})
    node = merge(
        merge(FRESH, {**left, "ours": {"packages": load("done")["ours"]["packages"]}}), changes
    )
    if "ours" in changes:
        node["ours"]["packages"] = {}
    planned = names(plan(RUNTIME, node, state="absent"))
    assert ("Restart CRI-O" in planned) is restarts
    if restarts:
        assert planned.index("Restart CRI-O") < planned.index("Remove the container toolkit")


def test_crio_is_not_restarted_with_a_file_that_cannot_be_parsed() -> None:
    """Also, the runtime can be in that file."""
    left = crio(runtimes={"nvidia": NVIDIA}, config={"runtime_files": {}, "error": f"{OF_TOOL}: x"})
    node = merge(FRESH, {**left, "ours": {"packages": load("done")["ours"]["packages"]}})
    refused = plan(RUNTIME, node, state="absent")
    assert (codes(refused), refused["steps"]) == (["CRIO_CONFIG_INVALID"], [])


def test_history_that_is_lost_is_refused() -> None:
    lost = {"path": DROP_IN, "actor": ACTOR, "changes": [], "untouched": False, "error": "broken"}
    node = merge(FRESH, {"ours": {"edits": [lost]}})
    assert codes(plan(RUNTIME, node)) == ["HISTORY_UNREADABLE"]
