# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run one program and print its cost: `python -m metal_bench.worker PROGRAM < arguments.json`.

A program is a module of the collection, or one of PROGRAMS.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ansible.module_utils.testing import patch_module_args

from ansible_collections.metal.gpu.plugins.module_utils.cluster import kube_settings
from ansible_collections.metal.gpu.plugins.module_utils.cluster.kube import Client

CONNECTIONS = 8


def _client(kubeconfig: str) -> Client:
    options = dict.fromkeys(kube_settings.AUTH_ARGUMENTS)
    return kube_settings.connect({**options, "kubeconfig": kubeconfig})


def list_nodes(kubeconfig: str) -> None:
    """List all nodes in pages and keep nothing."""
    _client(kubeconfig).snapshot("nodes", lambda node: None)


def create_nodes(kubeconfig: str, names: list[str], node: dict[str, Any]) -> None:
    """Create nodes that differ only in their names."""
    client = _client(kubeconfig)

    def create(name: str) -> None:
        client.create("nodes", {**node, "metadata": {**node["metadata"], "name": name}}, "")
        # The API server taints every new node. A controller removes the taint from a ready one.
        client.patch("nodes", name, {"spec": {"taints": None}})

    _for_each(create, names)


def create_pods(kubeconfig: str, nodes: list[str], pod: dict[str, Any]) -> None:
    """Create a pod on each node, with the status that a kubelet would report."""
    client = _client(kubeconfig)
    namespace = pod["metadata"]["namespace"]

    def create(node: str) -> None:
        name = f"{pod['metadata']['generateName']}{node}"
        metadata = {"name": name, "labels": pod["metadata"]["labels"]}
        spec = {**pod["spec"], "nodeName": node}
        client.create("pods", {"metadata": metadata, "spec": spec}, namespace)
        client.ask(
            "patch", "pods", namespace, path=f"/{name}/status", body={"status": pod["status"]}
        )

    _for_each(create, nodes)


def _for_each(action: Callable[[str], None], names: list[str]) -> None:
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for done in [pool.submit(action, name) for name in names]:
            done.result()


def load_module(name: str) -> Callable[..., None]:
    """Return a function that runs a module of the collection in this process."""
    module = importlib.import_module(f"ansible_collections.metal.gpu.plugins.modules.{name}")

    def run(**arguments: Any) -> None:
        with patch_module_args(arguments):
            module.main()

    return run


PROGRAMS: dict[str, Callable[..., None]] = {
    "list_nodes": list_nodes,
    "create_nodes": create_nodes,
    "create_pods": create_pods,
}


def main(name: str) -> int | str | None:
    """Run the program; return its exit code."""
    arguments = json.load(sys.stdin)
    program = PROGRAMS.get(name) or load_module(name)
    code: int | str | None = 0
    started = time.monotonic()
    try:
        program(**arguments)
    except SystemExit as end:  # a module ends with it, in success and failure
        code = end.code
    cost = {
        "seconds": time.monotonic() - started,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(cost), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
