# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connection is cut in the middle of each role. Another run completes the work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import footprint
import pytest
from scenes import ADMINS_SERVICE

NODE = str(Path(__file__).parent.parent / "node.yml")
UNREACHABLE = 4  # the exit code of ansible-playbook

# What differs on every node: paths and contents with the name of the node or of its GPUs.
OWN = re.compile(
    r"/etc/(hosts?|hostname|machine-id|ssh/ssh_host_.*|cni/net\.d/.*|kubernetes/.*)"
    r"|/var/lib/kubelet/config\.yaml.*|/var/lib/metal-gpu/.*/.*config\.yaml@.*|/run/cdi/nvidia\.yaml"
    # A history has the content before the last edit. More runs record packages in more edits.
    r"|/var/lib/metal-gpu/config_document/.*@metal\.gpu\.packages\.json"
    r"|/usr/local/lib/metal-lab/machine\.json|/usr/lib/.*/libnvidia-sandboxutils\.so.*"
    r"|/var/cache/ldconfig/.*|/var/lib/systemd/.*|/var/lib/dbus/machine-id"
)
# State outside the files of a footprint, and files that OWN leaves out.
STATE = """
sed "s/$(hostname)/this node/g" /var/lib/kubelet/config.yaml* /var/lib/metal-gpu/*/*config.yaml@*
sed --regexp-extended "s/GPU-[0-9a-f-]{36}/this GPU/g" /run/cdi/nvidia.yaml | sort
cat /boot/*
find /dev/char -printf '%p %l\\n' | sort
systemctl show --property=Id,ActiveState,UnitFileState \\
    containerd kubelet nvidia-persistenced nvidia-cdi-refresh.path nvidia-cdi-refresh
"""


@pytest.mark.parametrize("node", ["gpu-1", "gpu-4"])
def test_cut_off_at_every_step_and_run_again(cut_runs, node):
    """Each run does one step. The connection is cut before the next step."""
    runs = cut_runs.result()
    *cut, last = runs.returncodes
    assert (set(cut), last) == ({UNREACHABLE}, 0), runs.last_output[-4000:]
    *before, _rest = runs.steps[node]
    assert [len(steps) for steps in before] == [1] * len(before)
    steps = [step for steps in runs.steps[node] for step in steps]
    print("\n".join(["", f"{node} was cut off after:", *steps]))
    again = {step for step in steps if steps.count(step) > 1}
    # Two roles, or two tasks, have a step of this name.
    assert again <= {"Restart containerd", "Start the recorded containers"}


def test_run_after_that_changes_nothing(laboratory, cut_runs):
    cut_runs.result()
    run = laboratory.playbook(NODE, "--limit=gpu-1,gpu-2,gpu-4")
    assert run.returncode == 0
    assert run.unchanged == {"gpu-1", "gpu-2", "gpu-4"}


def test_docker_keeps_what_the_admin_had(laboratory, cut_runs, owned):
    """Docker's own engine was installed in many runs. It has the admin's container and settings."""
    cut_runs.result()
    host = laboratory.host("gpu-4")
    version = host.check_output("docker info --format '{{.ServerVersion}}'")
    assert version == laboratory.facts["versions"]["docker"]
    inspect = "docker inspect --format '{{.Id}} {{.State.Status}}' %s"
    assert host.check_output(inspect, ADMINS_SERVICE) == f"{owned.container} running"

    settings = json.loads(host.check_output("cat /etc/docker/daemon.json"))
    runtimes = settings.pop("runtimes")
    assert runtimes.pop("nvidia")
    assert owned.settings.items() <= {**settings, "runtimes": runtimes}.items()


def test_node_that_was_cut_off_equals_its_twin(laboratory, cut_runs):
    cut_runs.result()
    nodes = footprint.take(laboratory.name)["nodes"]
    was_cut, was_not = (everything(laboratory, node, nodes[node]) for node in ("gpu-1", "gpu-2"))
    differing = {name for name, _value in was_cut.items() ^ was_not.items()}
    rows = [f"{name}: {was_cut.get(name)} | {was_not.get(name)}" for name in sorted(differing)]
    assert not rows, "\n".join(rows)


def everything(laboratory: Any, node: str, found: Any) -> dict[str, str]:
    """Return everything that an incomplete run could leave different, keyed by its place."""
    files = {path: row["is"] for path, row in found["files"].items() if not OWN.fullmatch(path)}
    packages = {name: str(rest) for name, rest in found["packages"].items()}
    return {**files, **packages, "state": laboratory.host(node).check_output(STATE)}
