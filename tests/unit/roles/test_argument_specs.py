# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
# Other roles are for these ones only; of their variables, users set those with a default.
PUBLIC = [role for role in ROLES if (ROOT / "roles" / role / "tasks" / "main.yml").exists()]
EXAMPLE = ROOT / "inventories" / "example" / "group_vars" / "gpu_nodes.yml"


def options(role: str) -> dict[str, dict[str, Any]]:
    """Return the options of all entry points."""
    loaded = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    entry_points = loaded["argument_specs"].values()
    return {name: option for entry in entry_points for name, option in entry["options"].items()}


def defaults(role: str) -> dict[str, Any]:
    path = ROOT / "roles" / role / "defaults" / "main.yml"
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def is_template(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_those_of_the_specification(role: str) -> None:
    fixed = {name: value for name, value in defaults(role).items() if not is_template(value)}
    specified = {
        name: option["default"] for name, option in options(role).items() if "default" in option
    }
    assert fixed.items() <= specified.items()
    assert role not in PUBLIC or fixed == specified


@pytest.mark.parametrize("role", ROLES)
def test_computed_defaults_are_described(role: str) -> None:
    computed = [name for name, value in defaults(role).items() if is_template(value)]
    for name in computed:
        description = options(role)[name]["description"]
        text = description if isinstance(description, str) else " ".join(description)
        assert "The default is" in text


@pytest.mark.parametrize("role", ROLES)
def test_names_begin_with_the_role(role: str) -> None:
    assert all(name.startswith(f"{role}_") for name in options(role))


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_of_use(role: str) -> None:
    folders = [ROOT / "roles" / role / name for name in ("handlers", "tasks", "templates", "vars")]
    paths = [path for folder in (*folders, ROOT / "playbooks") for path in folder.glob("**/*.*")]
    texts = [path.read_text() for path in paths]
    assert [name for name in options(role) if not any(name in text for text in texts)] == []


def example() -> dict[str, Any]:
    """Read the variables, which are comments; real comments have two signs."""
    lines = [line for line in EXAMPLE.read_text().splitlines() if "SPDX" not in line]
    assignments = [line.removeprefix("# ") for line in lines if not line.startswith("##")]
    found: dict[str, Any] = yaml.safe_load("\n".join(assignments))
    return found


@pytest.mark.parametrize("role", ROLES)
def test_example_inventory_has_every_variable_with_its_default(role: str) -> None:
    shown = example()
    assert {name: shown[name] for name in defaults(role)} == defaults(role)
    assert role not in PUBLIC or set(options(role)) <= set(shown)
