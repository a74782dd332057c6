# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reboots of several nodes: real tasks, a real drain, and a stand-in for the reboot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.support.api_server import ApiServer
from ansible_collections.metal.gpu.tests.unit.support.playbooks import LOCAL, ROOT, run

# For the action plugins that would look at this machine. The plan after the reboot is empty.
STAND_IN = """\
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        node = task_vars["metal_gpu"]["node"]
        if self._task.action.endswith(".plan"):
            node = {**node, "boot_id": "after"}
        plans = {"nvidia_driver": {"steps": [], "data": {}}}
        return {"changed": False, "gpu_node": node, "node": node, "plans": plans}
"""
REBOOT = """\
      ansible.builtin.shell: echo {{ inventory_hostname }} >> {{ noted }}
"""


def collection(folder: Path) -> Path:
    """Return where this collection is, with stand-ins in it."""
    place = folder / "ansible_collections/metal/gpu"
    (place / "plugins/action").mkdir(parents=True)
    for path in (*ROOT.glob("plugins/*"), *ROOT.glob("plugins/action/*.py"), ROOT / "meta"):
        if not (copy := place / path.relative_to(ROOT)).exists():
            copy.symlink_to(path)
    for name in ("plan", "node_info", "packages"):
        (place / f"plugins/action/{name}.py").unlink()
        (place / f"plugins/action/{name}.py").write_text(STAND_IN)
    shutil.copytree(ROOT / "roles", place / "roles")
    tasks = place / "roles/nvidia_driver/tasks/reboot.yml"
    before, _reboot, after = tasks.read_text().partition("      ansible.builtin.reboot:")
    tasks.write_text(before + REBOOT + "\n- name: Start" + after.partition("\n- name: Start")[2])
    return folder


def put(server: ApiServer, name: str, boot_id: str) -> dict[str, Any]:
    """Put a node with 4 GPUs and a pod into the cluster. Return the node as it is observed."""
    ready = [{"type": "Ready", "status": "True"}]
    status = {"nodeInfo": {"bootID": boot_id}, "allocatable": {"nvidia.com/gpu": "4"}}
    metadata = {"metadata": {"name": name}, "spec": {}}
    server.put("nodes", {**metadata, "status": {**status, "conditions": ready}})
    owner = [{"kind": "ReplicaSet", "controller": True}]
    pod = {"name": name, "namespace": "web", "ownerReferences": owner}
    server.put("pods", {"metadata": pod, "spec": {"nodeName": name, "containers": [{}]}})
    kubelet = {"running": True, "node_name": name}
    docker = {"docker": {"containers": []}}
    return {"boot_id": "b", "kubelet": kubelet, "device_users": [], "engines": docker}


@pytest.mark.parametrize(
    "is_back",
    [
        pytest.param(True, id="one is back in the cluster before the next one leaves"),
        pytest.param(False, id="one comes back without its GPUs, and the other keeps its pods"),
    ],
)
def test_reboots_of_a_fleet(tmp_path, is_back):
    """Ansible chooses which one is the first."""
    noted = tmp_path / "noted"
    noted.touch()
    plans = {"nvidia_driver": {"steps": [{"slug": "reboot"}], "data": {}}}

    def note(resource: str, name: str) -> None:
        is_cordoned = server.objects()["nodes", "", name]["spec"].get("unschedulable")
        with noted.open("a") as file:
            file.write(f"{'-' if is_cordoned else '+'}{name}\n")

    with ApiServer() as server:
        hosts = {}
        for name in "ab":
            node = put(server, name, "after" if is_back else "before")
            hosts[name] = {**LOCAL, "metal_gpu": {"node": node, "plans": plans}}
        server.when_patched = note
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        # Long enough for evictions, which the server carries out at once.
        settings = {"noted": str(noted), "nvidia_driver_reboot_drain_timeout": 5}
        settings["metal_gpu_kubeconfig"] = str(kubeconfig)
        include = {"name": "metal.gpu.nvidia_driver", "tasks_from": "present.yml"}
        tasks = [{"ansible.builtin.include_role": include}]
        play = {"hosts": "all", "gather_facts": False, "vars": settings, "tasks": tasks}
        place = str(collection(tmp_path / "c"))
        found = run(tmp_path, [play], {"all": {"hosts": hosts}}, ANSIBLE_COLLECTIONS_PATH=place)
        nodes = [item for key, item in server.objects().items() if key[0] == "nodes"]
        first, *rest = noted.read_text().split()
        first = first[1:]
        second = "b" if first == "a" else "a"
        order = [first, f"-{first}", f"+{second}", second, f"-{second}"] if is_back else [first]
        assert rest == order, found.output
        cordoned = [node["metadata"]["name"] for node in nodes if node["spec"]]
        assert cordoned == ([] if is_back else [first])
        assert server.names("pods") == ([] if is_back else [second])
    assert (f"REBOOT_HALTED {second}:" in found.words) is not is_back
