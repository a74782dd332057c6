# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu site` and the like: a command for each playbook of the collection.

The names and the help come from the files. `plan` is `site --check --diff`.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metal_gpu.playbooks import files
from metal_gpu.terminal import exit_codes
from metal_gpu.terminal.help_text import Command

if TYPE_CHECKING:
    from metal_gpu.playbooks.options import Options

PLAN = "plan"

_SETTINGS = {"allow_extra_args": True, "allow_interspersed_args": True}
_PLAN = "Show what `metal-gpu site` would change, file by file. Changes nothing."
_PLANNED = """
A node that lacks only what `metal-gpu site` sets up has the verdict planned, and does not fail.
"""
_END = """
The exit code is that of ansible-playbook: 0 if every node is well, 2 if a node fails or cannot be
reached at the start, 2 or 4 if a connection breaks later, 1 if no host matches --limit. It is 130
after Ctrl-C, and 2 if an option or the installation cannot be used, or the group has no host.
"""

Inventory = Annotated[
    list[str],
    typer.Option(
        "--inventory",
        "-i",
        metavar="FILE",
        help="Inventory, also several times. Without it, Ansible's configuration decides, or "
        "inventory.yml in this folder.",
        show_default=False,
    ),
]
Check = Annotated[bool, typer.Option("--check", "-C", help="Change nothing; show what would be.")]
Diff = Annotated[bool, typer.Option("--diff", "-D", help="Show the differences in files.")]
Limit = Annotated[
    str, typer.Option("--limit", "-l", metavar="PATTERN", help="Only these hosts of the inventory.")
]
Serial = Annotated[
    str,
    typer.Option(
        "--serial", metavar="N,…", help="Nodes that are changed at a time: 1, or 1,10,25%."
    ),
]
ExtraVars = Annotated[
    list[str],
    typer.Option(
        "--extra-vars",
        "-e",
        metavar="NAME=VALUE",
        help="Variables, also several times; @FILE reads a file.",
        show_default=False,
    ),
]


def _tags(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the last tag of a list with commas."""
    from metal_gpu.playbooks import tags

    collection, command = files.folder(), context.info_name or ""
    if collection is None:
        return []
    path = files.path(collection, "site" if command == PLAN else command)
    former, comma, last = incomplete.rpartition(",")
    found = tags.known(path.read_text(encoding="utf-8"))
    return [f"{former}{comma}{tag}" for tag in found if tag.startswith(last)]


Tags = Annotated[
    list[str],
    typer.Option(
        "--tags",
        "-t",
        metavar="TAG",
        help="Only these parts.",
        show_default=False,
        autocompletion=_tags,
    ),
]
SkipTags = Annotated[
    list[str],
    typer.Option(
        "--skip-tags",
        metavar="TAG",
        help="Not these parts.",
        show_default=False,
        autocompletion=_tags,
    ),
]
AskBecomePass = Annotated[
    bool, typer.Option("--ask-become-pass", "-K", help="Ask for the password of sudo.")
]
Report = Annotated[
    str,
    typer.Option(
        "--report", metavar="FILE", help="Write the verdicts to this file (verify_report)."
    ),
]
Kubeconfig = Annotated[
    str,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Instead of KUBECONFIG and ~/.kube/config (metal_gpu_kubeconfig).",
    ),
]
Context = Annotated[
    str,
    typer.Option(
        "--context", metavar="NAME", help="A context of the kubeconfig (metal_gpu_context)."
    ),
]
Plain = Annotated[bool, typer.Option("--plain", help="Print lines, also on a terminal.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document at the end.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing if all is well.")]


def register(app: typer.Typer) -> None:
    """Add a command for each playbook. Without the collection, there is none."""
    collection = files.folder()
    if collection is None:
        return
    for name in files.names(collection):
        text = files.path(collection, name).read_text(encoding="utf-8")
        described = files.describe(text)
        _add(app, name, name, _short(described.text), _help(described), text)
        if name == "site":
            _add(app, PLAN, name, _PLAN, f"{_PLAN}\n{_PLANNED}{_END}", text)


def _short(text: str) -> str:
    """Return the first sentence."""
    return re.split(r"(?<=\.)\s", text)[0]


def _help(described: files.Description) -> str:
    examples = "".join(f"\n* `{one}`" for one in described.examples)
    heading = f"\n\nExamples:\n{examples}\n" if examples else "\n"
    return f"{described.text}{heading}\nWhat follows `--` is handed on to ansible-playbook.\n{_END}"


def _add(
    app: typer.Typer, command: str, playbook: str, short: str, text: str, content: str
) -> None:
    is_plan = command == PLAN
    has_batches = files.has_batches(content)
    has_report = files.has_report(content) and not is_plan
    has_cluster = files.has_cluster(content)

    def play(
        context: typer.Context,
        inventory: Inventory = [],  # noqa: B006
        check: Check = False,
        diff: Diff = False,
        limit: Limit = "",
        serial: Serial = "",
        extra_vars: ExtraVars = [],  # noqa: B006
        tags: Tags = [],  # noqa: B006
        skip_tags: SkipTags = [],  # noqa: B006
        ask_become_pass: AskBecomePass = False,
        report: Report = "",
        kubeconfig: Kubeconfig = "",
        kube_context: Context = "",
        plain: Plain = False,
        as_json: AsJson = False,
        quiet: Quiet = False,
    ) -> None:
        from metal_gpu.playbooks.options import Options

        if serial and not has_batches:
            _refuse(f"{command} has no batches, so --serial has no effect. --limit chooses nodes")
        if report and not has_report:
            _refuse(f"{command} has no verdicts, so --report would write nothing. Use --json")
        if report and check:
            _refuse("--check changes nothing, so --report would write nothing. Use --json")
        if (kubeconfig or kube_context) and not has_cluster:
            name = "--kubeconfig" if kubeconfig else "--context"
            _refuse(f"{command} talks to no cluster, so {name} has no effect")
        options = Options(
            inventory=inventory,
            check=check or is_plan,
            diff=diff or is_plan,
            limit=limit,
            serial=serial,
            extra_vars=extra_vars,
            tags=tags,
            skip_tags=skip_tags,
            ask_become_pass=ask_become_pass,
            report=report,
            kubeconfig=kubeconfig,
            context=kube_context,
            more=context.args,
        )
        how = "json" if as_json else "quiet" if quiet else "plain" if plain else "live"
        raise typer.Exit(run(playbook, content, options, how, command))

    if is_plan:  # which is both
        for name, option, letter in (("check", "--check", "-C"), ("diff", "--diff", "-D")):
            implied = typer.Option(option, letter, hidden=True, help="Always, here.")
            play.__annotations__[name] = Annotated[bool, implied]
    for name, option, is_there in (
        ("serial", "--serial", has_batches),
        ("report", "--report", has_report),
        ("kubeconfig", "--kubeconfig", has_cluster),
        ("kube_context", "--context", has_cluster),
    ):
        if not is_there:
            refused = typer.Option(option, hidden=True, help="Refused: it has no effect here.")
            play.__annotations__[name] = Annotated[str, refused]
    app.command(command, cls=Command, help=text, short_help=short, context_settings=_SETTINGS)(play)


def _refuse(words: str) -> None:
    from metal_gpu.terminal import output

    output.error(words)
    raise typer.Exit(exit_codes.USAGE)


def run(playbook: str, content: str, options: Options, how: str, command: str) -> int:
    """Run a playbook with this content for a command, and return the exit code.

    `how` is live, plain, quiet or json.
    """
    from dataclasses import replace

    from metal_gpu.playbooks import tags
    from metal_gpu.playbooks.options import (
        OptionInvalid,
        arguments,
        check_inventory,
        check_more,
        check_some_inventory,
        default_inventory,
        names_inventory,
        prompts,
        untrusted_config,
    )
    from metal_gpu.playbooks.run import CannotRun, check, missing_collection
    from metal_gpu.terminal import output
    from metal_gpu.terminal.play_output import show

    try:
        check_more(options.more)
        if not options.inventory and not names_inventory(options.more):
            options = replace(options, inventory=default_inventory(Path.cwd(), os.environ))
            if not options.inventory:
                check_some_inventory(Path.cwd(), os.environ)
        if why := untrusted_config(Path.cwd(), os.environ):
            raise OptionInvalid(why)
        check_inventory(options.inventory)
        wanted = arguments(options)
        tags.check(wanted, content, f"metal.gpu.{playbook}")
        check()
        if missing := missing_collection(os.environ):
            output.message(missing)
        passwords = _ask(prompts(wanted, Path.cwd(), os.environ))
        return show(playbook, wanted, passwords, how, command)
    except (OptionInvalid, CannotRun) as error:
        output.error(str(error))
        return exit_codes.USAGE


def _ask(options: list[str]) -> dict[str, str]:
    """Ask for passwords here, because ansible-playbook has no terminal to ask on."""
    from getpass import getpass

    from metal_gpu.playbooks.options import PROMPTS
    from metal_gpu.playbooks.run import CannotRun

    if options and not sys.stdin.isatty():
        raise CannotRun(
            f"{options[0]} asks for a password, and standard input is no terminal. Run it on a "
            "terminal, or set the password by a variable in a vault"
        )
    return {option: getpass(f"{PROMPTS[option][0]}: ") for option in options}
