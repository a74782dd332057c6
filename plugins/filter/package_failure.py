# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.components.observed import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.failure import explain

DOCUMENTATION = r"""
name: package_failure
short_description: Explain a failure of the package manager
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Turns the failure of a package manager into findings. Internal to P(metal.gpu.packages#role).
positional: answers, node, desired
options:
  _input:
    description: The result of the task that failed.
    type: dict
    required: true
  answers:
    description: The registered results of the loop that queried the package manager afterwards.
    type: list
    elements: dict
    required: true
  node:
    description: What M(metal.gpu.node_info) returned after the failure.
    type: dict
    required: true
  desired:
    description: C(host), C(names), C(lock_timeout) and C(repository).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Explain the failure
  ansible.builtin.debug:
    msg: "{{ ansible_failed_result | metal.gpu.package_failure(answers.results, metal_gpu_node,
      desired) | metal.gpu.explain }}"
"""

RETURN = r"""
_value:
  description: The findings, at least one.
  type: list
  elements: dict
"""


def package_failure(
    result: Mapping[str, Any],
    answers: Iterable[Mapping[str, Any]],
    node: Node,
    desired: Mapping[str, Any],
) -> list[dict[str, str]]:
    error = "\n".join(filter(None, (result.get(name, "") for name in ("msg", "stderr"))))
    texts = {
        answer["packages_question"]["about"]: f"{answer['stdout']}\n{answer['stderr']}"
        for answer in answers
    }
    return explain(error, texts, node, desired, result.get("stdout", ""))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"package_failure": package_failure}
