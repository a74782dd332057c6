# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tags of a playbook, and those that the arguments of ansible-playbook name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ansible_collections.metal.gpu.plugins.plugin_utils.tags import refuse_unknown
from metal_gpu.playbooks.options import OptionInvalid

_KNOWN = re.compile(r"^    metal_gpu_tags: \[(?P<tags>[^]]*)\]", re.MULTILINE)
# -t can be in one word with options without a value, and with its own value.
_SHORT = re.compile(r"-[bCDvkKJ]*t=?(?P<value>.*)", re.DOTALL)
_LONG = ("--tags", "--skip-tags")
_LEAST = 4  # characters of a beginning that is unique: --ta, --sk


def known(text: str) -> list[str]:
    """Return the tags that a playbook says it has."""
    match = _KNOWN.search(text)
    return [] if match is None else [tag.strip() for tag in match["tags"].split(",") if tag.strip()]


def check(arguments: Sequence[str], text: str, playbook: str) -> None:
    """Raise OptionInvalid for a tag that the playbook with this text does not have."""
    refused = refuse_unknown(_named(arguments), known(text), playbook)
    if refused:
        raise OptionInvalid(refused)


def _named(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the values of --tags and --skip-tags. Any beginning of a name that is unique counts."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        if len(name) >= _LEAST and any(one.startswith(name) for one in _LONG):
            yield value if equals else following
        elif match := _SHORT.fullmatch(argument):
            yield match["value"] or following
