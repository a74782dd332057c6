#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: preconditions
short_description: Check the controller, the play and its variables
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Checks the controller, the play, and the variables of its hosts, before anything is changed.
    Internal to P(metal.gpu.preflight#role), P(metal.gpu.verify#role) and
    P(metal.gpu.device_plugin#role).
  - Returns all refusals and does not fail. The caller fails.
  - Delegate it to localhost, where the tasks that talk to the API server run. It checks the Python
    packages there.
extends_documentation_fragment:
  - metal.gpu.attributes.reads
options:
  packages:
    description:
      - Python packages that the interpreter for modules on localhost must have.
      - The collection determines the required versions.
    type: list
    elements: str
    choices: [kubernetes]
    default: []
  roles:
    description: Roles of this collection whose variables are checked. The default is those of
      metal.gpu.site.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Check the controller, the play and the variables
  metal.gpu.preconditions:
    packages: [kubernetes]
    roles: [verify]
  register: checks
  run_once: true
  delegate_to: localhost
  become: false

- name: Stop if anything is wrong
  ansible.builtin.fail:
    msg: "{{ (checks.play + checks.controller) | metal.gpu.explain | join('\n') }}"
  when: (checks.play + checks.controller) | length > 0
"""

RETURN = r"""
started:
  description: The time of the check, in seconds of the epoch.
  type: float
  returned: always
hosts:
  description: The hosts that are in the play at this time.
  type: list
  elements: str
  returned: always
play:
  description: Findings about the play, in the form of P(metal.gpu.finding#filter).
  type: list
  elements: dict
  returned: always
controller:
  description: Findings about the controller.
  type: list
  elements: dict
  returned: always
invalid:
  description: Errors in variables, keyed by host and then by name of the variable.
  type: dict
  returned: always
misplaced:
  description: A refusal for each variable that is only allowed on the command line.
  type: list
  elements: dict
  returned: always
unknown:
  description: A notice for each unknown variable whose name looks like one of this collection, and
    for an image that no pod runs.
  type: list
  elements: dict
  returned: always
"""

import sys
from importlib import metadata
from typing import Any

from ansible.module_utils.basic import AnsibleModule

PACKAGES = ["kubernetes"]
ARGUMENT_SPEC: dict[str, Any] = {
    "packages": {"type": "list", "elements": "str", "choices": PACKAGES, "default": []},
    "roles": {"type": "list", "elements": "str"},
}


def version_of(package: str) -> str | None:
    """Return the installed version, without a slow import of the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    versions = {package: version_of(package) for package in module.params["packages"]}
    module.exit_json(changed=False, python=sys.executable, versions=versions)


if __name__ == "__main__":
    main()
