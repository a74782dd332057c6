# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The defaults of the roles for Ansible's templar.

The Python library renders them without Ansible, so `variables` has them without its marks.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ansible_collections.metal.gpu.plugins.plugin_utils import variables

try:
    from ansible.template import trust_as_template
except ImportError:  # ansible-core before 2.19

    def trust_as_template(value: str) -> str:
        return value


@functools.cache
def load() -> Mapping[str, object]:
    """Return the defaults of all roles by name; since ansible-core 2.19, the mark is needed."""
    return {name: _trusted(value) for name, value in variables.load_defaults().items()}


def _trusted(value: object) -> object:
    return trust_as_template(value) if isinstance(value, str) else value
