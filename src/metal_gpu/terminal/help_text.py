# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The text of --help: lists and examples keep their lines, and click fills only the paragraphs."""

from __future__ import annotations

import inspect
import re
from typing import Any

import typer.core

_KEPT = re.compile(r"\n\n(?=\* | {4})")


class Command(typer.core.TyperCommand):
    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        text = self.help
        # \b is click's mark for a paragraph whose lines stay. docs/command.md needs none.
        self.help = _KEPT.sub("\n\n\b\n", inspect.cleandoc(text or ""))
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = text
