# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes RETURN of plugins/modules/node_info.py from the types of an observation.

usage: make returns

The comment of a field, behind it or above it, is its description. Without one, that is the
docstring of its type. Backticks become C(), and None becomes V(null).
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "plugins/modules/node_info.py"
_RETURN = re.compile(r'(?<=\nRETURN = r""").*?(?=""")', re.DOTALL)
_SIMPLE = {str: "str", bool: "bool", int: "int", object: "raw"}
_TEXT = """
gpu_node:
  description: The observation of the node.
  returned: success
  type: dict
  contains:
{node}
failures:
  description: The components that could not be observed, because this collection has a defect. Then
    the task fails, so that nothing is planned from an incomplete observation.
  returned: if there are any
  type: list
  elements: dict
  contains:
{failure}
"""
_PLAIN = re.compile(r"[A-Za-z][^\[\]{},:#]*")  # what needs no quotes in a flow mapping
_WIDTH = 159  # one line for a fact, if ansible-test accepts it
_SENTENCE = 200  # characters of keys that need no lines of their own


class Type:
    """A type as Ansible has it, and the TypedDict in it."""

    def __init__(self, hint: Any) -> None:
        hint = _known(hint)
        self.name = _name(hint)
        self.words = f"type: {self.name}"
        if get_origin(hint) is list:
            hint = _known(get_args(hint)[0])
            self.words += f", elements: {_name(hint)}"
        elif get_origin(hint) in (dict, Mapping):
            hint = _known(get_args(hint)[1])
            if get_origin(hint) is list:
                hint = _known(get_args(hint)[0])
        self.inner = hint if is_typeddict(hint) else None


def _known(hint: Any) -> Any:
    """Return a type without None."""
    kinds = get_args(hint)
    return next(one for one in kinds if one is not NoneType) if NoneType in kinds else hint


def _name(hint: Any) -> str:
    return "list" if get_origin(hint) is list else _SIMPLE.get(hint, "dict")


def _trees(kind: Any) -> Iterator[tuple[ast.AST, list[str]]]:
    """Yield the definitions of a TypedDict and its bases, with the lines of their files."""
    module = inspect.getmodule(kind)
    lines = inspect.getsource(module).splitlines()  # type: ignore[arg-type]
    for node in ast.parse("\n".join(lines)).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            for base in node.bases:
                found = eval(ast.unparse(base), vars(module))
                if is_typeddict(found):
                    yield from _trees(found)
            yield node, lines
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == kind.__name__:
            yield node.value, lines


def comments(kind: Any) -> dict[str, str]:
    """Return the comments of a TypedDict's fields."""
    found = {}
    for tree, lines in _trees(kind):
        for node in ast.walk(tree):
            fields: list[tuple[str, int]] = []
            if isinstance(node, ast.AnnAssign):
                fields = [(ast.unparse(node.target), node.lineno)]
            elif isinstance(node, ast.Dict):
                fields = [(ast.literal_eval(key), key.lineno) for key in node.keys if key]
            for name, number in fields:
                _, _, text = lines[number - 1].partition("  # ")
                above: list[str] = []
                while (line := lines[number - 2 - len(above)].strip()).startswith("# "):
                    above.insert(0, line[2:])
                found[name] = text or " ".join(above)
    return found


def _marked(text: str) -> str:
    parts = re.split(r"`(.+?)`", text)
    parts[::2] = [re.sub(r"\bNone\b", "V(null)", part) for part in parts[::2]]
    parts[1::2] = [f"C({part})" for part in parts[1::2]]
    return "".join(parts)


def _sentence(text: str) -> str:
    text = _marked(text.strip())
    if re.match(r"[a-z][a-z]*\b", text):
        text = text[0].upper() + text[1:]
    return text if not text or text.endswith((".", "?")) else f"{text}."


def _prose(kind: Any, *, brief: bool) -> str:
    """Return the keys of a TypedDict as a sentence; empty if that would be long."""
    texts, keys = comments(kind), []
    for name, hint in get_type_hints(kind).items():
        type_ = Type(hint)
        if type_.inner and not brief:
            return ""
        notes = filter(None, [type_.name.removeprefix("str"), texts[name]])
        note = "" if brief else _marked(", ".join(notes))
        keys.append(f"C({name}) ({note})" if note else f"C({name})")
    text = f"Keys: {', '.join(keys[:-1])} and {keys[-1]}."
    # ansible-test refuses keys that a template finds as methods of the dict, such as `items`.
    return text if len(text) <= _SENTENCE or any(hasattr(dict, name) for name in texts) else ""


def fields(kind: Any) -> Iterator[str]:
    """Yield the lines of a TypedDict's fields."""
    uses: Counter[Any] = Counter()

    def count(kind: Any) -> None:
        for inner in filter(None, (Type(hint).inner for hint in get_type_hints(kind).values())):
            uses[inner] += 1
            count(inner)

    count(kind)
    return _fields(kind, 2, uses, set())


def _fields(kind: Any, depth: int, uses: Counter[Any], shown: set[Any]) -> Iterator[str]:
    texts, indent = comments(kind), "  " * depth
    for name, hint in get_type_hints(kind).items():
        type_ = Type(hint)
        inner = type_.inner
        text = _sentence(texts[name] or (inner and inspect.getdoc(inner)) or "")
        # A dict of few words needs no lines of its own, nor does one that is there already.
        known = inner in shown or (inner and comments(inner).items() <= texts.items())
        if inner and (prose := _prose(inner, brief=bool(known))):
            shown.add(inner)
            text, inner = f"{text} {prose}", None
        value = text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
        if not inner or inner in shown:
            contains = f", contains: *{inner.__name__}" if inner else ""
            yield from _wrapped(
                f"{name}: {{{type_.words}, description: {value}{contains}}}", indent
            )
            continue
        shown.add(inner)
        yield f"{indent}{name}:"
        yield from _wrapped(f"description: {value}", f"{indent}  ")
        yield from (f"{indent}  {word}" for word in type_.words.split(", "))
        yield f"{indent}  contains:" + (f" &{inner.__name__}" if uses[inner] > 1 else "")
        yield from _fields(inner, depth + 2, uses, shown)


def _wrapped(line: str, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def returns() -> str:
    """Return the text of RETURN."""
    from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
    from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import Failure

    return _TEXT.format(node="\n".join(fields(Node)), failure="\n".join(fields(Failure)))


def main() -> None:
    sys.path.insert(0, str(ROOT / ".ansible/collections"))
    MODULE.write_text(_RETURN.sub(lambda _: returns(), MODULE.read_text(), count=1))


if __name__ == "__main__":
    main()
