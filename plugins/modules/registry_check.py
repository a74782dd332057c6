#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: registry_check
short_description: Ask registries from a node, as its container engine does
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Sends C(GET /v2/) from the node to each registry, with the certificates and the login that the
    engine will use. Asks for a token if the registry wants one. Changes nothing.
  - Returns a finding for each registry that does not answer, is not trusted, or refuses the login.
    Internal to the roles of this collection.
  - Uses no proxy. The role has a variable that turns the question off.
attributes:
  check_mode:
    support: full
    description: Changes nothing, so check mode asks the same questions.
  diff_mode:
    support: none
    description: Changes nothing.
  idempotent:
    support: full
    description: Changes nothing.
  platform:
    support: full
    platforms: posix
    description: Needs Python 3.9 or later on the node, and no other packages.
options:
  registries:
    description: The questions, each with an address and what to send.
    type: list
    elements: dict
    required: true
    suboptions:
      url: {description: "Address of the API, which ends in C(/v2/).", type: str, required: true}
      registry:
        description: The name in references of images, for messages.
        type: str
        required: true
      ca: {description: "The CA in PEM. If empty, the CAs of the node.", type: str, default: ""}
      certificate: {description: The certificate of the client in PEM., type: str, default: ""}
      key: {description: Its key in PEM., type: str, default: ""}
      username: {description: The login., type: str, default: ""}
      password: {description: The password., type: str, default: ""}
      basic_only:
        description: Whether the engine sends the login in a header, and asks for no token with it.
        type: bool
        default: false
  host: {description: The host in messages., type: str, required: true}
  timeout:
    description: Seconds to wait for each answer. A question takes three times as long at most.
    type: int
    default: 10
"""

EXAMPLES = r"""
- name: Ask a mirror
  metal.gpu.registry_check:
    host: "{{ inventory_hostname }}"
    registries:
      - url: https://mirror.example:5000/v2/
        registry: nvcr.io
        ca: "{{ lookup('ansible.builtin.file', 'ca.crt') }}"
  become: true
"""

RETURN = r"""
findings:
  description: What is wrong, one finding for each registry.
  returned: always
  type: list
  elements: dict
"""

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.probe import registry_request
from ansible_collections.metal.gpu.plugins.module_utils.probe.registry_request import Question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_AT_ONCE = 8

ARGUMENT_SPEC: dict[str, Any] = {
    "registries": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "url": {"type": "str", "required": True},
            "registry": {"type": "str", "required": True},
            "ca": {"type": "str", "default": ""},
            "certificate": {"type": "str", "default": ""},
            "key": {"type": "str", "default": "", "no_log": True},
            "username": {"type": "str", "default": ""},
            "password": {"type": "str", "default": "", "no_log": True},
            "basic_only": {"type": "bool", "default": False},
        },
    },
    "host": {"type": "str", "required": True},
    "timeout": {"type": "int", "default": 10},
}


def run(host: str, registries: Sequence[Mapping[str, Any]], timeout_s: float) -> dict[str, Any]:
    """Return the module's result."""

    def judge(one: Mapping[str, Any]) -> list[dict[str, str]]:
        fields = {name: one[name] for name in Question._fields}
        problem = registry_request.ask(Question(**fields), timeout_s)
        if problem is None:
            return []
        name = one["url"].rsplit("/v2/", 1)[0]
        what = name if name.endswith(f"//{one['registry']}") else f"{name} (for {one['registry']})"
        return [finding(problem.code, host, what=what, **problem.evidence)]

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = [one for answers in pool.map(judge, registries) for one in answers]
    return {"changed": False, "findings": found}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    parameters = module.params
    module.exit_json(**run(parameters["host"], parameters["registries"], parameters["timeout"]))


if __name__ == "__main__":
    main()
