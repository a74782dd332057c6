# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes docs/command.md, the page about `metal-gpu`, from what its commands say with --help.

usage: make command
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/command.md"
SEVERAL = 3
OPTION = re.compile("- `-[^`]*`: ")
END = re.compile("The exit code is that of ansible-playbook")
PLACE = "#options-of-several-commands"
HEAD = """\
<!--
SPDX-FileCopyrightText: metal.gpu contributors
SPDX-License-Identifier: GPL-3.0-or-later
-->

<!-- `make command` writes this page from the command's own help. -->

"""


def page() -> str:
    """Return the page."""
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / ".ansible/collections")]
    from metal_gpu.terminal.main import app

    command = get_command(app)
    text = get_docs_for_click(obj=command, ctx=Context(command), name="metal-gpu")
    # Python-Markdown and CommonMark both take this form of a list.
    text = re.sub(r"^\* ", "- ", text.strip(), flags=re.MULTILINE)
    return f"{HEAD}{_shared(text)}\n".replace("**Usage**:\n\n```console", "```console")


def _shared(text: str) -> str:
    """Move what several commands say in the same words to the end of the page."""
    sections = re.split(r"(?m)^(?=##)", text)
    lines = Counter(
        line for one in sections for line in dict.fromkeys(one.splitlines()) if OPTION.match(line)
    )
    by_name: dict[str, str] = {}
    for line, count in lines.most_common():
        if count >= SEVERAL:
            by_name.setdefault(line.split("`")[1], line)
    shared = {line: name for name, line in by_name.items()}
    paragraphs = Counter(part for one in sections for part in one.split("\n\n") if END.match(part))
    (end, _count) = paragraphs.most_common(1)[0]
    for number, section in enumerate(sections):
        names = ", ".join(f"`{shared[line]}`" for line in section.splitlines() if line in shared)
        kept = "\n".join(line for line in section.splitlines() if line not in shared)
        if names:
            kept = f"{kept.rstrip()}\n- [as other commands]({PLACE}): {names}"
        kept = kept.replace(end, f"The exit code is [that of ansible-playbook]({PLACE}).")
        sections[number] = f"{kept.rstrip()}\n\n"
    options = "\n".join(sorted(shared, key=str.lower))
    return f"{''.join(sections)}## Options of several commands\n\n{options}\n\n{end}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
