# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playbooks that Ansible really runs, with every ansible-core that the tests run on.

No test asks what this machine is: it may be a laptop with a GPU or a container without systemd.
"""

from __future__ import annotations

import json
import re
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils import tags
from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import PLANNERS
from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS
from ansible_collections.metal.gpu.tests.unit.golden.nodes import CARDS, variables
from ansible_collections.metal.gpu.tests.unit.golden.nodes import node as virgin
from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer
from ansible_collections.metal.gpu.tests.unit.support.healthy import containerd_node
from ansible_collections.metal.gpu.tests.unit.support.playbooks import LOCAL, ROOT, Run, run

FIXTURES = ROOT / "tests" / "unit" / "fixtures" / "plans"
PLAYBOOKS = sorted(f"metal.gpu.{path.stem}" for path in (ROOT / "playbooks").glob("[!_]*.yml"))
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.254", "ansible_port": 9}
ROLES = {
    "nvidia_driver": {},
    "containerd": {},
    "docker_ce": {},
    "nvidia_container_runtime": {
        "engine": "auto",
        "engine_is_new": False,
        "cri_is_planned": False,
        "driver_is_planned": True,
    },
    "kubelet_device_plugins": {},
}


def inventory(hosts: dict[str, Any], **variables: Any) -> dict[str, Any]:
    variables = {**LOCAL, "metal_gpu_kubeconfig": "/nonexistent", **variables}
    return {"gpu_nodes": {"hosts": hosts, "vars": variables}}


def play(*roles: str, **keywords: Any) -> dict[str, Any]:
    return {
        "name": "A play of the user's own",
        "hosts": "gpu_nodes",
        "gather_facts": False,
        "become": True,
        "roles": [f"metal.gpu.{role}" for role in roles],
        **keywords,
    }


def role(name: str, **keywords: Any) -> dict[str, Any]:
    """Return a task that plans a role, which is what the role begins with."""
    options = {"roles": [name], "report_only": True}
    return {"name": name, "metal.gpu.plan": options, "register": "metal_gpu", **keywords}


def rescued(name: str, **keywords: Any) -> dict[str, Any]:
    """Return a play that goes on when its role fails, so that Ansible plays the next one."""
    bring = {"name": name, "ansible.builtin.import_role": {"name": f"metal.gpu.{name}"}}
    go_on = {"name": "Go on", "ansible.builtin.debug": {"msg": "The role has failed."}}
    return play(tasks=[{"name": name, "block": [bring], "rescue": [go_on]}], **keywords)


def codes(found: Run) -> set[str]:
    return set(re.findall(r"\b([A-Z]+(?:_[A-Z]+)+) [\w-]+: ", found.words))


def test_syntax(tmp_path):
    found = run(tmp_path, PLAYBOOKS[0], inventory({"gpu-1": {}}), *PLAYBOOKS[1:], "--syntax-check")
    assert found.code == 0, found.output


def test_syntax_of_tasks_that_are_included_later(tmp_path):
    """Ansible looks at them only when it gets there."""
    tasks: list[dict[str, Any]] = []
    for path in sorted(ROOT.glob("roles/*/tasks/*.yml")):
        importing = {"name": f"metal.gpu.{path.parents[1].name}", "tasks_from": path.name}
        tasks.append({"name": str(path), "ansible.builtin.import_role": importing})
    for path in sorted(ROOT.glob("roles/*/tasks/*/*.yml")):
        tasks.append({"name": str(path), "ansible.builtin.import_tasks": str(path)})
    assert len(tasks) > 40
    found = run(tmp_path, [play(tasks=tasks)], inventory({"gpu-1": {}}), "--syntax-check")
    assert found.code == 0, found.output


def test_every_play_is_in_step_whatever_is_configured():
    for path in (ROOT / "playbooks").glob("*.yml"):
        plays = [one for one in yaml.safe_load(path.read_text()) if "hosts" in one]
        assert [one["name"] for one in plays if one.get("strategy") != "linear"] == []


def test_plans_are_those_of_the_library(tmp_path):
    """Templates make other types of some values before ansible-core 2.19."""
    node = virgin(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=False)
    given = {"metal_gpu_observation_is_fresh": True, "metal_gpu_given": {"node": node}}
    (tmp_path / "given.json").write_text(json.dumps(given))
    take = {"metal_gpu": "{{ metal_gpu_given }}"}
    tasks: list[dict[str, Any]] = [{"name": "Take it", "ansible.builtin.set_fact": take}]
    tasks += [role(name) for name in ROLES]
    tasks.append(
        {
            "name": "Keep the plans",
            "ansible.builtin.copy": {
                "content": "{{ metal_gpu.plans | to_json }}",
                "dest": str(tmp_path / "plans.json"),
                "mode": "0600",
            },
        }
    )
    hosts = inventory({"node": {}})
    found = run(tmp_path, [play(tasks=tasks)], hosts, f"-e@{tmp_path / 'given.json'}")
    assert found.code == 0, found.output
    plans = json.loads((tmp_path / "plans.json").read_text())
    for name, more in ROLES.items():
        assert plans[name] == json.loads(json.dumps(PLANNERS[name](node, variables(name, **more))))


def test_later_plans_hide_the_credentials_of_earlier_ones(tmp_path):
    node = virgin(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=False)
    given = {"metal_gpu_observation_is_fresh": True, "metal_gpu_given": {"node": node}}
    (tmp_path / "given.json").write_text(json.dumps(given))
    take = {"metal_gpu": "{{ metal_gpu_given }}"}
    tasks: list[dict[str, Any]] = [{"name": "Take it", "ansible.builtin.set_fact": take}]
    tasks += [role("nvidia_container_runtime"), role("kubelet_device_plugins")]
    url = "https://reader:canary@mirror.example/toolkit"
    hosts = inventory({"node": {}}, nvidia_container_runtime_repository_url=url)
    found = run(tmp_path, [play(tasks=tasks)], hosts, "-vvv", f"-e@{tmp_path / 'given.json'}")
    assert found.code == 0, found.output
    assert "reader:" not in found.output
    assert found.output.count("the output has been hidden") == 2


@pytest.fixture
def program(tmp_path):
    """A kubelet that tells its version, to be found before any other."""
    path = tmp_path / "bin" / "kubelet"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho Kubernetes v1.30.0\n")
    path.chmod(0o755)
    return path


def test_each_role_sees_what_the_tasks_before_it_have_done(tmp_path, program):
    """Nor does it believe a cache of facts, which an inventory stands for here."""
    version = {"var": "metal_gpu.node.kubelet.version"}
    show = {"name": "Show the version", "ansible.builtin.debug": version}
    other = {"path": str(program), "regexp": "v1.30.0", "replace": "v1.31.0"}
    update = {"name": "Update the kubelet", "ansible.builtin.replace": other}
    tasks = [role("kubelet_device_plugins"), show, update, role("containerd"), show]
    yesterday = {"kubelet": {"version": "1.29.0"}}
    found = run(
        tmp_path,
        [play(tasks=tasks)],
        inventory({"gpu-1": {"metal_gpu": {"node": yesterday}}}),
        PATH=f"{program.parent}:{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
    )
    assert found.code == 0, found.output
    assert re.findall(r"kubelet.version\": \"([\d.]+)", found.output) == ["1.30.0", "1.31.0"]


def test_role_that_follows_another_uses_what_it_has_observed(tmp_path):
    """But not after a role of somebody else, or in another play, or in a task."""
    node = containerd_node()
    (tmp_path / "record.json").write_text(json.dumps({"changed": False, "raw": node.raw}))
    greet = tmp_path / "roles" / "greet" / "tasks"
    greet.mkdir(parents=True)
    (greet / "main.yml").write_text("- {name: Greet, ansible.builtin.debug: {msg: hello}}")
    driver, engine, kubelet = ("nvidia_driver", "containerd", "kubelet_device_plugins")
    ours = play(driver, engine, kubelet)  # 1
    mixed = play(engine)  # 2: before and after the role
    mixed["roles"] += ["greet", f"metal.gpu.{kubelet}"]
    tasks = [{"name": "Go on", "ansible.builtin.import_role": {"name": f"metal.gpu.{kubelet}"}}]
    there = play(engine)  # another machine
    there["roles"].append({"role": f"metal.gpu.{kubelet}", "delegate_to": "gpu-2"})
    hosts = inventory(
        {"gpu-1": {}},
        ansible_connection="recorded",
        ansible_pipelining=True,
        nvidia_driver_repository_url="https://mirror.example/",
    )
    hosts["others"] = {**hosts["gpu_nodes"], "hosts": {"gpu-2": {}}}
    found = run(
        tmp_path,
        [ours, mixed, play(driver, tasks=tasks), there],
        hosts,
        "-vvv",
        ANSIBLE_CONNECTION_PLUGINS=str(ROOT / "tests" / "bench" / "connection_plugins"),
        ANSIBLE_ROLES_PATH=str(tmp_path / "roles"),
        METAL_BENCH_RECORD=str(tmp_path / "record.json"),
        METAL_BENCH_NODE="gpu-1",
    )
    assert found.code == 0, found.output
    plays = found.output.split("\nPLAY [")[1:]
    observed = [len(re.findall(r"Using module file \S*node_info", one)) for one in plays]
    assert observed == [1, 2, 2, 2]


MISTAKES = {
    "gpu_count": "four",
    "gpu_cuont": 4,
    "nvidia_driver_version": 580.1,
    "verify_smoke_timeout": "soon",
    "docker_ce_version": "{{ nobody_has_set_this }}",
}


def test_mistakes_in_variables_are_among_the_reasons_of_preflight(tmp_path):
    hosts = {"gpu-1": MISTAKES, "gpu-2": {"metal_gpu_engine": "dokcer"}, "gpu-3": AWAY}
    found = run(tmp_path, "metal.gpu.site", inventory(hosts, metal_gpu_serial=1))
    assert found.code != 0
    assert "argument_spec_data" not in found.output
    for reason in (
        "VARIABLE_INVALID gpu-1: gpu_count is 'four', expected a whole number, 0 or greater",
        "VARIABLE_INVALID gpu-1: nvidia_driver_version is 580.1, expected text in quotes",
        "VARIABLE_INVALID gpu-1: verify_smoke_timeout is 'soon', expected a whole number",
        "VARIABLE_INVALID gpu-2: metal_gpu_engine is 'dokcer', expected one of auto, ",
        "VARIABLE_UNKNOWN inventory: gpu_cuont is set for gpu-1, ",
        "VARIABLE_MISPLACED inventory: metal_gpu_serial is set for gpu-1, gpu-2, gpu-3; ",
        "NODE_UNREACHABLE gpu-3: ",
    ):
        assert reason in found.words
    assert "RUN_STOPPED" not in found.output
    assert found.words.count("VARIABLE_UNKNOWN") == 1


def test_nothing_begins_without_a_node_that_preflight_has_lost(tmp_path):
    """The first of them, at that, and one whose way to become root does not work."""
    hosts = {
        "gpu-1": {"ansible_connection": "nonsense"},
        "gpu-2": {"ansible_become": True, "ansible_become_method": "nonsense"},
        "gpu-3": {},
    }
    found = run(tmp_path, "metal.gpu.site", inventory(hosts))
    assert found.code != 0
    assert "NODES_LOST inventory: gpu-1, gpu-2 failed during preflight" in found.words
    assert "Prepare the driver" not in found.output


def test_verify_shows_the_table_with_a_gpu_count_that_is_no_number(tmp_path):
    """The first host being away, another one asks and collects for all."""
    hosts = {"gpu-1": AWAY, "gpu-2": {"gpu_count": "four"}, "gpu-3": {}}
    found = run(tmp_path, "metal.gpu.verify", inventory(hosts), "--forks=1")
    assert found.code != 0
    assert "argument_spec_data" not in found.output
    table = found.output.partition("node   GPU")[2]
    assert re.search(r"gpu-1 .* NODE_UNREACHABLE\b", table)
    assert re.search(r"gpu-2 .* VARIABLE_INVALID\b", table)
    assert re.search(r"gpu-3 .*", table)
    assert {"NODE_UNREACHABLE", "VARIABLE_INVALID", "CLUSTER_UNUSABLE"} <= codes(found)


def test_verify_in_batches(tmp_path):
    """What is asked once is asked once for each batch, also where its only host is away."""
    hosts = inventory({"gpu-1": AWAY, "gpu-2": {}, "gpu-3": {}})
    found = run(tmp_path, [rescued("verify", serial=1)], hosts, "--limit=gpu-1,gpu-2")
    tables = found.output.split("node   GPU")[1:]
    assert [re.findall(r"gpu-\d(?=  +\S+ )", table)[0] for table in tables] == ["gpu-1", "gpu-2"]
    assert "NODE_UNREACHABLE gpu-1: " in found.words
    assert "gpu-3" not in found.output


def test_verify_refuses_other_variables_that_it_cannot_use(tmp_path):
    hosts = {"gpu-1": MISTAKES}
    found = run(tmp_path, "metal.gpu.verify", inventory(hosts))
    assert found.code != 0
    assert "VARIABLE_INVALID gpu-1: verify_smoke_timeout is 'soon'" in found.words
    assert "nvidia_driver_version" not in found.words  # which verify does not read
    assert "argument_spec_data" not in found.output


@pytest.fixture
def bare_python(tmp_path):
    venv.create(tmp_path / "bare", with_pip=False)
    return str(tmp_path / "bare" / "bin" / "python")


def test_without_the_package_kubernetes(tmp_path, bare_python):
    """Preflight touches no node, and verify shows what is known."""
    hosts = inventory({"gpu-1": {}, "gpu-2": {}})
    hosts["ungrouped"] = {"hosts": {"localhost": {**LOCAL, **interpreter(bare_python)}}}
    plays = [rescued("preflight", hosts="gpu-1"), rescued("verify", hosts="gpu-2")]
    found = run(tmp_path, plays, hosts)
    assert f"run `{bare_python} -m pip install 'kubernetes>=24.2.0'`" in found.words
    assert "CONTROLLER_PACKAGE_MISSING" in codes(found)
    preflight, verify = found.output.split("PLAY [")[1:]
    assert "Observe the node" not in preflight
    assert re.search(r"gpu-2 .* CONTROLLER_PACKAGE_MISSING\b", verify)


@pytest.fixture
def api():
    with ApiServer() as server:
        yield server


@pytest.fixture
def cluster(tmp_path, api):
    """A cluster with one node, whose kubelet is silent, and variables for it."""
    silent = {
        "type": "Ready",
        "status": "Unknown",
        "message": "Kubelet stopped posting status.",
    }
    api.put("nodes", {"metadata": {"name": "gpu-1"}, "status": {"conditions": [silent]}})
    return {
        "metal_gpu_kubeconfig": str(api.kubeconfig(tmp_path / "kubeconfig")),
        "verify_capacity_timeout": 1,
    }


PLUGIN = {
    "metadata": {"name": "nvidia-device-plugin-daemonset", "namespace": "gpu-operator"},
    "spec": {
        "selector": {"matchLabels": {"app": "x"}},
        "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {
                "containers": [{"name": "c", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}],
                "volumes": [{"name": "p", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
            },
        },
    },
}


def test_what_preflight_has_not_listed_is_not_an_empty_cluster(tmp_path, api, cluster):
    """Tags of the user's own, such as on import_playbook, decide what preflight lists."""
    api.put("daemonsets", PLUGIN)
    plan = {"name": "metal.gpu.device_plugin", "tasks_from": "plan.yml"}
    plan_it = {"name": "Plan", "ansible.builtin.import_role": plan}
    refused = {"var": "device_plugin_plan.refusals"}
    show = {"name": "Show", "ansible.builtin.debug": refused}
    kubeconfig = {"kubeconfig": cluster["metal_gpu_kubeconfig"]}
    query = {"name": "Query", "metal.gpu.gpu_cluster_info": kubeconfig}
    empty = {"nodes": {}, "daemonsets": [], "runtime_classes": [], "forbidden": []}
    own = {"preflight_cluster": empty, "device_plugin_context": "c"}
    fresh = {"device_plugin_cluster_is_fresh": True}
    for given, tasks in (
        (fresh, [{**query, "register": "preflight_cluster"}, plan_it, show]),
        (fresh | own, [plan_it, show]),  # preflight has asked another cluster
    ):
        hosts = inventory({"gpu-1": {}}, **cluster)
        found = run(tmp_path, [play(tasks=tasks, vars=given)], hosts)
        assert found.code == 0, found.output
        assert "gpu-operator/nvidia-device-plugin-daemonset" in found.words


def test_node_that_restarts_while_it_is_verified(tmp_path, cluster):
    """An observation that is given takes the place of the first one."""
    node = yaml.safe_load((FIXTURES / "virgin.yml").read_text())
    (tmp_path / "given.json").write_text(json.dumps({"metal_gpu": {"node": node}}))
    hosts = inventory({"gpu-1": {}}, **cluster)
    found = run(tmp_path, "metal.gpu.verify", hosts, f"-e@{tmp_path / 'given.json'}")
    assert found.code != 0
    assert re.search(r"gpu-1 .* NODE_RESTARTED\b", found.output)
    assert "NODE_RESTARTED gpu-1: the node restarted during the run" in found.words


def test_localhost_that_runs_no_modules(tmp_path):
    hosts = inventory({"gpu-1": {}})
    gone = interpreter(str(tmp_path / "gone" / "python"))
    hosts["ungrouped"] = {"hosts": {"localhost": {**LOCAL, **gone}}}
    found = run(tmp_path, [play("preflight")], hosts)
    assert found.code != 0
    assert codes(found) == {"CONTROLLER_UNUSABLE"}


def interpreter(python: str) -> dict[str, str]:
    return {"ansible_python_interpreter": python}


def test_roles_that_need_hosts_in_step_refuse_another_strategy(tmp_path):
    roles = {"gpu-1": "preflight", "gpu-2": "verify", "gpu-3": "device_plugin"}
    plays = [rescued(name, hosts=f"{host},{host}-sibling") for host, name in roles.items()]
    hosts = {name: {} for host in roles for name in (host, f"{host}-sibling")}
    found = run(tmp_path, plays, inventory(hosts), ANSIBLE_STRATEGY="free")
    assert codes(found) == {"STRATEGY_UNSUPPORTED"}
    assert found.output.count("The role has failed.") == len(hosts)
    assert "Observe the node" not in found.output


def test_reboots_in_turn_refuse_another_strategy(tmp_path):
    node = yaml.safe_load((FIXTURES / "virgin.yml").read_text())
    node["kernel"]["modules"] = ["nouveau"]
    hosts = inventory(
        {"gpu-1": {}, "gpu-2": {}}, metal_gpu={"node": node}, nvidia_driver_reboot_ok=True
    )
    keywords = {"strategy": "host_pinned", "vars": {"metal_gpu_observation_is_fresh": True}}
    found = run(tmp_path, [play("nvidia_driver", **keywords)], hosts, "--check")
    assert found.code != 0
    assert codes(found) == {"STRATEGY_UNSUPPORTED"}
    assert "TASK [metal.gpu.nvidia_driver : Finish the interrupted" not in found.output


def test_our_playbooks_do_not_take_the_strategy_that_is_configured(tmp_path):
    hosts = inventory({"gpu-1": {"metal_gpu_colour": "green"}, "gpu-2": {}})
    found = run(
        tmp_path,
        "metal.gpu.verify",
        {**hosts, "rack1": {"hosts": {"gpu-2": {}}}},
        "-emetal_gpu_hosts=gpu_nodes:&rack1",
        ANSIBLE_STRATEGY="free",
    )
    assert "STRATEGY_UNSUPPORTED" not in found.output
    assert re.search(r"gpu-2 .* CLUSTER_UNUSABLE\b", found.output)
    assert "gpu-1" not in found.output  # the pattern leaves it out


def test_hosts_that_there_are_not(tmp_path):
    hosts = inventory({"gpu-1": {}})
    found = run(tmp_path, "metal.gpu.site", hosts, "-emetal_gpu_hosts=gpu_nodes:&rack9")
    assert found.code != 0
    assert "no host that matches gpu_nodes:&rack9" in found.words


def test_every_playbook_takes_other_hosts():
    for path in (ROOT / "playbooks").glob("[!_]*.yml"):
        first, second, *_others = yaml.safe_load(path.read_text())
        assert first["ansible.builtin.import_playbook"] == "_inventory.yml"
        assert second["hosts"] == "{{ metal_gpu_hosts | default('gpu_nodes') }}"
        assert "groups['gpu_nodes']" not in path.read_text()


def tags_of(value: Any) -> set[str]:
    """Return the tags of plays, and of all that is in them."""
    if isinstance(value, list):
        return {tag for one in value for tag in tags_of(one)}
    if not isinstance(value, dict):
        return set()
    own = value.get("tags", [])
    return {*([own] if isinstance(own, str) else own), *tags_of([*value.values()])}


def test_every_playbook_names_its_tags():
    """Ansible lists the tags of a role only with the role, so roles have none of their own."""
    for path in ROOT.glob("roles/*/*/**/*.yml"):
        if path.parent.name not in ("meta", "vars", "defaults"):
            assert tags_of(yaml.safe_load(path.read_text())) == set(), path
    for path in (ROOT / "playbooks").glob("[!_]*.yml"):
        first, *rest = yaml.safe_load(path.read_text())
        named = first["vars"]["metal_gpu_tags"]
        assert sorted(named) == sorted(tags_of(rest) - {*tags.SPECIAL}), path


@pytest.mark.parametrize(
    ("playbook", "option", "words"),
    [
        (
            "site",
            "--tags=drivr",
            "drivr is no tag of this playbook; did you mean driver? It has the tags "
            "device_plugin, driver, engine, kubelet, registries, runtime, verify.",
        ),
        ("verify", "--tags=verify", "verify is no tag of this playbook. It has no tags."),
        ("teardown", "--skip-tags=nfs", "nfs is no tag of this playbook."),
        ("docker_hosts", "--tags=nfs,al", "al is no tag of this playbook."),
    ],
)
@pytest.mark.parametrize("limit", [(), ("--limit=gpu-2",)], ids=["all", "limit"])
def test_a_tag_that_the_playbook_does_not_have(tmp_path, playbook, option, words, limit):
    hosts = inventory({"gpu-1": AWAY, "gpu-2": AWAY})
    found = run(tmp_path, f"metal.gpu.{playbook}", hosts, option, *limit)
    assert found.code == 2, found.output
    assert words in found.words
    assert "UNREACHABLE" not in found.output


@pytest.mark.parametrize(
    ("option", "named"),
    [
        ("--skip-tags=always", "--skip-tags always"),
        ("--skip-tags=driver,tagged", "--skip-tags tagged"),
        ("--start-at-task=Judge all nodes", "--start-at-task 'Judge all nodes'"),
    ],
)
@pytest.mark.parametrize("playbook", ["site", "verify", "teardown"])
def test_no_run_leaves_out_what_lets_it_fail(tmp_path, playbook, option, named):
    found = run(tmp_path, f"metal.gpu.{playbook}", inventory({"gpu-1": AWAY}), option)
    assert found.code != 0
    assert f"{named} leaves out tasks" in found.words


def test_a_playbook_by_its_path_refuses_a_tag_as_well(tmp_path):
    hosts = inventory({"gpu-1": AWAY})
    found = run(tmp_path, str(ROOT / "playbooks" / "verify.yml"), hosts, "--tags=drivr")
    assert found.code == 2, found.output
    assert "drivr is no tag of this playbook." in found.words


def test_a_playbook_that_imports_ours_can_have_tags_of_its_own(tmp_path):
    importing = {"ansible.builtin.import_playbook": "metal.gpu.verify", "tags": ["gpu"]}
    plays = [{"name": "GPUs", **importing}]
    found = run(tmp_path, plays, inventory({"gpu-1": AWAY}), "--tags=gpu")
    assert "NODE_UNREACHABLE" in found.output


def test_special_tags_are_known(tmp_path):
    hosts = inventory({"gpu-1": AWAY})
    options = ("--tags=all,tagged,untagged", "--skip-tags=never")
    found = run(tmp_path, "metal.gpu.verify", hosts, *options)
    assert "NODE_UNREACHABLE" in found.output


def test_configuration_can_skip_tags_of_other_playbooks(tmp_path, monkeypatch):
    """It holds for every playbook of the user. What the command line names is for this one."""
    monkeypatch.setenv("ANSIBLE_SKIP_TAGS", "slow,debug")
    hosts = inventory({"gpu-1": AWAY})
    assert "NODE_UNREACHABLE" in run(tmp_path, "metal.gpu.verify", hosts).output
    found = run(tmp_path, "metal.gpu.verify", hosts, "--skip-tags=quick")
    assert "quick is no tag of this playbook." in found.words
