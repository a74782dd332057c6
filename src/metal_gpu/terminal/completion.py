# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What typer's completion needs so that zsh and fish offer the right words.

Source: typer 0.29.2, _completion_classes.py; run with zsh 5.9 and fish 3.6.0, 2026-11-27
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

_ASKS = "_METAL_GPU_COMPLETE"  # a shell asks for words
_NO_LIMIT = "10000"  # columns
_OF_ZSH = Path(".zfunc", "_metal-gpu")  # in the home folder
_END_BY_TYPER = b"compdef _metal_gpu_completion metal-gpu"
_AT_ONCE = b'_metal_gpu_completion "$@"'


def prepare(environment: MutableMapping[str, str] = os.environ) -> None:
    """Keep the description of each word in one line.

    rich breaks longer ones, and fish would offer the first word of each line.
    """
    if _ASKS in environment:
        environment["COLUMNS"] = environment["TERMINAL_WIDTH"] = _NO_LIMIT


def finish() -> None:
    """Let the file of zsh complete also at the first tab key, at which zsh loads it.

    zsh calls the file for this. typer's file only defines the function for the next tab keys.
    """
    if "--install-completion" not in sys.argv[1:2]:
        return
    file = Path.home() / _OF_ZSH
    text = file.read_bytes() if file.is_file() else b""
    if text.endswith(_END_BY_TYPER):  # and not a file of the user
        file.write_bytes(b"%b\n\n%b\n" % (text, _AT_ONCE))
