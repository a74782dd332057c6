# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The connection is cut in the middle of each role: run again, it comes out well."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import footprint

NODE = str(Path(__file__).parent.parent / "node.yml")
UNREACHABLE = 4  # how ansible-playbook ends then

# What is different on every node, as the paths and contents that have its name in them.
OWN = re.compile(
    r"/etc/(hosts?|hostname|machine-id|ssh/ssh_host_.*|cni/net\.d/.*|kubernetes/.*)"
    r"|/var/lib/kubelet/config\.yaml|/var/lib/metal-gpu/.*/.*config\.yaml@.*"
    r"|/usr/local/lib/metal-lab/machine\.json|/usr/lib/.*/libnvidia-sandboxutils\.so.*"
    r"|/var/cache/ldconfig/.*|/var/lib/systemd/.*|/var/lib/dbus/machine-id"
)
# What is in no file that a footprint has.
STATE = """
sed "s/$(hostname)/this node/" /var/lib/kubelet/config.yaml /var/lib/metal-gpu/*/*config.yaml@*
cat /boot/*
find /dev/char -printf '%p %l\\n' | sort
systemctl show --property=Id,ActiveState,UnitFileState \\
    containerd kubelet nvidia-persistenced nvidia-cdi-refresh.path nvidia-cdi-refresh
"""


def test_cut_off_at_every_step_and_run_again(cut_runs):
    """Each run did one step, and the connection was cut before the next one."""
    runs = cut_runs.result()
    *cut, last = runs.returncodes
    assert (set(cut), last) == ({UNREACHABLE}, 0), runs.last_output[-4000:]
    assert [len(steps) for steps in runs.steps[:-1]] == [1] * len(cut)
    steps = [step for steps in runs.steps for step in steps]
    print("\n".join(["", "cut off behind:", *steps]))
    again = {step for step in steps if steps.count(step) > 1}
    assert again <= {"Restart containerd"}  # which is a step of two roles


def test_node_that_was_cut_off_is_like_one_that_was_not(laboratory, cut_runs):
    cut_runs.result()
    run = laboratory.playbook(NODE, "--limit=gpu-1,gpu-2")
    assert run.returncode == 0, run.output[-4000:]
    assert re.search(r"^gpu-1\s+: ok=\d+\s+changed=0\s", run.output, re.M)
    assert re.search(r"^gpu-2\s+: ok=\d+\s+changed=[1-9]", run.output, re.M)

    nodes = footprint.take(laboratory.name)["nodes"]
    was_cut, was_not = (everything(laboratory, node, nodes[node]) for node in ("gpu-1", "gpu-2"))
    differing = {name for name, _value in was_cut.items() ^ was_not.items()}
    assert {name: (was_cut.get(name), was_not.get(name)) for name in sorted(differing)} == {}


def everything(laboratory: Any, node: str, found: Any) -> dict[str, str]:
    """Return what could be left undone on a node, keyed by where it is."""
    files = {path: row["is"] for path, row in found["files"].items() if not OWN.fullmatch(path)}
    packages = {name: str(rest) for name, rest in found["packages"].items()}
    return {**files, **packages, "state": laboratory.host(node).check_output(STATE)}
