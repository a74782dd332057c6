# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """Meanings of the attributes; each module adds its level of support."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode). It then changes nothing and reports what it would change.
  diff_mode:
    description: Returns what changes, or would change, when run with C(--diff).
  idempotent:
    description: A second run with the same options on an unchanged system changes nothing.
"""

    # For the modules that only read.
    READS = r"""
options: {}
attributes:
  check_mode:
    support: full
    description: Changes nothing in any mode.
  diff_mode:
    support: N/A
    description: Changes nothing.
  idempotent:
    support: full
    description: Changes nothing.
"""

    # For the modules that use the API server and share its options.
    ACTIONGROUP_GPU = r"""
options: {}
attributes:
  action_group:
    description:
      - Use C(group/metal.gpu.gpu) in C(module_defaults) to set options for all modules that use the
        API server.
    support: full
    membership:
      - metal.gpu.gpu
"""
