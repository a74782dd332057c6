# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `--tags` and `--skip-tags` choose: which words choose nothing, and which roles.

Ansible itself accepts every word, and a run of no task ends well.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from ansible_collections.metal.gpu.plugins.plugin_utils.components import COMPONENTS

# Source: ansible-core 2.21.5, docs of `tags`, and lib/ansible/playbook/taggable.py
SPECIAL = ("all", "always", "never", "tagged", "untagged")

# The tag of each role that changes nodes, in the playbooks of this collection.
ROLES = {one.role: one.tag for one in COMPONENTS if one.tag and one.where == "node"}
# Those of what follows the roles, too.
_OURS = frozenset({*(one.tag for one in COMPONENTS), "verify", *SPECIAL})
_EVERY = frozenset({"all", "tagged"})  # each of our tasks has a tag


def refuse_unknown(words: Iterable[str], known: Sequence[str], playbook: str) -> str:
    """Return why a run with these tags is refused; empty if each of them is known.

    A word can be a list with commas. `playbook` is how the message names it.
    """
    unknown = [one for one in _single(words) if one not in (*known, *SPECIAL)]
    if not unknown:
        return ""
    tag = unknown[0]
    near = difflib.get_close_matches(tag, known, 1)
    hint = f"; did you mean {near[0]}?" if near else "."
    has = f"has the tags {', '.join(sorted(known))}" if known else "has no tags"
    return f"{tag} is no tag of {playbook}{hint} It {has}"


def leaves_out_checks(skip: Iterable[str], first_task: str | None) -> str:
    """Return why no run can have these options; empty if it can."""
    options = [f"--skip-tags {word}" for word in _single(skip) if word in ("always", *_EVERY)]
    options += [f"--start-at-task {first_task!r}"] if first_task else []
    if not options:
        return ""
    return (
        f"{options[0]} leaves out tasks that check the nodes and end the run with an error; "
        "use --tags with the tags of roles instead"
    )


def leaves_out(run: Iterable[str], skip: Iterable[str]) -> bool:
    """Tell whether a run with these tags may leave out anything of our playbooks."""
    return _EVERY.isdisjoint(_single(run)) or not _OURS.isdisjoint(_single(skip))


def left_out(run: Iterable[str], skip: Iterable[str]) -> frozenset[str]:
    """Return the roles that a run with these tags leaves out.

    A tag that the playbooks do not have is one of a playbook that imports them. There it can choose
    every role.
    """
    chosen, skipped = _single(run), _single(skip)
    every = not _OURS.issuperset(chosen) or not _EVERY.isdisjoint(chosen)
    return frozenset(
        role
        for role, tag in ROLES.items()
        if not {tag, *_EVERY}.isdisjoint(skipped) or not (every or tag in chosen)
    )


def _single(words: Iterable[str]) -> list[str]:
    """Return each word once."""
    single = (part.strip() for word in words for part in str(word).split(","))
    return [word for word in dict.fromkeys(single) if word]
