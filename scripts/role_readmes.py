# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes the variables of each role into its README.md, from meta/argument_specs.yml.

usage: .venv/bin/python scripts/role_readmes.py

The text above the heading "Variables" is written by hand and stays.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from antsibull_docs_parser import dom
from antsibull_docs_parser.md import MDFormatter, to_md
from antsibull_docs_parser.parser import Context, parse

ROOT = Path(__file__).resolve().parent.parent
HEADING = "\n## Variables\n"


class TableFormatter(MDFormatter):
    """Markdown that is readable as plain text and fits into a table's cell."""

    def format_text(self, part: dom.TextPart) -> str:
        return str(part.text).replace("|", r"\|").replace("<", "&lt;")

    def format_code(self, part: dom.CodePart) -> str:
        return code(part.text)

    def format_option_name(self, part: dom.OptionNamePart, url: str | None) -> str:
        return code(part.name if part.value is None else f"{part.name}: {part.value}")

    def format_option_value(self, part: dom.OptionValuePart) -> str:
        return code(part.value)

    def format_plugin(self, part: dom.PluginPart, url: str | None) -> str:
        name = part.plugin.fqcn
        is_role_here = part.plugin.type == "role" and name.startswith("metal.gpu.")
        return f"[{name}](../{name.rpartition('.')[2]}/README.md)" if is_role_here else code(name)


def code(value: str) -> str:
    return f"`{value}`".replace("|", r"\|")


def default(option: dict[str, Any]) -> str:
    if option.get("required"):
        return "(required)"
    if "default" not in option:
        return ""
    # As in an inventory.
    text = yaml.safe_dump(option["default"], default_flow_style=True, width=1000)
    return code(text.removesuffix("\n").removesuffix("\n..."))


def description(option: dict[str, Any]) -> str:
    lines = option["description"]
    text = to_md(
        parse([lines] if isinstance(lines, str) else lines, Context()),
        formatter=TableFormatter(),
        par_sep=" ",
    )
    if "choices" in option:
        text += f" One of {', '.join(code(str(choice)) for choice in option['choices'])}."
    return " ".join(text.split())


def table(options: dict[str, dict[str, Any]]) -> str:
    rows = [
        f"| `{name}` | {default(option)} | {description(option)} |"
        for name, option in options.items()
    ]
    return "\n".join(["| name | default | meaning |", "| --- | --- | --- |", *rows])


def variables(entry_points: dict[str, dict[str, Any]]) -> str:
    """Return the section of a README. Each entry point other than main gets a heading."""
    parts = []
    for name, entry_point in entry_points.items():
        if name != "main":
            parts.append(f"### tasks_from: {name}.yml\n\n{entry_point['short_description']}.")
        if entry_point.get("options"):
            parts.append(table(entry_point["options"]))
    return "\n\n".join(parts) + "\n"


def main() -> None:
    for specification in sorted(ROOT.glob("roles/*/meta/argument_specs.yml")):
        readme = specification.parents[1] / "README.md"
        entry_points = yaml.safe_load(specification.read_text())["argument_specs"]
        by_hand = readme.read_text().partition(HEADING)[0]
        readme.write_text(f"{by_hand}{HEADING}\n{variables(entry_points)}")


if __name__ == "__main__":
    main()
