# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Do the modules of the installed ansible-core have the options that tasks give them?

The tests run on the oldest ansible-core, too. Only one slow scenario runs what
metal.gpu.packages runs for Red Hat's family.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import modules
from ansible.plugins.loader import fragment_loader
from ansible.utils.plugin_docs import get_docstring

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS
from ansible_collections.metal.gpu.tests.unit.golden.test_packages import every_call
from ansible_collections.metal.gpu.tests.unit.roles.test_tasks import ROOT, with_nested

PREFIX = "ansible.builtin."
TASKS = [
    (path, task)
    for path in sorted([*ROOT.glob("roles/*/tasks/**/*.yml"), *ROOT.glob("playbooks/*.yml")])
    for part in yaml.safe_load(path.read_text())
    for task in with_nested([part] if "hosts" not in part else part.get("tasks", []))
]
# These take any option.
FREE = {"set_fact", "meta"}


@functools.cache
def used() -> dict[str, list[dict[str, Any]]]:
    """Return the options of every task, by module."""
    found: dict[str, list[dict[str, Any]]] = {}
    ran = [(call.module, call.options) for system in SYSTEMS for call in every_call(system)]
    for name, options in (*(item for _path, task in TASKS for item in task.items()), *ran):
        if name.startswith(PREFIX) and isinstance(options, dict):
            found.setdefault(name.removeprefix(PREFIX), []).append(options)
    return {module: options for module, options in found.items() if module not in FREE}


@pytest.mark.parametrize("module", sorted(used()))
def test_module_has_the_options(module: str) -> None:
    path = Path(modules.__file__).parent / f"{module}.py"
    documentation = get_docstring(str(path), fragment_loader)[0]
    specified = {
        name: option
        for key, option in documentation["options"].items()
        for name in (key, *option.get("aliases", ()))
    }
    for options in used()[module]:
        assert set(options) <= set(specified)
        for name, value in options.items():
            choices = specified[name].get("choices")
            is_literal = isinstance(value, str) and "{{" not in value
            assert not choices or not is_literal or value in choices


def test_red_hat_is_looked_at() -> None:
    assert {"yum_repository", "apt", "deb822_repository"} <= set(used())
