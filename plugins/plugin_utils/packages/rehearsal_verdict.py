# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""May what the package manager would carry out go on? No function does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.packages import (
    follow,
    mixed_drivers,
    outdated,
    rehearsal,
    removals,
    sources,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import Request, bare_names

Finding = dict[str, str]


class Judged(NamedTuple):
    """Findings about what the package manager would do."""

    wrong: Finding | None  # why it must not
    competing: list[Finding]  # sources of the same packages
    left: list[Finding]  # what the next kernel lacks then


def judge(
    host: str, request: Request, node: Node, printed: str, answers: Mapping[str, str]
) -> Judged:
    """Judge what the package manager printed in a rehearsal, and answered to questions."""
    family, options = node["os"]["family"], request.options
    if options["operation"] == "remove":
        chosen = answers.get(rehearsal.CHOSEN, "")
        return Judged(_taken_along(host, request, node, printed, chosen), [], [])
    competing: list[Finding] = []
    # Packages of the system itself may have several sources.
    if options["repository"] is not None:
        bare, url = bare_names(request.names, family), request.repository.get("url")
        competing = sources.competing(host, family, bare, url, answers, printed)
    besides = removals.besides(printed, options["may_remove"])
    wrong = (
        _of_another_driver(host, node, printed, answers.get("modules"))
        or mixed_drivers.mixed(host, options["pin"], printed)
        or (removals.displaced(host, request.names, besides) if besides else None)
    )
    if wrong:
        return Judged(wrong, competing, [])
    tells = {one: answers.get(rehearsal.following(one)) for one in options["following"]}
    known = {one: follow.answer(text) for one, text in tells.items() if text is not None}
    return Judged(None, competing, follow.findings(host, follow.decide(known, known.__getitem__)))


def _taken_along(
    host: str, request: Request, node: Node, printed: str, chosen: str
) -> Finding | None:
    """Return the finding about packages of the admin that a removal would take along.

    What the package manager installed as a dependency is useless without the others.
    """
    options, automatic = request.options, node["package_manager"]["automatic"]
    allowed = (*request.names, *options["also_release"], *options["may_remove"], *automatic)
    found = removals.others(removals.needing(node["os"]["family"], printed), allowed)
    others = [name for name in found if not chosen or name in chosen.split()]
    needed, names = ", ".join(request.names), " ".join(others)
    return (
        finding("PACKAGES_NEEDED", host, needed=needed, packages=", ".join(others), names=names)
        if others
        else None
    )


def _of_another_driver(host: str, node: Node, printed: str, shown: str | None) -> Finding | None:
    if not shown:
        return None
    installed = {name: one["version"] for name, one in node["packages"].items()}
    return outdated.of_another_driver(host, node["kernel"]["release"], printed, shown, installed)
