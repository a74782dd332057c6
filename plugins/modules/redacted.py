#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: redacted
short_description: Run a module, and hide credentials in what it returns
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Runs another module and returns what it returns, with C(***) in the place of credentials.
  - The package managers quote addresses in their messages, with the password of a mirror in them.
    From ansible-core 2.19 on, C(no_log) does not hide the message and the warnings of a task.
  - Credentials are found by their form, as in a URL, or behind a key such as C(password).
attributes:
  check_mode:
    support: partial
    description: Is passed on to the module.
    details: Depends on the module.
  diff_mode:
    support: partial
    description: Is passed on to the module. A difference is shown without credentials.
    details: Depends on the module.
  idempotent:
    support: partial
    description: As the module is.
    details: Depends on the module.
  platform:
    support: full
    platforms: posix
    description: Runs on any node that the module runs on.
options:
  module:
    description:
      - Full name of the module. What an action plugin of the same name would do is left out. So
        M(ansible.builtin.dnf) is the module for dnf 4.
    type: str
    required: true
  options:
    description: Options of the module.
    type: dict
    required: true
seealso:
  - module: ansible.builtin.apt
  - module: ansible.builtin.dnf
"""

EXAMPLES = r"""
- name: Install the driver from a mirror that wants a password
  metal.gpu.redacted:
    module: ansible.builtin.apt
    options:
      name: nvidia-driver-cuda
  become: true
"""

RETURN = r"""#"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

# The action plugin of the same name does it all.
ARGUMENT_SPEC: dict[str, Any] = {
    "module": {"type": "str", "required": True},
    "options": {"type": "dict", "required": True},
}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.fail_json(msg="only the action plugin of this name can do it")


if __name__ == "__main__":
    main()
