# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of a playbook prints: bars on a terminal, or lines, or one document at the end.

Everything that Ansible prints is also in the log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

import yaml

from metal_gpu.playbooks import files, log_files, result, stages
from metal_gpu.playbooks.progress import Progress
from metal_gpu.playbooks.run import Ended, Event, plain, run
from metal_gpu.terminal import exit_codes, output, pipes

# Lines that the bars show, or that only the log needs.
_IN_BARS = ("changed: ", "waiting: ", "metal_gpu_outcome: ")
_STYLES = {
    "runner_on_failed": "red",
    "runner_on_unreachable": "red",
    "runner_item_on_failed": "red",
}


def show(
    playbook: str, wanted: Sequence[str], passwords: Mapping[str, str], how: str, command: str
) -> int:
    """Run a playbook, and print what the user wants to see. Return the exit code."""
    with pipes.unread():  # nodes that change are not left halfway, as Ansible does not leave them
        return _show(playbook, wanted, passwords, how, command)


def _show(
    playbook: str, wanted: Sequence[str], passwords: Mapping[str, str], how: str, command: str
) -> int:
    progress = _progress(playbook)
    lines: list[str] = []
    with ExitStack() as stack:
        log = _open_log(command)
        if log is not None:
            stack.callback(log.close)
        say, feed = _printer(how, progress, lines, stack)

        def handle(event: Event) -> None:
            text = plain(str(event.get("stdout") or "")).strip("\n")
            if text and log is not None:
                log.write(text + "\n")
            feed(event, text)

        ended = run(f"{files.COLLECTION}.{playbook}", wanted, handle, say, passwords)
    path = str(log.path) if log else ""
    rc = exit_codes.INTERRUPTED if ended.signal == 2 else ended.rc
    if how == "json":
        if rc and not progress.processed:  # nothing in the document says why
            sys.stderr.write("".join(f"{line}\n" for line in lines))
        is_stopped = bool(ended.signal)
        output.print_json(result.as_document(progress, playbook, rc, path or None, is_stopped))
        return rc
    if how == "quiet" and rc != 0:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    if how == "live" and has_bars():
        _print_table(progress)
    if how != "quiet" or rc != 0:
        _tell_end(progress, ended, path)
    return rc


def has_bars() -> bool:
    """Tell whether standard output is a terminal that can move the cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _progress(playbook: str) -> Progress:
    collection = files.folder()
    assert collection is not None, "the command exists because the file does"
    text = files.path(collection, playbook).read_text(encoding="utf-8")
    plays = yaml.safe_load(text)
    own = [str(play.get("name", "")) for play in plays if "hosts" in play]
    return Progress(stages.of_playbook(plays), own, has_verdicts=files.has_report(text))


def _open_log(command: str) -> log_files.Log | None:
    place = log_files.folder(os.environ)
    try:
        return log_files.create(place, command, output.message)
    except OSError as error:
        output.message(f"no log is written, because {place} cannot be used: {error}")
        return None


def _printer(
    how: str, progress: Progress, lines: list[str], stack: ExitStack
) -> tuple[Callable[[str], None], Callable[[Event, str], None]]:
    """Return how messages are printed, and how events are."""
    import time

    if how == "live" and has_bars():
        return _live(progress, stack)

    def feed(event: Event, text: str) -> None:
        progress.feed(event, time.monotonic())
        if text and how in ("plain", "live"):
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
        elif text:
            lines.append(text)

    return output.message, feed


def _live(
    progress: Progress, stack: ExitStack
) -> tuple[Callable[[str], None], Callable[[Event, str], None]]:
    from metal_gpu.playbooks.display import Display

    display = stack.enter_context(Display(progress, output.console()))

    def feed(event: Event, text: str) -> None:
        display.feed(dict(event))
        table = "\n".join(progress.table)
        if table:
            text = text.replace(table, "")  # it comes last
        shown = [line for line in text.split("\n") if not line.startswith(_IN_BARS)]
        if any(map(str.strip, shown)):
            display.say("\n".join(shown).strip("\n"), _STYLES.get(str(event.get("event")), ""))

    return display.say, feed


def _print_table(progress: Progress) -> None:
    """Print the table of the playbook, or a narrower one if the terminal has no room for it."""
    out = output.console()
    if not progress.table:
        return
    out.print()
    if max(map(len, progress.table)) <= out.width or not progress.verdicts:
        for line in progress.table:
            output.print_line(line)
        return
    rows = result.narrow(progress)
    output.print_table(result.NARROW, rows, least=["GPU"], between={"verdict": " "})
    output.print_line(progress.table[-1])


def _tell_end(progress: Progress, ended: Ended, log: str) -> None:
    if ended.signal:
        output.message("The run was stopped, and the nodes stay as they are now.", "yellow")
    # Not wrapped, so that a path can be copied.
    for word, path in (("report", progress.report), ("log", log)):
        if path:
            sys.stderr.write(f"{word}: {path}\n")
