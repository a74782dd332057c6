# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the containers of a smoke pod run, and how to read what they write.

They write to their termination messages. Such a message has at most 4,096 bytes, of which the
kubelet keeps the last. So the script shortens the words of each GPU to what is left for it.
"""

from __future__ import annotations

import math
import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# How far the pods prove the GPUs; each level includes the previous ones.
LIST, COMPUTE, EXCHANGE = "list", "compute", "exchange"
LEVELS = (LIST, COMPUTE, EXCHANGE)

# Names of the containers; they show what ran. The first runs nvidia-smi only.
CONTAINERS = {LIST: "nvidia-smi", COMPUTE: "compute", EXCHANGE: "exchange"}

# How long a program may take with one GPU. Without persistence mode, each start of a program
# initialises the GPU, which takes seconds.
PROGRAM_S = 60
PASSED = "Test PASSED"
# Where NVIDIA's images have vectorAdd: those of before September 2022 in /tmp.
PROGRAMS = ("/cuda-samples/vectorAdd", "/cuda-samples/sample", "/tmp/vectorAdd")
_NO_PROGRAM = "no program"
# How many bytes of an output are kept: more than nvidia-smi prints about 16 GPUs with 7 parts each.
_KEPT = 32768

_LIST_SCRIPT = "exec nvidia-smi --query-gpu=uuid --format=csv,noheader >/dev/termination-log 2>&1"

# For a shell of POSIX, with the tools of GNU or of BusyBox. vectorAdd computes on the first visible
# GPU only, so it runs once for each GPU, at the same time. A GPU that hangs or fails delays or
# hides no other. The standard output of a program comes after its errors, as it is buffered: so
# what vectorAdd always prints, and what a shell says when it is stopped, is removed, and the last
# line that remains is its error. `run` keeps the end of an output only, as a program may print
# without end. What nvidia-smi says about GPUs that compute is no failure: it warns of a corrupted
# infoROM, and exits with 14.
_COMPUTE_SCRIPT = f"""\
say() {{ printf '%s\\n' "$1" >>/dev/termination-log; printf '%s\\n' "$1"; }}
run() {{
  words=$({{ timeout -k 5 {PROGRAM_S} "$@" 2>&1; printf '\\nexit %s\\n' "$?"; }} |
    tail -c {_KEPT} | tr -c ' -~\\n' ' ')
  code=${{words##*exit }}
  words=${{words%exit *}}
}}
run nvidia-smi -L
listed=$words
devices= parent=
for uuid in $(printf '%s\\n' "$listed" | sed -n 's/.*(UUID: \\([^)]*\\)).*/\\1/p'); do
  case $uuid in
    MIG-*) devices="$devices $uuid" parent= ;;
    *) devices="$devices $parent" parent=$uuid ;;
  esac
done
devices="$devices $parent"
count=0 failed=0 jobs=
for uuid in $devices; do say "$uuid"; count=$((count + 1)); done
words=$(printf '%s\\n' "$listed" | sed '/(UUID: /d;/^ *$/d' | tail -n 3 | tr '\\n' ' ')
if [ "$code" -ne 0 ] || [ -n "$words" ]; then
  say "! $code $(printf '%s' "$words" | cut -c 1-300)"
fi
program=
for path in {" ".join(PROGRAMS)} "$(command -v vectorAdd)"; do
  if [ -z "$program" ] && [ -n "$path" ] && [ -x "$path" ]; then program=$path; fi
done
if [ -z "$program" ]; then say '{_NO_PROGRAM}'; exit 1; fi
if [ "$count" -eq 0 ]; then exit 1; fi
width=$(((3400 - 42 * count) / count))
if [ "$width" -gt 200 ]; then width=200; fi
if [ "$width" -lt 20 ]; then width=20; fi
compute() {{
  export CUDA_VISIBLE_DEVICES="$2"
  run "$program"
  case $code:$words in
    0:*'{PASSED}'*) say "$1 ok"; return 0 ;;
  esac
  words=$(printf '%s\\n' "$words" | tail -n 20 | sed '
    /^\\[Vector addition/d;/^Copy /d;/^CUDA kernel launch/d;/Terminated$/d;/^ *$/d' | tail -n 1)
  say "$1 $code $(printf '%s' "$words" | cut -c "1-$width")"
  return 1
}}
number=0
for uuid in $devices; do
  number=$((number + 1))
  compute "$number" "$uuid" &
  jobs="$jobs $!"
done
for job in $jobs; do wait "$job" || failed=1; done
exit "$failed"
"""

# The exit code of a pipe is that of `tail`, so the other one comes with the words.
_EXCHANGE_SCRIPT = f"""\
words=$({{ timeout -k 5 LIMIT "$@" 2>&1; printf '\\nexit %s\\n' "$?"; }} |
  tail -c {_KEPT} | tr -d '\\000')
printf '%s' "${{words%exit *}}" >/dev/termination-log
exit "${{words##*exit }}"
"""

_UUID = re.compile(r"(?:GPU|MIG)-\S+")
_RESULT = re.compile(r"(?P<number>\d{1,4}) (?:(?P<ok>ok)|(?P<code>\d{1,3})(?: (?P<words>.*))?)")
_TROUBLE = re.compile(r"! (?P<code>\d{1,3}) ?(?P<words>.*)")
_STOPPED = (124, 137, 143)  # by timeout: of GNU, killed, and of BusyBox

_CELL_MISSING = "N/A"
_NO_ACCESS = "no GPU of the node has access to another one"
_MATRIX_PROGRAM = "nvbandwidth"
_WAIVED = re.compile(r"\bwaived\b", re.IGNORECASE)
_ERROR = re.compile(
    r"\bERROR\b|\[CUDA_ERROR|\[cudaError|Invalid value|ASSERT in|failed", re.IGNORECASE
)


class Result(NamedTuple):
    """Whether a program computed on a GPU."""

    uuid: str
    ok: bool
    error: str = ""


class Computed(NamedTuple):
    """The termination message of the script, read."""

    results: tuple[Result, ...]  # of each GPU that it listed
    trouble: str  # what nvidia-smi reported, and anything else; empty if there is nothing
    has_program: bool = True


class Exchanged(NamedTuple):
    """Whether the GPUs of a node exchanged data."""

    # "ok"; "nothing" to prove; "partial": some GPUs have no access to others; "failed"; "not_run"
    state: str
    message: str = ""
    alone: tuple[int, ...] = ()  # if partial: the GPUs that have access to no other one


def command(level: str, arguments: Sequence[str] = (), limit_s: int = PROGRAM_S) -> list[str]:
    """Return the command of the container for a level.

    `limit_s` is the time for the pod, of which the exchange leaves some to what comes before it.
    """
    if level == EXCHANGE:
        script = _EXCHANGE_SCRIPT.replace("LIMIT", str(max(PROGRAM_S, limit_s - PROGRAM_S)))
        return ["sh", "-c", script, "sh", *arguments]
    return ["sh", "-c", _COMPUTE_SCRIPT if level == COMPUTE else _LIST_SCRIPT]


def parse_uuids(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split the output of nvidia-smi into UUIDs and other lines, such as "[GPU is lost]"."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    uuids = [line for line in lines if _UUID.fullmatch(line)]
    return tuple(uuids), tuple(line for line in lines if not _UUID.fullmatch(line))


def parse_computed(text: str) -> Computed:
    """Read what the script wrote. A GPU without a result did not compute."""
    uuids, lines = parse_uuids(text)
    found: dict[int, Result] = {}
    trouble, has_program = [], True
    for line in lines:
        result, failure = _RESULT.fullmatch(line), _TROUBLE.fullmatch(line)
        number = int(result["number"]) if result else 0
        if result and 0 < number <= len(uuids) and number not in found:
            error = "" if result["ok"] else _describe(int(result["code"]), result["words"] or "")
            found[number] = Result(uuids[number - 1], bool(result["ok"]), error)
        elif line == _NO_PROGRAM:
            has_program = False
        elif failure:
            code, words = int(failure["code"]), failure["words"].strip()
            ended = f"nvidia-smi exited with code {code}" if code else "nvidia-smi printed"
            trouble.append(f"{ended}: {words}" if words else ended)
        else:
            trouble.append(line)
    missing = "the program did not run" if not has_program else "the program gave no result"
    results = (
        found.get(number, Result(uuid, ok=False, error=missing))
        for number, uuid in enumerate(uuids, 1)
    )
    return Computed(tuple(results), "; ".join(trouble), has_program)


def _describe(code: int, words: str) -> str:
    words = words.strip()
    if code in _STOPPED:
        stopped = (
            f"the program was stopped, after {PROGRAM_S} s or by the kernel (exit code {code})"
        )
        return f"{stopped}: {words}" if words else stopped
    return words or f"the program exited with code {code}"


def parse_exchanged(code: int, text: str, gpus: int, program: str = "") -> Exchanged:
    """Judge what a program printed about copies between all pairs of a node's GPUs.

    nvbandwidth writes a matrix. A cell is "N/A" if the two GPUs have no access to each other, and
    the whole test is waived if no pair has. With other programs, the exit code decides.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    if code:
        last = (errors or lines or [f"exit code {code}"])[-1]
        stopped = f"the program was stopped, after its time or by the kernel (exit code {code}): "
        return Exchanged("failed", f"{stopped if code in _STOPPED else ''}{last}")
    matrices = list(_matrices(lines))
    if matrices:
        found = [_judge_matrix(matrix, gpus) for matrix in matrices]
        return max(found, key=lambda one: ("ok", "nothing", "partial", "failed").index(one.state))
    if any(map(_WAIVED.search, lines)):
        return Exchanged("nothing", _NO_ACCESS)
    if errors:
        return Exchanged("failed", errors[-1])
    if posixpath.basename(program) == _MATRIX_PROGRAM:
        return Exchanged("failed", f"the program printed no matrix: {(lines or ['nothing'])[-1]}")
    return Exchanged("ok")


def _matrices(lines: Sequence[str]) -> Iterator[dict[int, list[str]]]:
    """Yield the rows of each matrix, by GPU: lines of cells after a line with all columns."""
    matrix: dict[int, list[str]] | None = None
    columns = 0
    for words in (*map(str.split, lines), []):
        is_head = len(words) > 1 and words == [str(number) for number in range(len(words))]
        is_row = len(words) == 1 + columns and words[0].isdecimal()
        if matrix is not None and is_row and not is_head:
            matrix[int(words[0])] = words[1:]
            continue
        if matrix is not None:
            yield matrix
        matrix, columns = ({}, len(words)) if is_head else (None, 0)


def _judge_matrix(matrix: Mapping[int, Sequence[str]], gpus: int) -> Exchanged:
    if len(matrix) != gpus:
        return Exchanged("failed", f"the result has {len(matrix)} of {gpus} GPUs")
    pairs = {
        (row, column): cell
        for row, cells in matrix.items()
        for column, cell in enumerate(cells)
        if row != column
    }
    still = [pair for pair, cell in pairs.items() if cell != _CELL_MISSING and not _has_moved(cell)]
    if still:
        named = ", ".join(f"{one} and {other}" for one, other in still[:8])
        return Exchanged("failed", f"no data moved between the GPUs {named}")
    met = {pair for pair, cell in pairs.items() if cell != _CELL_MISSING}
    if not met:
        return Exchanged("nothing", _NO_ACCESS)
    lacking = [(one, two) for one, two in pairs if one < two and not {(one, two), (two, one)} & met]
    if not lacking:
        return Exchanged("ok")
    alone = tuple(gpu for gpu in matrix if not any(gpu in pair for pair in met))
    rest = [pair for pair in lacking if not {*pair} & {*alone}]
    texts = [f"GPU {gpu} of the pod has no access to another one" for gpu in alone]
    if rest:
        named = ", ".join(f"{one} and {two}" for one, two in rest[:8])
        more = f" and {len(rest) - 8} more pairs" if len(rest) > 8 else ""
        texts.append(f"these GPUs of the pod have no access to each other: {named}{more}")
    return Exchanged("partial", "; ".join(texts), alone)


def _has_moved(cell: str) -> bool:
    try:
        return 0 < float(cell) < math.inf
    except ValueError:
        return False
