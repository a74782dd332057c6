# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The edits of kubelet's flags, carried out as ansible.builtin.replace does."""

from __future__ import annotations

import re

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.kubelet.plan import (
    ADDITION,
    NEW_FLAG,
    REMOVALS,
)


def replace(text: str, *edits: tuple[str, str]) -> str:
    for regexp, replacement in edits:
        text = re.sub(regexp, replacement, text, flags=re.MULTILINE)
    return text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true\n",
            "KUBELET_EXTRA_ARGS=\n",
            id="alone, a variable that stays valid",
        ),
        pytest.param(
            'KUBELET_EXTRA_ARGS="--feature-gates=DevicePlugins=true"\n',
            'KUBELET_EXTRA_ARGS=""\n',
            id="alone in quotes",
        ),
        pytest.param(
            "KUBELET_EXTRA_ARGS='--v=2 --feature-gates=DevicePlugins=true --node-ip=10.0.0.1'\n",
            "KUBELET_EXTRA_ARGS='--v=2 --node-ip=10.0.0.1'\n",
            id="between flags",
        ),
        pytest.param(
            'KUBELET_KUBEADM_ARGS="--feature-gates=DevicePlugins=true,CPUManager=true --v=2"\n',
            'KUBELET_KUBEADM_ARGS="--feature-gates=CPUManager=true --v=2"\n',
            id="first gate",
        ),
        pytest.param(
            "ARGS=--feature-gates=CPUManager=true,DevicePlugins=true\n",
            "ARGS=--feature-gates=CPUManager=true\n",
            id="last gate",
        ),
        pytest.param(
            "ARGS=--feature-gates=A=true,DevicePlugins=false,B=false --v=2\n",
            "ARGS=--feature-gates=A=true,B=false --v=2\n",
            id="middle gate",
        ),
        pytest.param(
            '[Service]\nEnvironment="KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true"\n',
            '[Service]\nEnvironment="KUBELET_EXTRA_ARGS="\n',
            id="drop-in",
        ),
        pytest.param(
            "ExecStart=/usr/bin/kubelet \\\n  --feature-gates=DevicePlugins=true \\\n  --v=2\n",
            "ExecStart=/usr/bin/kubelet \\\n \\\n  --v=2\n",
            id="continued line",
        ),
        pytest.param(
            "kubelet \\\n    --v=2   \\\n    --feature-gates=DevicePlugins=true\nRestart=x\n",
            "kubelet \\\n    --v=2   \\\n\nRestart=x\n",
            id="last of the continued lines",
        ),
        pytest.param(
            "--feature-gates=DevicePlugins=true,A=true,B=true \\\n--hostname-override=n1\n",
            "--feature-gates=A=true,B=true \\\n--hostname-override=n1\n",
            id="first gate of a continued line",
        ),
        pytest.param(
            "ARGS=--feature-gates DevicePlugins=true --v=2\n", "ARGS= --v=2\n", id="two words"
        ),
        pytest.param(
            'ExecStart=/usr/bin/kubelet --feature-gates="DevicePlugins=true" --v=2\n',
            "ExecStart=/usr/bin/kubelet --v=2\n",
            id="quoted value",
        ),
        pytest.param(
            "ARGS=--feature_gates=DevicePlugins=true,A=true\n",
            "ARGS=--feature_gates=A=true\n",
            id="underscore",
        ),
        pytest.param(
            "# ARGS=--feature-gates=DevicePlugins=true\n",
            "# ARGS=--feature-gates=DevicePlugins=true\n",
            id="comment",
        ),
        pytest.param(
            "ARGS=--feature-gates=KubeletDevicePlugins=true,DevicePluginsX=true\n",
            "ARGS=--feature-gates=KubeletDevicePlugins=true,DevicePluginsX=true\n",
            id="other gates of similar names",
        ),
    ],
)
def test_the_gate_goes_and_everything_else_stays(before: str, after: str) -> None:
    assert replace(before, *REMOVALS) == after
    assert replace(after, *REMOVALS) == after


@pytest.mark.parametrize(
    ("edit", "before", "after"),
    [
        pytest.param(
            ADDITION,
            'KUBELET_EXTRA_ARGS="--feature-gates=Accelerators=true --v=2"\n',
            'KUBELET_EXTRA_ARGS="--feature-gates=Accelerators=true,DevicePlugins=true --v=2"\n',
            id="to other gates",
        ),
        pytest.param(
            NEW_FLAG,
            "KUBELET_EXTRA_ARGS=--v=2\n",
            "KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true --v=2\n",
            id="to other flags",
        ),
        pytest.param(
            NEW_FLAG,
            'Environment="KUBELET_EXTRA_ARGS=--v=2"\n',
            'Environment="KUBELET_EXTRA_ARGS=--feature-gates=DevicePlugins=true --v=2"\n',
            id="in a drop-in",
        ),
    ],
)
def test_kubelet_1_9_gets_the_gate(edit: tuple[str, str], before: str, after: str) -> None:
    assert replace(before, edit) == after
