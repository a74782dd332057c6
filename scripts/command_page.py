# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes docs/command.md, the page about `metal-gpu`, from what its commands say with --help.

usage: make command
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/command.md"
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
    return f"{HEAD}{text}\n".replace("**Usage**:\n\n```console", "```console")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
