# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users can set: argument specifications (`ansible-doc -t role`), defaults and the example.

They say the same about every variable. A variable that only our own playbooks set is internal: its
description says so, and it has neither a default that users would meet nor a line in the example.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.variables import PLAY_VARIABLES

ROOT = Path(__file__).parents[3]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
EXAMPLE = ROOT / "inventories" / "example" / "group_vars" / "gpu_nodes.yml"

# The words by which roles read what they share, less what they set themselves.
SHARED = re.compile(r"\b(?:gpu_count|gpu_expected|metal_gpu_\w+)\b")
FACTS = {"metal_gpu_run", "metal_gpu_stopped", "metal_gpu_failures", "metal_gpu_unanswered"}
OWN = {
    "metal_gpu_observation_is_fresh",
    "metal_gpu_only_proves",
    "metal_gpu_this_run",
    *FACTS,
}
PLANNED = {"gpu_count", "gpu_expected", "metal_gpu_engine"}  # read by metal.gpu.plan
PLUGINS = ROOT / "plugins"
# The words by which modules of ours read them.
READ_BY_MODULES = {
    "metal.gpu.packages:": ("metal_gpu_lock_timeout", "metal_gpu_removable_packages")
}


def options(role: str) -> dict[str, dict[str, Any]]:
    """Return the options of all entry points."""
    loaded = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    entry_points = loaded["argument_specs"].values()
    return {name: option for entry in entry_points for name, option in entry["options"].items()}


def defaults(role: str) -> dict[str, Any]:
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    found: dict[str, Any] = yaml.safe_load(path.read_text()) if path.exists() else {}
    return found


def texts(role: str, *folders: str) -> str:
    paths = [path for one in folders for path in (ROOT / "roles" / role / one).glob("**/*.*")]
    return "\n".join(path.read_text() for path in paths)


def describes(option: dict[str, Any]) -> str:
    found = option["description"]
    return found if isinstance(found, str) else " ".join(found)


def is_internal(option: dict[str, Any]) -> bool:
    return describes(option).startswith("Internal to ")


def is_template(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value


def is_shared(name: str) -> bool:
    return SHARED.fullmatch(name) is not None


def own(role: str) -> dict[str, dict[str, Any]]:
    """Return the options that users set for this role."""
    return {
        name: option
        for name, option in options(role).items()
        if not is_shared(name) and not is_internal(option)
    }


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_those_of_the_specification(role: str) -> None:
    fixed = {name: value for name, value in defaults(role).items() if not is_template(value)}
    assert fixed == {
        name: option["default"] for name, option in own(role).items() if "default" in option
    }


@pytest.mark.parametrize("role", ROLES)
def test_computed_defaults_are_described(role: str) -> None:
    computed = [name for name, value in defaults(role).items() if is_template(value)]
    assert set(computed) <= set(own(role))
    assert [name for name in computed if "The default is" not in describes(own(role)[name])] == []


@pytest.mark.parametrize("role", ROLES)
def test_names_begin_with_the_role(role: str) -> None:
    names = [name for name in options(role) if not name.startswith(f"{role}_")]
    assert [name for name in names if not is_shared(name)] == []


@pytest.mark.parametrize("role", ROLES)
def test_shared_variables_are_in_the_specification_of_every_role_that_reads_them(role: str) -> None:
    text = texts(role, "defaults", "tasks", "vars")
    read = set(SHARED.findall(text)) - OWN
    read |= PLANNED if role in ("preflight", "verify") else set()
    for module, variables in READ_BY_MODULES.items():
        read |= {*variables} if module in text else set()
    assert read == {name for name in options(role) if is_shared(name)}


def test_shared_variables_are_the_same_for_every_role() -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for role in ROLES:
        for name, option in options(role).items():
            if is_shared(name):
                kept = {key: value for key, value in option.items() if key != "description"}
                found.setdefault(name, []).append(kept)
    assert set(found) > {"gpu_count", "metal_gpu_kubeconfig", "metal_gpu_engine"}
    assert [name for name, kinds in found.items() if any(kinds[0] != one for one in kinds)] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_of_use(role: str) -> None:
    used = texts(role, "handlers", "tasks", "templates", "vars")
    used += "\n".join(path.read_text() for path in (ROOT / "playbooks").glob("*.yml"))
    plans = "\n".join(path.read_text() for path in PLUGINS.glob("plugin_utils/**/*.py"))
    own_names = [name for name in options(role) if not is_shared(name)]
    unused = [name for name in own_names if name not in used]
    assert [
        name for name in unused if f'desired["{name.removeprefix(f"{role}_")}"]' not in plans
    ] == []


def example() -> dict[str, Any]:
    """Read the variables, which are comments; real comments have two signs."""
    lines = [line for line in EXAMPLE.read_text().splitlines() if "SPDX" not in line]
    assignments = [line.removeprefix("# ") for line in lines if not line.startswith("##")]
    found: dict[str, Any] = yaml.safe_load("\n".join(assignments))
    return found


# Others only change its default.
NOT_FOLLOWING = {"nvidia_container_runtime_envvar"}


def settable() -> dict[str, dict[str, Any]]:
    """Return what belongs into an inventory.

    Whether a role brings or removes something is for a playbook to say, and what has a template as
    its default follows a shared variable.
    """
    found: dict[str, dict[str, Any]] = {}
    for role in ROLES:
        derived = {name for name, value in defaults(role).items() if is_template(value)}
        derived -= NOT_FOLLOWING
        found |= {
            name: option
            for name, option in options(role).items()
            if is_shared(name) or (name in own(role) and name not in {*derived, f"{role}_state"})
        }
    return found


def test_example_inventory_has_every_variable_with_its_default() -> None:
    shown = example()
    assert set(shown) == set(settable())
    with_default = {
        name: option["default"] for name, option in settable().items() if "default" in option
    }
    assert {name: shown[name] for name in with_default} == with_default


def test_example_inventory_is_read_to_its_end() -> None:
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) < 240
    assert [name for name in PLAY_VARIABLES if f"-e {name}=" not in text] == []
