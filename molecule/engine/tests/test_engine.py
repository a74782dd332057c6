# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""On a machine that had no engine, containerd runs, and the kubelet uses it."""

from __future__ import annotations

from pathlib import Path

CONVERGE = Path(__file__).parent.parent / "converge.yml"
OPERATIONS_ALLOWED = 1


def test_kubelet_has_an_engine(laboratory):
    laboratory.kubectl("wait", "--for=condition=Ready", "node/gpu-1", "--timeout=60s")
    node = laboratory.objects("node", "gpu-1")
    assert node["status"]["nodeInfo"]["containerRuntimeVersion"] == "containerd://2.4.2"


def test_engine_is_held_at_its_version(laboratory):
    assert "containerd.io" in laboratory.host("gpu-1").check_output("apt-mark showhold").split()


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert check.announced, "check mode announced nothing on virgin nodes"
    assert check.announced == converge.announced
    assert check.announced <= converge.ran
    assert converge.unannounced == set()


def test_second_run_of_the_role_changes_nothing_and_is_cheap(laboratory):
    counts = laboratory.second_run(str(CONVERGE), OPERATIONS_ALLOWED)
    roles = ("containerd", "docker_ce", "docker_ce")
    for role, count in zip(roles, counts.values(), strict=True):
        print(f"\nrole {role} alone: {count} remote operations for a no-change run,", end=" ")
        print(f"{OPERATIONS_ALLOWED} allowed")
