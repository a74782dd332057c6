# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run concludes about hosts that it proved, left out or lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import no_answer
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.tags import ROLES
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import fleet, former
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import table, word
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    CRIO,
    plan,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE as CONTAINERD,
)
from ansible_collections.metal.gpu.tests.unit.support.healthy import containerd_node

NODE = containerd_node().observed()
AWAY = finding("NODE_UNREACHABLE", "gpu-1", error="timeout")
REBOOT = finding("REBOOT_NEEDED", "gpu-1", evidence="x", reboot_ok="unset")
NOTHING = fleet.Answers({}, {}, [], ())
KEPT = finding("DRIVER_KEPT", "gpu-1", found="550.1", expected="580.2")
DRIFT = {
    "steps": [{"slug": "hold", "name": "Hold", "reason": "not held"}],
    "refusals": [],
    "notices": [KEPT],
}


def host(planned: dict[str, Any], *findings: dict[str, str], dropped: bool = False) -> fleet.Host:
    return fleet.Host("gpu-1", planned, findings, dropped)


def planned(**more: Any) -> dict[str, Any]:
    return {"node": NODE, "engine": "containerd", "refusals": [], "plans": {}, **more}


def codes(verdict: dict[str, Any]) -> list[str]:
    return [one["code"] for one in verdict["findings"]]


def test_host_that_was_proved_is_not_observed_again() -> None:
    assert not fleet.is_doubtful(host(planned()), NOTHING)
    verdict = fleet.judge(host(planned()), NOTHING, None, drift=True)
    assert codes(verdict) == []
    assert not fleet.fails(verdict)


def test_resources_are_those_that_the_inventory_names() -> None:
    for value, names in (({"example.com/h100": 8}, ["example.com/h100"]), (None, []), ("?", [])):
        assert fleet.report(host(planned(expected=value)))["resources"] == names


def test_work_is_what_any_plan_has() -> None:
    assert fleet.report(host(planned()))["work"] == []
    report = fleet.report(host(planned(plans={"nvidia_driver": DRIFT})))
    assert report["work"] == ["nvidia_driver"]
    assert report["node_name"] == ""  # from the plan of preflight, which is not there


def with_default(name: str, binary: str) -> dict[str, Any]:
    node = copy.deepcopy(NODE)
    engine = node["engines"]["containerd"]
    engine["default_runtime"] = name
    engine["runtimes"] = {name: {**engine["runtimes"]["nvidia"], "binary": binary}}
    return planned(node=node)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(with_default("runc", ""), False, id="runc"),
        pytest.param(planned(engine="docker"), True, id="Docker"),
        pytest.param(planned(node=None), False, id="not observed"),
        pytest.param(with_default("nvidia", "/usr/bin/nvidia-container-runtime"), True, id="name"),
        pytest.param(
            with_default("gpu", "/usr/bin/nvidia-container-runtime"), True, id="another name"
        ),
        pytest.param(
            with_default("nvidia-legacy", "/usr/bin/nvidia-container-runtime.legacy"), True,
            id="of another mode",
        ),
        pytest.param(with_default("kata", "/usr/bin/kata-runtime"), False, id="of others"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("steps", [DRIFT, {**DRIFT, "steps": []}], ids=["pending", "done"])
def test_whether_an_image_can_choose_its_gpus(
    found: dict[str, Any], steps: dict[str, Any], *, expected: bool
) -> None:
    """Judged by the program, and also while the run is about to change the engine."""
    one = host({**found, "plans": {"nvidia_container_runtime": steps}})
    assert fleet.report(one)["gives_gpus_by_default"] is expected
    if found["node"]:
        assert fleet.member(one)["gives_gpus_by_default"] is expected


@pytest.mark.parametrize("node", [CONTAINERD, CRIO], ids=["containerd", "CRI-O"])
@pytest.mark.parametrize(("default", "expected"), [(True, True), (False, False), (None, False)])
def test_wish_for_the_default_runtime_counts_before_it_is_there(
    node: dict[str, Any], default: bool | None, *, expected: bool
) -> None:
    """Otherwise the guard would come only with the second run."""
    made = plan("nvidia_container_runtime", node, default=default)
    assert made["refusals"] == []
    engine = "crio" if node is CRIO else "containerd"
    plans = {"nvidia_container_runtime": made}
    one = host(planned(node=node, engine=engine, plans=plans))
    assert fleet.report(one)["gives_gpus_by_default"] is expected
    assert fleet.member(one)["gives_gpus_by_default"] is expected


def test_default_runtime_of_the_admin_counts_whatever_is_asked() -> None:
    one = with_default("nvidia", "/usr/bin/nvidia-container-runtime")
    made = plan("nvidia_container_runtime", CONTAINERD, default=False)
    found = host({**one, "plans": {"nvidia_container_runtime": made}})
    assert fleet.report(found)["gives_gpus_by_default"] is True


def test_notices_that_no_role_shows() -> None:
    done = {**DRIFT, "steps": []}
    assert fleet.report(host(planned(plans={"nvidia_driver": done})))["notices"] == [KEPT]
    assert fleet.report(host(planned(plans={"nvidia_driver": DRIFT})))["notices"] == []


def test_steps_are_drift_if_asked() -> None:
    one = host(planned(plans={"nvidia_driver": DRIFT}))
    assert codes(fleet.judge(one, NOTHING, None, drift=True)) == ["DRIFTED"]
    assert codes(fleet.judge(one, NOTHING, None, drift=False)) == []


def test_plan_that_could_not_be_made_is_a_finding() -> None:
    broken = finding("RUN_STOPPED", "gpu-1", task="the plan of containerd", error="undefined")
    assert codes(fleet.judge(host(planned(refusals=[broken])), NOTHING, None, drift=True)) == [
        "RUN_STOPPED"
    ]


def test_node_that_was_left_out_keeps_its_reason() -> None:
    one = host(planned(), REBOOT)
    assert fleet.is_left_out(one)
    assert not fleet.is_doubtful(one, NOTHING)
    verdict = fleet.judge(one, NOTHING, None, drift=True)
    assert codes(verdict) == ["REBOOT_NEEDED"]
    assert fleet.fails(verdict)
    rehearsed = fleet.judge(one, NOTHING, None, drift=True, check_mode=True)
    assert fleet.fails(rehearsed)  # whatever the mode


def test_difference_fails_no_check_mode() -> None:
    one = host(planned(plans={"x": DRIFT}))
    assert fleet.fails(fleet.judge(one, NOTHING, None, drift=True))
    rehearsed = fleet.judge(one, NOTHING, None, drift=True, check_mode=True)
    assert not fleet.fails(rehearsed)
    assert (codes(rehearsed), word(rehearsed)) == (["DRIFTED"], "planned")


@pytest.mark.parametrize(
    ("slug", "gone", "left_out", "code"),
    [
        pytest.param("cdi", "uvm", (), "planned", id="the service creates the device file"),
        pytest.param("cdi", "nvidia", (), "CUDA_UNAVAILABLE DRIFTED", id="not that of a GPU"),
        pytest.param("link", "uvm", (), "CUDA_UNAVAILABLE DRIFTED", id="links create no file"),
        pytest.param("cdi", "uvm", ROLES, "CUDA_UNAVAILABLE DRIFTED", id="tags leave it out"),
    ],
)
def test_device_file_that_the_service_of_the_toolkit_creates(
    slug: str, gone: str, left_out: Any, code: str
) -> None:
    """Debian's own driver does not load nvidia_uvm at boot."""
    kernel = {**NODE["kernel"], "modules": ["nvidia"]}
    files = [one for one in NODE["device_files"] if gone not in one["path"]]
    step = {"slug": slug, "name": "x", "reason": "y"}
    plans = {"nvidia_container_runtime": {"steps": [step], "refusals": [], "notices": []}}
    one = host(planned(node={**NODE, "kernel": kernel, "device_files": files}, plans=plans))
    found = fleet.judge(one, NOTHING, None, drift=True, check_mode=True, left_out=left_out)
    assert word(found) == code


@pytest.mark.parametrize(
    ("role", "slug", "expected"),
    [
        ("containerd", "start", {"planned"}),
        ("registries", "restart", {"planned"}),
        ("registries", "write", {"ENGINE_STOPPED", "DRIFTED"}),
        ("nvidia_container_runtime", "restart", {"planned"}),
        ("nvidia_container_runtime", "hold", {"ENGINE_STOPPED", "DRIFTED"}),
        ("nvidia_driver", "hold", {"ENGINE_STOPPED", "DRIFTED"}),
        ("kubelet_device_plugins", "restart", {"ENGINE_STOPPED", "DRIFTED"}),
    ],
)
def test_engine_that_the_real_run_starts(role: str, slug: str, expected: set[str]) -> None:
    engines = copy.deepcopy(NODE["engines"])
    engines["containerd"]["running"] = False
    plan = {**DRIFT, "steps": [{"slug": slug, "name": "x", "reason": "y"}]}
    one = host(planned(node={**NODE, "engines": engines}, plans={role: plan}))
    found = fleet.judge(one, NOTHING, None, drift=True, check_mode=True)
    assert {*word(found).split()} == expected


def test_without_drift_the_refusal_of_a_plan_fails_no_node() -> None:
    """The GPU Operator owns the node, and its GPUs shall only be proven."""
    theirs = finding("OPERATOR_TOOLKIT", "gpu-1", engine="containerd", found="/usr/local/nvidia/x")
    one = host(planned(plans={"x": {**DRIFT, "steps": [], "refusals": [theirs]}}))
    assert "OPERATOR_TOOLKIT" in codes(fleet.judge(one, NOTHING, None, drift=True))
    assert "OPERATOR_TOOLKIT" not in codes(fleet.judge(one, NOTHING, None, drift=False))
    assert "-e verify_drift=false" in theirs["remedy"]


@pytest.mark.parametrize(
    ("active", "finished", "is_whole", "check_mode", "expected"),
    [
        ("abc", "ab", True, False, "3 of 4 nodes restored, 2 changed, 1 refused"),
        ("abc", "ab", True, True, "3 of 4 nodes planned, 2 would change, 1 refused"),
        ("bc", "ab", True, False, "2 of 4 nodes restored, 1 changed, 1 failed, 1 refused"),
        ("bc", "b", True, False, "2 of 4 nodes restored, 1 changed, 1 failed, 1 refused"),
        ("abc", "ab", False, False, "3 of 4 nodes done as far as the tags go, 1 refused"),
    ],
    ids=["all", "check mode", "lost at the end", "failed in a role", "tags"],
)
def test_last_line_of_a_teardown(
    active: str, finished: str, is_whole: bool, check_mode: bool, expected: str
) -> None:
    work = {"a": ["nvidia_driver"], "b": ["registries"]}
    run = {"hosts": [*"abcd"], "admitted": [*"abc"], "work": work, "refused": ["d"]}
    found = fleet.ended(
        run, active=active, finished=finished, is_whole=is_whole, check_mode=check_mode
    )
    assert found == expected


def test_node_that_was_lost_before_a_teardown_has_failed() -> None:
    run = {"hosts": [*"ab"], "admitted": ["a"], "work": {}, "refused": [], "lost": ["b"]}
    found = fleet.ended(run, active="a", finished="", is_whole=True, check_mode=False)
    assert found == "1 of 2 nodes restored, 0 changed, 1 failed"


def test_unreachable_node_is_not_tried_again_at_once() -> None:
    one = host({"node": None, "refusals": [AWAY], "plans": {}})
    assert not fleet.is_doubtful(one, NOTHING)
    assert fleet.ask(one) is None
    assert codes(fleet.judge(one, NOTHING, None, drift=True)) == ["NODE_UNREACHABLE"]


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        pytest.param(None, "RUN_STOPPED", id="not observed again"),
        pytest.param({"node": None, "refusals": [AWAY]}, "NODE_UNREACHABLE", id="still away"),
        pytest.param({"node": NODE}, "RUN_STOPPED", id="back"),
    ],
)
def test_node_that_dropped_out(again: dict[str, Any] | None, expected: str) -> None:
    """It had work, and neither the end of its roles nor a failure was recorded."""
    one = host(planned(), dropped=True)
    assert fleet.is_doubtful(one, NOTHING)
    assert fleet.is_left_out(one)
    assert codes(fleet.judge(one, NOTHING, again, drift=False)) == [expected]


def test_node_whose_role_failed_has_no_observation_left() -> None:
    """What a failed task returns has none. It is observed again, for the table."""
    one = host(
        {"failed": True, "msg": "x"}, finding("RUN_STOPPED", "gpu-1", task="Install", error="x")
    )
    assert fleet.is_doubtful(one, NOTHING)
    verdict = fleet.judge(one, NOTHING, {"node": NODE}, drift=True)
    assert codes(verdict) == ["RUN_STOPPED"]
    assert verdict["layers"]["pci"] is not None


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({"smoke": {"state": "failed"}}, id="its pod failed"),
        pytest.param({"capacity": {"ready": False}}, id="it is not Ready"),
    ],
)
def test_node_that_fails_after_its_observation_is_observed_again(answers: dict[str, Any]) -> None:
    name = NODE["kubelet"]["node_name"]
    rows = {layer: {name: row} for layer, row in answers.items()}
    found = fleet.Answers(rows.get("capacity", {}), rows.get("smoke", {}), [], ())
    assert fleet.is_doubtful(host(planned()), found)


def test_restart_between_two_observations() -> None:
    again = {"node": {**NODE, "boot_id": "another"}}
    verdict = fleet.judge(host(planned()), NOTHING, again, drift=False)
    assert codes(verdict) == ["NODE_RESTARTED"]


def test_findings_that_every_host_has_are_nobodys_own() -> None:
    silence = no_answer("x")
    answers = fleet.Answers({}, {}, [silence], ("cluster",))
    verdict = fleet.judge(host(planned()), answers, None, drift=False)
    assert codes(verdict) == ["CLUSTER_UNUSABLE"]
    assert fleet.failures([verdict], [silence]) == {}
    assert fleet.failures([verdict], []) == {"gpu-1": "CLUSTER_UNUSABLE"}
    both = {**verdict, "findings": [AWAY, silence]}
    named = fleet.failures([both], [silence])
    assert named == {"gpu-1": "NODE_UNREACHABLE, CLUSTER_UNUSABLE"}


NO_DRIVER = {"code": "not_installed", "exit_code": None, "message": "nvidia-smi is not installed"}
OUTSIDE = {
    "state": "differs",
    "ready": True,
    "capacity": None,
    "allocatable": None,
    "cause": {"code": "DEVICE_PLUGIN_MISSING", "evidence": {}},
    "evidence": [],
}


def bare(*work: str, loaded: bool = False, **more: Any) -> fleet.Host:
    """Return a host whose driver does not answer, with what its roles have to do."""
    node = copy.deepcopy(NODE)
    node["nvml"] |= {"devices": [], "failure": NO_DRIVER}
    if loaded:
        node["nvml"]["failure"] = {"code": "timeout", "exit_code": None, "message": "no answer"}
    else:
        node["kernel"]["modules"] = []
    declared = more.pop("declared", None)
    return fleet.Host("gpu-1", planned(node=node, declared=declared), [], work=work, **more)


ANSWERS = fleet.Answers({NODE["kubelet"]["node_name"]: OUTSIDE}, {}, [], ("cluster",))  # type: ignore[dict-item]
DRIVER = "nvidia_driver"


@pytest.mark.parametrize(
    ("one", "stay"),
    [
        pytest.param(bare(DRIVER), [], id="bare"),
        pytest.param(
            bare("registries"), ["NVML_UNAVAILABLE"], id="the roles do not set up the driver"
        ),
        pytest.param(bare(DRIVER, loaded=True), ["NVML_UNAVAILABLE"], id="a driver that hangs"),
        pytest.param(bare(DRIVER, declared=9), ["GPU_COUNT_DIFFERS"], id="a GPU is lost"),
        pytest.param(bare(), ["NVML_UNAVAILABLE", "DEVICE_PLUGIN_MISSING"], id="no work"),
        pytest.param(bare(is_plugin_pending=True), ["NVML_UNAVAILABLE"], id="plugin only"),
    ],
)
def test_rehearsal_keeps_only_what_no_role_mends(one: fleet.Host, stay: list[str]) -> None:
    real = fleet.judge(one, ANSWERS, None, drift=False)
    assert {*codes(real)} >= {"NVML_UNAVAILABLE", "DEVICE_PLUGIN_MISSING"}
    assert fleet.outcome([real], []) == "unhealthy"
    verdict = fleet.judge(one, ANSWERS, None, drift=False, check_mode=True)
    assert codes(verdict) == stay
    assert (verdict["ok"], fleet.fails(verdict)) == (False, bool(stay))
    assert word(verdict) == (" ".join(stay) or "planned")
    assert fleet.outcome([verdict], []) == ("unhealthy" if stay else "planned")
    assert former.compare([verdict], {})[0]["planned"] is not bool(stay)


def test_gpu_that_the_plugin_calls_unhealthy_stays_a_finding() -> None:
    row = {
        **OUTSIDE,
        "cause": {
            "code": "GPU_UNHEALTHY",
            "evidence": {"pod": "p", "name": "p", "namespace": "n", "error": "Xid"},
        },
    }
    answers = ANSWERS._replace(capacity={NODE["kubelet"]["node_name"]: row})  # type: ignore[dict-item]
    verdict = fleet.judge(bare(DRIVER), answers, None, drift=False, check_mode=True)
    assert codes(verdict) == ["GPU_UNHEALTHY"]
    assert fleet.fails(verdict)


@pytest.mark.parametrize(
    ("unanswered", "ok", "outcome"),
    [
        ([], True, "ok"),
        ([], False, "unhealthy"),
        ([AWAY], False, "cluster_down"),
        ([no_answer("The kubeconfig /a b does not exist. Set …")], False, "refused"),
        ([AWAY, no_answer("The kubeconfig /a does not exist. Set …")], False, "cluster_down"),
        # The server works, and a policy says no.
        ([finding("CLUSTER_REJECTED", "cluster", by="p", error="no")], False, "unhealthy"),
    ],
)
def test_outcome(unanswered: list[Any], ok: bool, outcome: str) -> None:
    assert fleet.outcome([{"ok": True}, {"ok": ok}], unanswered) == outcome


@pytest.mark.parametrize(("ok", "outcome"), [(True, "unproven"), (False, "unhealthy")])
def test_a_run_without_a_proof_is_not_ok(ok: bool, outcome: str) -> None:
    assert fleet.outcome([{"ok": ok}], [], is_proof=False) == outcome
    assert fleet.outcome([], [], is_proof=False) == "unproven"


@pytest.mark.parametrize(
    ("refused", "check_mode", "line"),
    [
        (0, False, "1 of 2 nodes ok, 4 GPUs, 1 changed, 24 s"),
        (1, False, "1 of 2 nodes ok, 4 GPUs, 1 changed, 1 refused, 24 s"),
        (0, True, "1 of 2 nodes ok, 4 GPUs, 2 would change, 24 s"),
    ],
)
def test_last_line(refused: int, check_mode: bool, line: str) -> None:
    work = {"changed": False, "would_change": True, "findings": []}
    verdicts = [
        {**work, "ok": True, "layers": {"nvml": 4}},
        {**work, "changed": True, "ok": False, "layers": {"nvml": None}},
    ]
    found = fleet.summary(verdicts, refused=refused, seconds=24.4, check_mode=check_mode)
    assert found == line


def test_last_line_counts_a_busy_node_apart() -> None:
    """Nothing is wrong with it, and nothing is proven."""
    verdict = {"ok": True, "changed": False, "would_change": False, "layers": {"nvml": 4}}
    verdicts = [verdict | {"level": "compute"}, verdict | {"busy": True}]
    line = fleet.summary(verdicts, refused=0, seconds=24)
    assert line == "1 of 2 nodes ok, 1 busy, 8 GPUs, 0 changed, 24 s"
    assert fleet.outcome(verdicts, []) == "ok"


@pytest.mark.parametrize(
    ("wells", "line"),
    [
        (0, "2 of 2 nodes planned, 2 would change, only a real run proves GPUs, 9 s"),
        (1, "2 of 3 nodes planned, 1 ok, 4 GPUs, 2 would change, only a real run proves GPUs, 9 s"),
    ],
)
def test_last_line_of_a_rehearsal(wells: int, line: str) -> None:
    well = {"ok": True, "changed": False, "would_change": False, "layers": {"nvml": 4}}
    bare = {"ok": False, "planned": True, "changed": False, "would_change": True, "findings": []}
    verdicts = [*[well] * wells, *[{**bare, "layers": {"nvml": 0}}] * 2]
    assert fleet.summary(verdicts, refused=0, seconds=9, check_mode=True) == line


def test_last_line_says_that_no_program_has_computed() -> None:
    verdict = {"ok": True, "changed": False, "would_change": False, "layers": {"nvml": 4}}
    line = fleet.summary([verdict | {"level": "list"}], refused=0, seconds=24)
    assert line == "1 of 1 nodes ok, 4 GPUs, 0 changed, level list, 24 s"


DONE = {**DRIFT, "steps": []}
HALTED = finding("ROLLOUT_HALTED", "gpu-1", others="gpu-0")
BROKEN = finding("RUN_STOPPED", "gpu-1", task="Install", error="x")


@pytest.mark.parametrize(
    ("plans", "findings", "changed"),
    [
        pytest.param({"nvidia_driver": DONE}, [], True, id="its role proved that it is done"),
        pytest.param({"nvidia_driver": DRIFT}, [], False, id="tags left its role out"),
        pytest.param({"nvidia_driver": DRIFT, "containerd": DONE}, [], False, id="no work there"),
        pytest.param({}, [BROKEN], True, id="a step failed"),
        pytest.param({"nvidia_driver": DRIFT}, [HALTED], False, id="its batch did not start"),
    ],
)
def test_node_has_changed_if_steps_were_carried_out(
    plans: dict[str, Any], findings: list[Any], changed: bool
) -> None:
    one = fleet.Host("gpu-1", planned(plans=plans), findings, work=["nvidia_driver"])
    verdict = fleet.judge(one, NOTHING, None, drift=False)
    assert (verdict["changed"], verdict["would_change"]) == (changed, True)


def test_node_that_left_the_play_before_it_was_observed() -> None:
    lost = host({})
    assert fleet.is_doubtful(lost, NOTHING)
    verdict = fleet.judge(lost, NOTHING, {"node": NODE}, drift=True)
    assert codes(verdict) == ["RUN_STOPPED"]
    assert "Ansible had removed the host from the play" in verdict["findings"][0]["message"]
    assert codes(fleet.judge(lost, NOTHING, {"node": None, "refusals": [AWAY]}, drift=True)) == [
        "NODE_UNREACHABLE"
    ]


@pytest.mark.parametrize(
    ("again", "rebooted", "expected"),
    [
        pytest.param({"node": None, "refusals": [AWAY]}, False, [AWAY["code"]], id="away"),
        pytest.param({"node": {**NODE, "boot_id": "another"}}, True, [], id="its reboot"),
        pytest.param(
            {"node": {**NODE, "boot_id": "another"}},
            False,
            ["NODE_RESTARTED"],
            id="another reboot, which says more than the error of the task",
        ),
    ],
)
def test_node_whose_role_stopped_may_be_away(
    again: dict[str, Any], rebooted: bool, expected: list[str]
) -> None:
    work = ["nvidia_driver"]
    one = fleet.Host("gpu-1", planned(), [BROKEN], work=work, rebooted=rebooted)
    assert fleet.is_doubtful(one, NOTHING)
    assert codes(fleet.judge(one, NOTHING, again, drift=False)) == ["RUN_STOPPED", *expected]


def test_node_that_no_task_can_reach_is_not_tried_again() -> None:
    """A second try would take the table from all nodes."""
    lost = host({"failed": True, "msg": "the connection plugin 'x' was not found"})
    assert not fleet.is_doubtful(lost, NOTHING)
    (found,) = fleet.judge(lost, NOTHING, None, drift=True)["findings"]
    assert "the connection plugin 'x' was not found" in found["message"]


def test_run_that_does_not_start_judges_no_node() -> None:
    """The table has what was seen, and for each node its refusals; `-` if it has none."""
    refused = fleet.refuse(host(planned(), REBOOT), NOTHING)
    other = fleet.refuse(host(planned(plans={"nvidia_driver": DRIFT})), NOTHING)
    assert (codes(refused), codes(other)) == (["REBOOT_NEEDED"], [])
    assert refused["layers"]["pci"] == other["layers"]["pci"] == len(NODE["pci"])
    rows = table([refused, other])
    assert [row.split()[-1] for row in rows[1:]] == ["REBOOT_NEEDED", "-"]


def test_only_proven_nodes_are_uncordoned():
    cordon = finding("NODE_CORDONED", "x", by="by this collection, since 1", node="x")
    verdicts = [
        {"host": "gpu-1", "ok": True, "findings": [cordon]},
        {"host": "gpu-2", "ok": False, "findings": [cordon, REBOOT]},
        {"host": "gpu-3", "ok": True, "findings": []},
    ]
    assert fleet.cordoned(verdicts) == ["gpu-1"]
