# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.metal.gpu.plugins.action.node_info import ActionModule
from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.plugins.plugin_utils.components.kubelet import (
    observed as kubelet,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs


@pytest.fixture
def act():
    """Run the action, with the module's result given; return its result and the calls made."""

    def run(result):
        action = ActionModule(
            task=mock.Mock(async_val=0, check_mode=False, diff=False),
            connection=mock.Mock(),
            play_context=mock.Mock(),
            loader=mock.Mock(),
            templar=mock.Mock(),
            shared_loader_obj=mock.Mock(),
        )
        with mock.patch.object(action, "_execute_module", return_value=result) as execute:
            return action.run(task_vars={"a": 1}), execute.call_args_list

    return run


def test_one_operation_and_only_the_observation_comes_back(act, tmp_path):
    programs = Programs({})
    node = node_info.Node(tmp_path, programs.run, programs.find)
    result, calls = act(node_info.run(node, [], []))
    name = "metal.gpu.node_info"
    assert calls == [mock.call(module_name=name, module_args=None, task_vars={"a": 1})]
    assert set(result) == {"changed", "gpu_node"}
    assert result["gpu_node"]["pci"] == []


def test_a_failure_of_the_module_is_handed_on(act):
    failure = {"failed": True, "msg": "no Python"}
    assert act(dict(failure))[0] == failure


def test_a_defect_fails_the_task_of_this_node(act, tmp_path, monkeypatch):
    def defective(_raw):
        raise KeyError("kubelet.service")

    monkeypatch.setattr(kubelet, "observe", defective)
    programs = Programs({})
    node = node_info.Node(tmp_path, programs.run, programs.find)
    result, _calls = act(node_info.run(node, [], []))
    assert set(result) == {"changed", "failed", "msg", "failures"}
    assert result["failed"] is True
    assert result["failures"][0]["component"] == "kubelet"
    assert "component kubelet: KeyError: 'kubelet.service'" in result["msg"]
