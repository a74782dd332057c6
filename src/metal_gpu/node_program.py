# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that observes a node: one text for the standard input of `python3 -`.

It carries the modules of the collection that read a node, and imports them from memory. So nothing
is written on the node, which may have no free space, and nothing is left there. It prints its
answer between marks, because a login shell may print before and after it.
"""

from __future__ import annotations

import ast
import base64
import json
import shlex
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from ansible_collections.metal.gpu.plugins.module_utils.probe.raw_data import RawData

_PREFIX = "ansible_collections.metal.gpu.plugins.module_utils"
_ROOTS = tuple(
    f"{_PREFIX}.probe.{name}" for name in ("collect", "limited", "probe", "program_files")
)
_TEMPLATE = Path(__file__).parent / "node"
BEGIN, END = "-----BEGIN METAL-GPU ANSWER-----", "-----END METAL-GPU ANSWER-----"
# All commands of an observation run at once, and in three rounds; each has its own limit of 10 s.
TIME_LIMIT_S = 90.0
# What an answer may have. Here, a machine without GPUs has 23 KiB and 2,000 values. What can be
# long is the kernel log, of which a node sends at most 8 MiB (module_utils/probe/limited.py).
_MOST = 16 * 1024 * 1024  # bytes
_VALUES = 100_000
# Of the newest Python first. Red Hat's package manager has one of its own that no user sees.
_MINORS = range(14, 8, -1)
_OLDER = ("python3", "/usr/libexec/platform-python", "python", "python2")


class NotObserved(Exception):
    """The program gave no answer; the message says why."""


class PythonMissing(NotObserved):
    """The node has no Python that can run the program; the message says what it has."""


@cache
def sources() -> Mapping[str, str]:
    """Return the modules that the program needs, with the packages they are in, by name."""
    found: dict[str, str] = {}
    waiting = [*_ROOTS]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ImportError(f"the collection has no module {name}")
        found[name] = Path(spec.origin).read_text("utf-8")
        waiting += [one for one in _imports(ast.parse(found[name])) if one.startswith(_PREFIX)]
    return found


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports, also inside functions, but not for types only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [name for name in names if name.startswith(_PREFIX) and _is_module(name)]
            yield from modules
            if len(modules) < len(names):
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from _imports(node)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the part before the last dot is no package
        return False


@cache
def text(packages: tuple[str, ...], repositories: tuple[str, ...]) -> bytes:
    """Return the program. The arguments are options of metal.gpu.node_info."""
    packed = {
        "sources": dict(sources()),
        "prefix": _PREFIX,
        "packages": packages,
        "repositories": repositories,
        "limit": TIME_LIMIT_S,
        "begin": BEGIN,
        "end": END,
    }
    body = (_TEMPLATE / "body.py").read_text("utf-8")
    head = (_TEMPLATE / "head.py").read_text("utf-8")
    payload = zlib.compress(json.dumps([body, packed]).encode(), 9)
    values = {"BEGIN": BEGIN, "END": END, "PAYLOAD": base64.b64encode(payload).decode()}
    for name, value in values.items():
        head = head.replace(f"@{name}@", value)
    return head.encode("ascii")


def command(interpreter: str | None = None) -> str:
    """Return the command for `sh` that runs the program with the first Python that can.

    Where none can, an older one runs the head of the program, which says so. No Python imports
    modules of the user or of the directory, or follows variables such as PYTHONHOME: -I is for
    that. Python 2 does not know it, and has -E and -s; what it imports comes from /.
    """
    newest = ["python3", *(f"python3.{minor}" for minor in _MINORS)]
    named = [] if interpreter is None else [interpreter]
    check = "import sys; sys.exit(sys.version_info < (3, 9))"
    lines = [
        f"for python in {shlex.join([*named, *newest])}; do",
        'if command -v "$python" >/dev/null 2>&1 &&',
        f'"$python" -I -c {shlex.quote(check)} </dev/null >/dev/null 2>&1;',
        'then exec "$python" -I -B -; fi; done;',
        f"for python in {shlex.join([*named, *_OLDER])}; do",
        'if command -v "$python" >/dev/null 2>&1; then cd /; exec "$python" -E -s -; fi; done;',
        # Read the program, so that its sender does not find a closed connection.
        "cat >/dev/null;",
        f"echo {BEGIN}; echo '{{\"python\": null}}'; echo {END}",
    ]
    return " ".join(lines)


def read(stdout: bytes, stderr: bytes) -> RawData:
    """Return the answer of the program. Raises NotObserved."""
    _noise, begin, rest = stdout.decode(errors="replace").partition(BEGIN)
    answer, end, _more = rest.partition(END)
    if not begin:
        raise NotObserved(f"the machine did not run the program{_last(stderr, stdout)}")
    if not end:
        raise NotObserved(f"the answer of the program is not complete{_last(stderr)}")
    try:
        found = _parsed(answer)
    except (ValueError, RecursionError) as error:
        raise NotObserved(f"the answer of the program is not readable: {error}") from error
    try:
        if "python" in found:
            raise PythonMissing(found["python"] or "no Python")
        if "error" in found:
            raise NotObserved(str(found["error"]))
        return cast(RawData, _parsed(_unpacked(base64.b64decode(found["raw"])).decode()))
    except (KeyError, TypeError, ValueError, RecursionError, zlib.error) as error:
        words = f"{type(error).__name__}: {error}"
        raise NotObserved(f"the answer of the program is not readable: {words}") from error


def _parsed(text: str) -> Any:
    """Parse JSON. Few bytes can be many values, each of which takes memory here."""
    plain = text.replace(r"\\", "").replace(r"\"", "")
    values = end = 0
    while end < len(plain) and values <= _VALUES:
        start = plain.find('"', end) % (len(plain) + 1)
        values += 1 + sum(plain.count(sign, end, start) for sign in "[{,")
        end = plain.find('"', start + 1) % (len(plain) + 1) + 1
    if values > _VALUES:
        raise NotObserved(f"the answer of the program has more than {_VALUES} values")
    return json.loads(text)


def _unpacked(data: bytes) -> bytes:
    """Return what was compressed. A few bytes of a machine must not take all memory here."""
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(data, _MOST)
    if unpacking.unconsumed_tail:
        raise NotObserved(f"the answer of the program has more than {_MOST // 2**20} MiB")
    if not unpacking.eof:
        raise ValueError("it is not complete")
    return found


def _last(*outputs: bytes) -> str:
    """Return the last line that was printed, as the end of a sentence."""
    for output in outputs:
        lines = output.decode(errors="replace").strip().splitlines()
        if lines:
            return f"; its last words: {lines[-1].strip()[:200]}"
    return ", and printed nothing"
