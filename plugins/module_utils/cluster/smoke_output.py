# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What the containers of a smoke pod run, and how to read what they write. No I/O.

They write to their termination messages. Such a message has at most 4,096 bytes, of which the
kubelet keeps the last. So the script shortens the words of each GPU to what is left for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

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

_LIST_SCRIPT = "exec nvidia-smi --query-gpu=uuid --format=csv,noheader >/dev/termination-log 2>&1"

# For a shell of POSIX, with the tools of GNU or of BusyBox. vectorAdd computes on the first visible
# GPU only, so it runs once for each GPU, at the same time. A GPU that hangs or fails delays or
# hides no other. The standard output of a program comes after its errors, as it is buffered: so
# what vectorAdd always prints is removed, and the last line that remains is its error.
_COMPUTE_SCRIPT = f"""\
say() {{ printf '%s\\n' "$1" >>/dev/termination-log; printf '%s\\n' "$1"; }}
listed=$(timeout -k 5 {PROGRAM_S} nvidia-smi -L 2>&1)
code=$?
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
  failed=1
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
  words=$(CUDA_VISIBLE_DEVICES=$2 timeout -k 5 {PROGRAM_S} "$program" 2>&1)
  code=$?
  case $code:$words in
    0:*'{PASSED}'*) say "$1 ok"; return 0 ;;
  esac
  words=$(printf '%s\\n' "$words" | tail -n 20 | tr -c ' -~\\n' ' ' |
    sed '/^\\[Vector addition/d;/^Copy /d;/^CUDA kernel launch/d;/^ *$/d' | tail -n 1)
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

_UUID = re.compile(r"(?:GPU|MIG)-\S+")
_RESULT = re.compile(r"(?P<number>\d{1,4}) (?:(?P<ok>ok)|(?P<code>\d{1,3})(?: (?P<words>.*))?)")
_TROUBLE = re.compile(r"! (?P<code>\d{1,3}) ?(?P<words>.*)")
_STOPPED = (124, 137, 143)  # by timeout: of GNU, killed, and of BusyBox

_HEADS = re.compile(r"^ *(?:\d+ +)*\d+ *$")
_ROW = re.compile(r"^ *(?P<gpu>\d+)(?P<cells>(?: +(?:\d+(?:\.\d+)?|N/A))+) *$")
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

    state: str  # "ok"; "nothing" to prove; "failed"; "not_run"
    message: str = ""


def command(level: str, arguments: Sequence[str] = ()) -> list[str]:
    """Return the command of the container for a level."""
    if level == EXCHANGE:
        return ["sh", "-c", 'exec "$@" >/dev/termination-log 2>&1', "sh", *arguments]
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


def parse_exchanged(code: int, text: str, gpus: int) -> Exchanged:
    """Judge what a program printed about copies between all pairs of a node's GPUs.

    nvbandwidth writes a matrix. A cell is "N/A" if the two GPUs have no access to each other, and
    the whole test is waived if no pair has. With other programs, the exit code decides.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    if code:
        last = (errors or lines or [f"exit code {code}"])[-1]
        return Exchanged("failed", last)
    rows = [row for line in lines if not _HEADS.match(line) and (row := _ROW.match(line))]
    if not rows:
        if any(map(_WAIVED.search, lines)):
            return Exchanged("nothing", "no GPU of the node has access to another one")
        if errors:
            return Exchanged("failed", errors[-1])
        return Exchanged("ok")
    pairs = {
        (row["gpu"], str(column)): cell
        for row in rows
        for column, cell in enumerate(row["cells"].split())
        if row["gpu"] != str(column)
    }
    if len(rows) != gpus:
        return Exchanged("failed", f"the result has {len(rows)} of {gpus} GPUs")
    still = [pair for pair, cell in pairs.items() if cell != "N/A" and float(cell) == 0]
    if still:
        named = ", ".join(f"{one} and {other}" for one, other in still[:8])
        return Exchanged("failed", f"no data moved between the GPUs {named}")
    if all(cell == "N/A" for cell in pairs.values()):
        return Exchanged("nothing", "no GPU of the node has access to another one")
    return Exchanged("ok")
