# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu explain`: what an error line means, and what to do."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from metal_gpu.terminal import exit_codes

if TYPE_CHECKING:
    from metal_gpu.explanations.explain import Candidate, Explainer
    from metal_gpu.explanations.logs import Explained

NOTHING_KNOWN = 1  # the exit code if no line is known

_UNKNOWN = (
    "Nothing known matches this text. Report the whole line, the program that printed it and its "
    "version as an issue of metal.gpu, so that it gets a row. "
    "`metal-gpu doctor HOST` and `metal-gpu verify` look at the nodes themselves."
)


def _codes(incomplete: str) -> list[tuple[str, str]]:
    """Complete a code or an Xid, in small letters if it begins so.

    The words beside it are its severity, or the meaning of the Xid.
    """
    try:
        from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE
        from ansible_collections.metal.gpu.plugins.module_utils.read.xids import XIDS
    except ImportError:  # without the collection, nothing is known
        return []
    known = {code: entry.severity for code, entry in CATALOGUE.items()}
    known |= {f"XID_{number}": xid.meaning for number, xid in sorted(XIDS.items())}
    small = incomplete.islower()
    return [
        (code.lower() if small else code, text)
        for code, text in known.items()
        if code.startswith(incomplete.upper())
    ]


def explain(
    text: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT",
            help="An error line, a code such as XID_79 or GPU_FAULTY, or a symptom in words. "
            "`-` reads lines from standard input.",
            show_default=False,
            autocompletion=_codes,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing; the exit code says it.")
    ] = False,
) -> None:
    """Tell what an error line means: the code of the finding, its cause, and the remedy.

    It knows lines of nvidia-smi, the kernel log (Xid, PCIe), MIG, kubectl, the kubelet, container
    engines, CUDA programs, NCCL, apt, dnf, DKMS and Ansible. The most probable cause comes first,
    and of a log, what tells a cause. The command asks no machine and no cluster.

    Examples:

    * `metal-gpu explain 'Failed to initialize NVML: Driver/library version mismatch'`
    * `metal-gpu explain XID_79`
    * `journalctl --dmesg --boot | metal-gpu explain -`

    The exit code is 0 if something is known, and 1 if nothing is.
    """
    from metal_gpu.explanations.catalogue import CatalogueMissing, explainer
    from metal_gpu.explanations.explain import near_codes
    from metal_gpu.terminal import output

    try:
        known = explainer()
    except CatalogueMissing as error:
        output.error(str(error))
        raise typer.Exit(exit_codes.USAGE) from error
    is_log = text == ["-"]
    explained = _log(known) if is_log else _line(known, " ".join(text))
    if as_json:
        output.print_json(as_document(explained))
    elif not quiet:
        _print(explained, is_log=is_log)
        if not explained.explanations:
            near = near_codes(text[0]) if len(text) == 1 and not is_log else []
            output.message(_UNKNOWN)
            if near:
                output.message(f"Codes that look like {text[0]}: {', '.join(near)}")
    raise typer.Exit(exit_codes.OK if explained.explanations else NOTHING_KNOWN)


def as_document(explained: Explained) -> dict[str, object]:
    """Return what `--json` prints: schemas/explain.json."""
    return {
        "explanations": [
            {
                "line": one.line,
                "number": one.number,
                "lines": one.lines,
                "candidates": [_of_candidate(candidate) for candidate in one.candidates],
            }
            for one in explained.explanations
        ],
        "lines": explained.lines,
        "unknown": explained.unknown,
    }


def _of_candidate(candidate: Candidate) -> dict[str, object]:
    document = candidate._asdict()
    del document["is_cause"]  # the order says it
    return document


def _line(known: Explainer, line: str) -> Explained:
    from metal_gpu.explanations.logs import Explained, Explanation

    code = known.of_code(line.strip().upper())
    candidates = [code] if code else known.explain(line)
    if not candidates:
        return Explained([], 1, 1)
    return Explained([Explanation(line, 1, candidates)], 1, 0)


def _log(known: Explainer) -> Explained:
    from metal_gpu.explanations.logs import explain_lines
    from metal_gpu.terminal import output

    if sys.stdin.isatty():
        output.message("Paste the lines, and end with Ctrl-D.")
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace")
    return explain_lines(known, lines)


def _print(explained: Explained, *, is_log: bool) -> None:
    from metal_gpu.explanations.explain import WORDS
    from metal_gpu.terminal import output

    for place, one in enumerate(explained.explanations):
        if one.candidates[0].certainty == WORDS:
            output.message("No text that is known stands in it. By its words, it resembles:")
        if place:
            output.print_line("")
        if is_log:
            more = f", and {one.lines - 1} more like it" if one.lines > 1 else ""
            output.print_line(f"line {one.number}{more}: {one.line}", "bold")
        for candidate in one.candidates:
            _print_candidate(candidate)
    if is_log:
        said = f"{explained.lines - explained.unknown} of {explained.lines} lines are known"
        output.message(said)


def _print_candidate(candidate: Candidate) -> None:
    from rich.padding import Padding
    from rich.text import Text

    from metal_gpu.terminal import output

    out = output.console()
    line = Text(candidate.code or candidate.title, style="bold")
    if candidate.severity:
        line.append(f" ({candidate.severity})", style=output.style_of(candidate.severity))
    if candidate.condition:
        line.append(f", if {candidate.condition}")
    out.print(line)
    for word, value in (
        ("cause", candidate.cause),
        ("remedy", candidate.remedy),
        ("see", candidate.reference),
    ):
        if value:
            text = Text(f"{word}: ", style="dim").append(value, "default")
            out.print(Padding(text, (0, 0, 0, 4), expand=False))
