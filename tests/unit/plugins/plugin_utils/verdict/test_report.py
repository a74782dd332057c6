# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster.forbidden import no_answer
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.results import error_of
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import (
    admission,
    explain,
    stopped,
    table,
    together,
)

P100 = {"gpu": "Tesla P100", "driver": "580.178.04"}
LAYERS = {"declared": 4, "pci": 4, "nvml": 4, "capacity": 4, "allocatable": 4, "smoke": "4/4"}
NO_GPU = finding("NO_GPU", "b")


def report(node_name: str | None, *found: dict[str, str]) -> dict[str, Any]:
    return {
        "node_name": node_name,
        "kubelet_running": True,
        "refusals": list(found),
        "has_work": True,
        "notices": [],
    }


def test_a_kubelet_that_does_not_run_may_still_join() -> None:
    idle = {**report("n1"), "kubelet_running": False}
    cluster = {"nodes": {"n1": {"state": "missing"}}}
    assert admission({"a": idle}, cluster)["findings"] == []
    found = admission({"a": report("n1")}, cluster)["findings"]
    assert [one["code"] for one in found] == ["NODE_NOT_IN_CLUSTER"]


def test_a_node_that_is_another_machine_stops_the_run_whatever_the_kubelet_does() -> None:
    rows = {"n1": {"state": "missing", "another": "boot id b9, machine id m9"}}
    machine = {"boot_id": "b1", "machine_id": None}
    for running in (True, False, None):
        one = {**report("n1"), "kubelet_running": running, "machine": machine}
        made = admission({"a": one}, {"nodes": {}, "rows": rows})
        assert not made["begin"]
        (found,) = made["findings"]
        assert found["code"] == "NODE_IS_ANOTHER"
        assert (
            "boot id b9, machine id m9; this host has boot id b1, machine id none"
            in found["message"]
        )


def test_notices_that_differ_only_in_their_host_are_one() -> None:
    hosts = [f"gpu-{number}" for number in range(1, 8)]
    kept = [finding("DRIVER_KEPT", host, found="550.1", expected="580.2") for host in hosts]
    other = finding("DRIVER_KEPT", "gpu-9", found="535.1", expected="580.2")
    one, two = together([*kept, other])
    assert one["message"].startswith("gpu-1, gpu-2, gpu-3, gpu-4, gpu-5 and 2 more: driver 550.1")
    assert two["message"] == other["message"]


def test_what_only_some_hosts_have_keeps_a_line_for_each_host() -> None:
    few = [finding("NODE_UNREACHABLE", f"gpu-{number}", error="timeout") for number in range(5)]
    assert together(few, but_few=True) == few
    many = [*few, finding("NODE_UNREACHABLE", "gpu-5", error="timeout")]
    (one,) = together(many, but_few=True)
    assert one["message"].startswith("gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 1 more: the node ")
    assert one["remedy"] == few[0]["remedy"]
    # Cluster and inventory are no hosts of the play, and each has one line.
    assert len(together([*many, no_answer("x")])) == 2


def test_a_message_about_another_host_is_kept() -> None:
    """A task that runs once for all hosts fails on one of them."""
    odd = {**finding("NODE_UNREACHABLE", "gpu-1", error="timeout"), "host": "gpu-2"}
    assert together([odd], but_few=True) == [odd]


def test_table_is_aligned() -> None:
    unknown = {**dict.fromkeys(LAYERS), "declared": 8}
    lost = finding("NODE_UNREACHABLE", "node-10", error="x")
    assert table(
        [
            {"host": "gpu-1", "machine": P100, "layers": LAYERS, "findings": [], "ok": True},
            {
                "host": "node-10",
                "machine": {"gpu": None, "driver": None},
                "layers": unknown,
                "findings": [lost, lost],
                "ok": False,
            },
        ]
    ) == [
        "node     GPU         driver      declared  PCI  NVML  capacity  allocatable  smoke  "
        "verdict",
        "gpu-1    Tesla P100  580.178.04         4    4     4         4            4    4/4  ok",
        "node-10  -           -                  8    -     -         -            -      -  "
        "NODE_UNREACHABLE",
    ]


def test_a_busy_node_is_not_ok_in_the_table() -> None:
    verdict = {"host": "gpu-1", "machine": P100, "layers": {**LAYERS, "smoke": "busy"}}
    rows = table([{**verdict, "findings": [], "ok": True, "busy": True}])
    assert rows[1].split()[-2:] == ["busy", "busy"]


def test_findings_and_steps_in_words() -> None:
    step = {"name": "Install the driver", "reason": "there is none"}
    lines = explain([step, finding("KUBELET_MISSING", "gpu-1")])
    assert lines[0] == "Install the driver (there is none)"
    assert lines[1] == "KUBELET_MISSING gpu-1: the kubelet is not installed"
    assert lines[2].endswith("(docs/troubleshooting.md#kubelet_missing)")


def test_every_refusal_once_and_none_left_out() -> None:
    cluster = {"nodes": {"n1": {"state": "ok"}, "n2": {"state": "missing"}}}
    found = admission(
        {
            "a": report("n1"),
            "b": report("n2", NO_GPU, dict(NO_GPU)),
            "c": report("n1"),
            "d": report(None, finding("NODE_UNREACHABLE", "d", error="x")),
        },
        cluster,
    )
    assert set(found["stopped"]) == {"a", "b", "c", "d"}
    assert [(one["host"], one["code"]) for one in found["findings"]] == [
        ("b", "NO_GPU"),
        ("b", "NODE_NOT_IN_CLUSTER"),
        ("d", "NODE_UNREACHABLE"),
        ("a", "NODE_NAME_TWICE"),
        ("c", "NODE_NAME_TWICE"),
    ]


def test_api_server_without_an_answer_comes_first() -> None:
    cluster = {"nodes": {}, "error": "connection refused"}
    found = admission({"b": report("n1", NO_GPU)}, cluster, skip_refused=True)
    assert [one["code"] for one in found["findings"]] == ["CLUSTER_UNUSABLE", "NO_GPU"]
    assert "connection refused" in found["findings"][0]["message"]
    assert not found["begin"]


REBOOT = finding("REBOOT_NEEDED", "b", evidence="x", reboot_ok="not set")
FOREIGN = finding("DEVICE_PLUGIN_FOREIGN", "cluster", found="x/y")


@pytest.mark.parametrize(
    ("of_b", "of_cluster", "skip", "begin", "stopped_hosts"),
    [
        pytest.param([], [], False, True, [], id="nothing"),
        pytest.param([NO_GPU], [], False, False, ["b"], id="a refusal stops all"),
        pytest.param([NO_GPU], [], True, True, ["b"], id="unless told otherwise"),
        pytest.param([REBOOT], [], False, True, ["b"], id="a stop stops its node"),
        pytest.param([REBOOT, NO_GPU], [], False, False, ["b"], id="refusal and stop"),
        pytest.param([], [FOREIGN], True, False, ["cluster"], id="the cluster stops all"),
    ],
)
def test_who_may_go_on(
    of_b: list[Any], of_cluster: list[Any], skip: bool, begin: bool, stopped_hosts: list[str]
) -> None:
    reports = {"a": report("n1"), "b": report("n2", *of_b)}
    cluster = {"nodes": {}, "refusals": of_cluster}
    found = admission(reports, cluster, skip_refused=skip)
    assert (found["begin"], list(found["stopped"])) == (begin, stopped_hosts)


def test_with_nobody_left_there_is_nothing_to_begin() -> None:
    assert not admission({"b": report("n2", REBOOT)}, {"nodes": {}})["begin"]


@pytest.mark.parametrize(
    ("result", "error"),
    [
        pytest.param({"msg": "Task failed: no"}, "no", id="message"),
        pytest.param(
            {"msg": "non-zero return code", "stderr": "E: locked\n"},
            "non-zero return code: E: locked",
            id="what the program said",
        ),
        pytest.param(
            {
                "msg": "One or more items failed",
                "results": [
                    {"msg": "fine", "failed": False},
                    {"msg": "a", "failed": True},
                    {"msg": "a", "failed": True},
                    {"msg": "b", "failed": True},
                ],
            },
            "a; b",
            id="loop",
        ),
        pytest.param({"msg": ["first", 2]}, "first\n2", id="list"),
        pytest.param({"msg": {"a": 1}, "stderr": 5}, "{'a': 1}: 5", id="mapping"),
        pytest.param({"msg": None, "stderr": "x"}, "x", id="no message"),
        # As dnf returns them, where packages were changed before the error.
        pytest.param({"msg": "no", "results": ["Installed: x"]}, "no", id="results of a module"),
        pytest.param({"msg": "no", "results": []}, "no", id="no results"),
        pytest.param({"msg": "no", "results": None}, "no", id="results are null"),
        pytest.param({"msg": "no", "results": [{"failed": False}]}, "no", id="no item failed"),
        *(
            pytest.param(
                {
                    "msg": msg,
                    "module_stderr": "Traceback (most recent call last):\n  File x\n"
                    "zipimport.ZipImportError: can't open '/tmp/payload.zip'\n"
                    "Shared connection to 192.0.2.7 closed.\n",
                    "module_stdout": "",
                },
                "the output of the module ended without a result, because the connection ended, "
                "the node restarted, or the module failed; it last printed: "
                "zipimport.ZipImportError: can't open '/tmp/payload.zip'",
                id=f"a restart, as {core} tells it",
            )
            # Read in _parse_returned_data of ansible-core 2.16.19 and 2.21.5.
            for core, msg in (
                ("2.16", "MODULE FAILURE\nSee stdout/stderr for the exact error"),
                (
                    "2.21",
                    "Task failed: Module failed: Module result deserialization failed.: No start "
                    "of json char found\nSee stdout/stderr for the returned output.",
                ),
            )
        ),
    ],
)
def test_why_the_run_stopped(result: dict[str, Any], error: str) -> None:
    (found,) = stopped(result, "gpu-1", "Install it")
    assert found["message"] == f"gpu-1: the run stopped here at 'Install it': {error}"
    if result.get("module_stderr"):  # a part of an operation with packages tells the same
        assert error_of(result) == error


def test_what_a_role_has_explained_stays_what_it_is() -> None:
    found = [
        finding("KUBELET_DOWN", "gpu-1", error="x (y)\nKUBELET_DOWN gpu-2: z"),
        finding("DRIVER_IN_USE", "gpu-1", users="a"),
    ]
    assert stopped({"msg": "\n".join(explain(found))}, "gpu-1", "Refuse") == found
    assert stopped({"msg": explain(found)}, "gpu-1", "Refuse") == found
    lines = "\n".join(explain(found)).split("\n")
    assert [line[:4] for line in lines] == ["KUBE", "    ", "  Wh", "DRIV", "  Wh"]
