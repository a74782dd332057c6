# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils import variables

ROOT = Path(__file__).parents[4]
WHOLE = "expected a whole number, 0 or greater"


def refusals(**found: Any) -> list[str]:
    roles = {role for option in variables.load_options().values() for role in option.roles}
    return [one["message"] for one in variables.refuse_invalid("gpu-1", found, roles).values()]


@pytest.mark.parametrize(
    ("value", "number"),
    [(0, 0), (4, 4), ("4", 4), ("08", 8), (None, None), ("", None)],
)
def test_gpu_count_that_is_right(value, number):
    assert variables.gpu_count("gpu-1", value) == (number, [])
    assert refusals(gpu_count=value) == []


@pytest.mark.parametrize(
    ("value", "amounts"),
    [
        (None, {}),
        ("", {}),
        ({}, {}),
        ({"nvidia.com/gpu": 40}, {"nvidia.com/gpu": 40}),
        ({"nvidia.com/gpu": "3", "nvidia.com/mig-1g.10gb": 7},
         {"nvidia.com/gpu": 3, "nvidia.com/mig-1g.10gb": 7}),
        (40, None),
        ("40", None),
        ([40], None),
        ({"nvidia.com/gpu": "many"}, None),
        ({"nvidia.com/gpu": -1}, None),
        ({"nvidia.com/gpu": True}, None),
        ({"gpu": 4}, None),
    ],
)  # fmt: skip
def test_gpu_expected(value, amounts):
    assert variables.gpu_expected(value) == amounts
    wrong = refusals(gpu_expected=value) if value is not None else []
    assert bool(wrong) is (amounts is None)


@pytest.mark.parametrize(
    ("variable", "value", "is_right"),
    [
        ("verify_docker_capabilities", [], True),
        ("verify_docker_capabilities", ["7.5", "9.0+PTX", "9.0a"], True),
        ("verify_docker_capabilities", ["7.5", "sm_80"], False),
        ("verify_docker_capabilities", ["75"], False),
        ("device_plugin_image", "registry.example:5000/nvidia/k8s-device-plugin", True),
        ("device_plugin_image", "nvcr.io/nvidia/k8s-device-plugin:v0.20.0", False),
        ("device_plugin_image", f"k8s-device-plugin@sha256:{'0' * 64}", False),
        ("verify_docker_image", "registry.example:5000/team/app:1", True),
        ("verify_docker_image", f"team/app:1@sha256:{'0' * 64}", True),
        ("verify_docker_image", "team/app@sha256:0123", False),
        ("verify_docker_image", "https://registry.example/team/app", False),
        ("verify_docker_image", "team/app -it", False),
    ],
)
def test_texts_with_a_form_of_their_own(variable, value, is_right):
    assert (refusals(**{variable: value}) == []) is is_right


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("four", "'four'"),
        (4.5, "4.5"),
        (4.0, "4.0"),
        (-1, "-1"),
        ("-1", "'-1'"),
        ("4 ", "'4 '"),
        (True, "true"),
        (False, "false"),
        ("9" * 5000, f"'{'9' * 60}…'"),
        ("0x4", "'0x4'"),
        ("٤", "'٤'"),
        ([4], "a list"),
        ({}, "a mapping"),
    ],
)
def test_gpu_count_that_is_no_number(value, shown):
    number, wrong = variables.gpu_count("gpu-1", value)
    assert number is None
    assert [one["code"] for one in wrong] == ["VARIABLE_INVALID"]
    assert [one["message"] for one in wrong] == [f"gpu-1: gpu_count is {shown}, {WHOLE}"]
    assert refusals(gpu_count=value) == [one["message"] for one in wrong]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("metal_gpu_engine", "docker"),
        ("metal_gpu_skip_refused", "yes"),
        ("metal_gpu_skip_refused", False),
        ("metal_gpu_kubeconfig", None),
        ("metal_gpu_kubeconfig", "~/.kube/config"),
        ("nvidia_driver_version", "580.178.04"),
        ("nvidia_driver_reboot_ok", None),
        ("nvidia_driver_reboot_timeout", "600"),
        ("docker_ce_users", []),
        ("docker_ce_users", ["alice"]),
        ("device_plugin_resources", {"limits": {"memory": "1Gi"}}),
        ("verify_smoke_tolerations", [{"operator": "Exists"}]),
        ("somebody_elses", 1.5),
    ],
)
def test_values_that_are_right(name, value):
    assert refusals(**{name: value}) == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "metal_gpu_engine",
            "dokcer",
            "is 'dokcer', expected one of auto, containerd, docker, crio",
        ),
        ("metal_gpu_skip_refused", "maybe", "is 'maybe', expected true or false"),
        ("metal_gpu_kubeconfig", ["a"], "is a list, expected a path"),
        ("nvidia_driver_version", 580.1, "is 580.1, expected text in quotes"),
        ("nvidia_driver_version", 580, "is 580, expected text in quotes"),
        ("nvidia_driver_version", None, "is empty, expected text in quotes"),
        ("nvidia_driver_reboot_timeout", "soon", f"is 'soon', {WHOLE}"),
        ("docker_ce_users", "alice,bob", "is 'alice,bob', expected a list"),
        (
            "docker_ce_users",
            [{"name": "alice"}],
            "is a list, expected a list in which each item is text in quotes",
        ),
        ("device_plugin_resources", "1Gi", "is '1Gi', expected a mapping"),
        (
            "nvidia_driver_repository_url",
            ["https://u:hunter2@mirror.example"],
            "is a list, expected text in quotes",
        ),
        (
            "nvidia_driver_state",
            "https://u:hunter2@mirror.example",
            "is 'https://***@mirror.example', expected one of present, absent",
        ),
    ],
)
def test_values_that_are_wrong(name, value, message):
    assert refusals(**{name: value}) == [f"gpu-1: {name} {message}"]


def test_a_long_value_is_cut():
    (message,) = refusals(metal_gpu_engine="x" * 5000)
    assert len(message) < 200


def test_only_the_variables_of_these_roles_are_checked():
    found = {"gpu_count": "four", "nvidia_driver_version": 580.1}
    assert set(variables.refuse_invalid("gpu-1", found, ["verify"])) == {"gpu_count"}
    assert variables.refuse_invalid("gpu-1", found, []) == {}


class Lazy(Mapping[str, Any]):
    """Variables of a host, one of which is a template with a mistake."""

    def __getitem__(self, name: str) -> Any:
        if name == "nvidia_driver_version":
            raise ValueError("nobody_has_set_this is undefined")
        return {"gpu_count": "four"}[name]

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __iter__(self) -> Iterator[str]:
        return iter(["gpu_count", "nvidia_driver_version"])

    def __len__(self) -> int:
        return 2


def test_a_template_with_a_mistake_is_left_to_the_plan_that_reads_it():
    assert set(variables.refuse_invalid("gpu-1", Lazy(), ["verify", "nvidia_driver"])) == {
        "gpu_count"
    }


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("gpu_cuont", "gpu_count"),
        ("metal_gpu_kubeconfg", "metal_gpu_kubeconfig"),
        ("metal_gpu_engin", "metal_gpu_engine"),
        ("containerd_verison", "containerd_version"),
        ("nvidia_driver_reboot", "nvidia_driver_reboot_ok"),
        ("nvidia_drver_version", "nvidia_driver_version"),
        ("nvidia_drvier_version", "nvidia_driver_version"),
        ("gpucount", "gpu_count"),
        ("gpuCount", "gpu_count"),
        ("driver_version", "nvidia_driver_version"),
        ("registry_hosts", "registries_hosts"),
        ("nvidia_driver_colour", None),
        ("metal_gpu_colour", None),
        ("metal_gpu_observation_was_fresh", None),
    ],
)
def test_a_variable_that_nothing_reads(name, near):
    (notice,) = variables.notice_unknown({"gpu-1": {name: 1, "gpu_expected": {}}})
    assert notice["code"] == "VARIABLE_UNKNOWN"
    assert notice["severity"] == "notice"
    hint = f"; did you mean {near}?" if near else ""
    assert notice["message"] == (
        f"inventory: {name} is set for gpu-1, but this collection has no such variable{hint}"
    )


@pytest.mark.parametrize(
    "name",
    [
        "gpu_count",
        "gpu_model",  # of the user's own
        "containerd_storage_dir",  # of another tool
        "metal_gpu_hosts",
        "metal_gpu_run",  # a fact of an earlier play
        "verify_smoke_pods",
        "gpus",
        "metal",
        *(
            "docker_version",
            "docker_packages",
            "docker_users",
            "kube_version",
            "version",
        ),  # Kubespray
        *("cri_version", "container_manager", "node_name", "hosts", "ansible_host", "reboot_ok"),
    ],
)
def test_a_variable_that_is_none_of_our_business(name):
    assert variables.notice_unknown({"gpu-1": {name: 1}}) == []


def test_a_variable_that_a_template_of_ours_may_read():
    own = {"driver_version": "580", "nvidia_driver_version": "{{ driver_version }}"}
    assert variables.notice_unknown({"gpu-1": own}) == []


def test_one_notice_for_all_hosts():
    (notice,) = variables.notice_unknown({f"gpu-{n}": {"gpu_cuont": n} for n in range(2000)})
    assert "is set for gpu-0, gpu-1, gpu-2 and 1997 more, but" in notice["message"]


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ({}, "compute"),
        ({"verify_level": "exchange"}, "exchange"),
        ({"verify_level": "list"}, None),
        ({"verify_level": "lst"}, None),  # VARIABLE_INVALID
        ({"verify_compute_image": "mirror.example/vectoradd"}, None),
    ],
)
def test_an_image_that_no_pod_runs(values, level):
    image = {"verify_smoke_image": "mirror.example/cuda"}
    notices = variables.notice_unused({"gpu-1": image | values, "gpu-2": {}})
    words = f"is used only by metal.gpu.leak_test: at level {level}, "
    assert [one["code"] for one in notices] == (["SMOKE_IMAGE_UNUSED"] if level else [])
    assert all(words in one["message"] for one in notices)
    assert not any("remove verify_smoke_image" in one["remedy"] for one in notices)


def test_variables_of_the_command_line():
    names = {"gpu-1": {"metal_gpu_serial": 1}, "gpu-2": {"metal_gpu_serial": 1}, "gpu-3": {}}
    (refusal,) = variables.refuse_misplaced(names, {})
    assert refusal["code"] == "VARIABLE_MISPLACED"
    assert refusal["message"].startswith("inventory: metal_gpu_serial is set for gpu-1, gpu-2; ")
    assert variables.refuse_misplaced(names, {"metal_gpu_serial": "1"}) == []


def test_every_fact_that_a_task_sets_is_known():
    """A second playbook in the same run finds the facts of the first."""
    facts = set()
    for path in [*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("playbooks/*.yml")]:
        facts |= set(facts_of(yaml.safe_load(path.read_text())))
    assert {"metal_gpu", "preflight_cluster", "verify_result"} <= facts
    assert facts <= variables.load_words()


def facts_of(found: Any) -> Iterator[str]:
    if isinstance(found, list):
        for item in found:
            yield from facts_of(item)
    elif isinstance(found, dict):
        if "register" in found:
            yield found["register"]
        yield from found.get("ansible.builtin.set_fact", {})
        for item in found.values():
            yield from facts_of(item)
