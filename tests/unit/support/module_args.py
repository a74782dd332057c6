# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hands arguments to a module that a test runs, with every supported ansible-core.

Tests import `patch_module_args` from here: ansible-core has it only from 2.19 on.
"""

from __future__ import annotations

__all__ = ["patch_module_args"]

try:
    from ansible.module_utils.testing import patch_module_args
except ModuleNotFoundError:
    import contextlib
    import json
    from collections.abc import Iterator
    from typing import Any
    from unittest import mock

    from ansible.module_utils import basic

    @contextlib.contextmanager
    def patch_module_args(args: dict[str, Any]) -> Iterator[None]:
        data = json.dumps({"ANSIBLE_MODULE_ARGS": args}).encode()
        with mock.patch.object(basic, "_ANSIBLE_ARGS", data):
            yield
