# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.tags import ROLES, leaves_out, left_out

ALL = {*ROLES}


@pytest.mark.parametrize(
    ("run", "skip", "runs"),
    [
        (["all"], [], ALL),
        (["tagged"], [], ALL),
        (["driver"], [], {"nvidia_driver"}),
        (["driver, runtime"], [], {"nvidia_driver", "nvidia_container_runtime"}),
        (["always", "verify"], [], set()),
        (["untagged"], [], set()),
        (["all"], ["engine"], ALL - {"containerd", "crio", "docker_ce"}),
        (["all"], ["tagged"], set()),
        (["all"], ["all"], set()),
        # Only a playbook of the user has this tag, and there it can choose everything.
        (["gpus"], [], ALL),
        (["gpus"], ["kubelet"], ALL - {"kubelet_device_plugins"}),
        (["all"], ["gpus"], ALL),
    ],
)
def test_roles_that_tags_leave_out(run, skip, runs):
    assert left_out(run, skip) == ALL - runs


@pytest.mark.parametrize(
    ("run", "skip", "expected"),
    [
        (["all"], [], False),
        (["tagged"], [], False),
        (["all"], ["notest"], False),  # a tag of somebody else
        (["gpus"], [], True),
        (["driver"], [], True),
        (["all"], ["device_plugin"], True),
        (["all"], ["all"], True),
    ],
)
def test_runs_that_may_leave_something_out(run, skip, expected):
    assert leaves_out(run, skip) is expected
