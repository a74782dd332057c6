# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages can follow the kernel of a node without a change of the kernel? No function does
I/O.

apt's simulation answers. Source: apt-get(8); apt 2.6.1 with the indexes of Debian 13 and Ubuntu
24.04, 2026-11-23: without a version, linux-headers-amd64 of Debian 13 and the meta packages of
Ubuntu's modules install the newest kernel. With apt.KEEP_KERNEL, linux-headers-amd64 of Debian 12
installs none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.removals import removed
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.sources import installs

_UNMET = re.compile(r"^ (\S+ : \S*Depends: .*)$", re.MULTILINE)
_ERROR = re.compile(r"^E: (.*)$", re.MULTILINE)
_KERNEL, _HEADERS = "linux-image-", "linux-headers-"


class Answer(NamedTuple):
    """What apt's simulation of an installation says."""

    is_possible: bool
    printed: str
    error: str = ""


class Decision(NamedTuple):
    """The packages to install, and why the others are left out."""

    names: list[str]
    left: dict[str, str]


def decide(arguments: Iterable[str], ask: Callable[[str], Answer]) -> Decision:
    """Return the first possible version of each package. The others are not asked about."""
    names: dict[str, str] = {}
    problems: dict[str, list[str]] = {}
    for argument in arguments:
        name = argument.partition("=")[0]
        if name in names:
            continue
        if why := problem(ask(argument)):
            problems.setdefault(name, []).append(why)
        else:
            names[name] = argument
    left = {
        name: "; ".join(dict.fromkeys(texts))
        for name, texts in problems.items()
        if name not in names
    }
    return Decision([*names.values()], left)


def problem(answer: Answer) -> str | None:
    """Return why a package must not be installed, or None."""
    if not answer.is_possible:
        text = f"{answer.printed}\n{answer.error}"
        found = _UNMET.findall(text) or _ERROR.findall(text) or ["apt does not find it"]
        return "; ".join(found).rstrip(".")
    kernels = [name for name in installs(answer.printed) if name.startswith(_KERNEL)]
    if kernels:
        return f"it would install {' and '.join(kernels)}"
    if gone := removed(answer.printed):
        return f"it would remove {' and '.join(gone)}"
    return None


def answer(text: str) -> Answer:
    """Return an answer of which only the text is known."""
    return Answer(not _ERROR.search(text), text)


def findings(host: str, decision: Decision) -> list[dict[str, str]]:
    """Return what the next kernel lacks."""
    return [left_out(host, name, f": {why}") for name, why in decision.left.items()]


def left_out(host: str, name: str, why: str = "") -> dict[str, str]:
    code = "KERNEL_HEADERS_LEFT" if name.startswith(_HEADERS) else "KERNEL_MODULES_LEFT"
    return finding(code, host, package=name, error=why)
