# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which words of `--tags` and `--skip-tags` choose nothing. No I/O.

Ansible itself accepts every word, and a run of no task ends well.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

# Source: ansible-core 2.21.5, docs of `tags`, and lib/ansible/playbook/taggable.py
SPECIAL = ("all", "always", "never", "tagged", "untagged")


def refuse_unknown(words: Iterable[str], known: Sequence[str], playbook: str) -> str:
    """Return why a run with these tags is refused; empty if each of them is known.

    A word can be a list with commas. `playbook` is how the message names it.
    """
    single = [part.strip() for word in words for part in str(word).split(",")]
    unknown = [one for one in dict.fromkeys(single) if one and one not in (*known, *SPECIAL)]
    if not unknown:
        return ""
    tag = unknown[0]
    near = difflib.get_close_matches(tag, known, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    has = f"has the tags {', '.join(sorted(known))}" if known else "has no tags"
    return f"{tag} is no tag of {playbook}{hint} It {has}"
