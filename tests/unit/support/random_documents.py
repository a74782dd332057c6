# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Random configuration documents as people write them, and random changes of what they mean.

Every value has a form of its own (`0x1f`, `'x 31'`, `1_031`) and most have a comment of their own
on their line, so that a test can tell whether an edit has touched what it was not about.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any, NamedTuple

Path = tuple[str | int, ...]


class Leaf(NamedTuple):
    form: str  # as it is written
    value: Any
    comment: str  # on its line; "" for none
    above: str  # a comment on a line of its own above it, or above what it is the first value of


class Writer:
    """Writes one document, and knows its leaves by their paths."""

    comments = True

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.last_above = ""
        self.leaves: dict[Path, Leaf] = {}
        self.unit = " " * self.random.choice((2, 4))

    def leaf(self, path: Path, *, comment: bool = True) -> Leaf:
        self.count += 1
        value, form = self.random.choice(self.forms(self.count))
        remark = (
            f"# c{self.count}." if self.comments and comment and self.random.random() < 0.7 else ""
        )
        self.leaves[path] = Leaf(form, value, remark, self.last_above)
        self.last_above = ""
        return self.leaves[path]

    def forms(self, n: int) -> list[tuple[Any, str]]:
        raise NotImplementedError

    def keys(self) -> list[str]:
        names = ["path", "name", "opt-1", "a b", "x.y", "é"]
        return self.random.sample(names, self.random.randint(1, 4))

    def above(self, indent: str) -> str:
        """Return lines to stand above an entry: a comment, a blank line, or nothing."""
        if not self.comments or self.random.random() < 0.6:
            return ""
        self.count += 1
        self.last_above = f"# above {self.count}."
        return self.random.choice(("", "\n")) + f"{indent}{self.last_above}\n"


class Json(Writer):
    comments = False

    def forms(self, n: int) -> list[tuple[Any, str]]:
        return [
            (f"s{n}\u00e9", f'"s{n}\\u00e9"'),
            (f"t{n}/", f'"t{n}\\/"'),
            (n + 0.5, f"{n}.50"),
            (float(n * 1000), f"{n}e3"),
            (n, str(n)),
        ]

    def document(self) -> str:
        self.inline = self.random.random() < 0.2
        end = self.random.choice(("", "\n"))
        return self.table((), 0) + end

    def join(self, items: list[str], depth: int, brackets: str) -> str:
        if not items:
            return brackets
        if self.inline or self.random.random() < 0.3:
            return brackets[0] + ", ".join(items) + brackets[1]
        line = "\n" + self.unit * (depth + 1)
        return f"{brackets[0]}{line}{f',{line}'.join(items)}\n{self.unit * depth}{brackets[1]}"

    def table(self, path: Path, depth: int) -> str:
        items = [
            f"{json.dumps(key, ensure_ascii=False)}: {self.value((*path, key), depth + 1)}"
            for key in self.keys()
        ]
        return self.join(items, depth, "{}")

    def value(self, path: Path, depth: int) -> str:
        kind = self.random.random()
        if depth > 3 or kind < 0.4:
            return self.leaf(path).form
        if kind < 0.65:
            return self.table(path, depth)
        items = [
            self.table((*path, i), depth + 1) if kind > 0.8 else self.value((*path, i), depth + 1)
            for i in range(self.random.randint(0, 4))
        ]
        return self.join(items, depth, "[]")


class Yaml(Writer):
    def forms(self, n: int) -> list[tuple[Any, str]]:
        return [
            (f"s {n}", f"'s {n}'"),
            (f"t{n}", f"t{n}"),
            (f"u{n} #", f'"u{n} #"'),
            (n + 256, hex(n + 256)),
            (1000 + n, f"1_{n:03}" if n < 1000 else str(1000 + n)),
            (n * 1000.0, f"{n}e3"),
            (f"2026-01-{n}", f"2026-01-{n}"),
        ]

    def document(self) -> str:
        self.dash = self.random.choice(("", self.unit))
        head = self.random.choice(("", "# head\n", "---\n"))
        return head + self.table((), "") + self.random.choice(("", "# end\n"))

    def line(self, leaf: Leaf) -> str:
        return f"{leaf.form}  {leaf.comment}\n" if leaf.comment else f"{leaf.form}\n"

    def table(self, path: Path, indent: str) -> str:
        """Return lines; the first begins without its indent."""
        text = ""
        for number, key in enumerate(self.keys()):
            above = self.above(indent) if number else ""
            name = f"'{key}'" if self.random.random() < 0.3 else key
            text += (
                above + (indent if number else "") + name + ":" + self.value((*path, key), indent)
            )
        return text

    def value(self, path: Path, indent: str) -> str:
        """Return what stands behind the colon, whole lines."""
        kind = self.random.random()
        if len(path) > 4 or kind < 0.4:
            if kind < 0.03:
                self.count += 1
                self.leaves[path] = Leaf(f"line {self.count}", f"line {self.count}\nmore\n", "", "")
                self.last_above = ""
                return f" |\n{indent}{self.unit}line {self.count}\n{indent}{self.unit}more\n"
            return " " + self.line(self.leaf(path))
        inner = indent + self.unit
        if kind < 0.55:
            return "\n" + self.above(inner) + inner + self.table(path, inner)
        if kind < 0.7:
            return " " + self.flow(path) + "\n"
        return "\n" + self.items(path, indent + self.dash, kind > 0.85)

    def items(self, path: Path, indent: str, tables: bool) -> str:
        """Return the lines of a list."""
        text = ""
        for index in range(self.random.randint(1, 4)):
            text += self.above(indent) + f"{indent}- "
            text += self.item((*path, index), indent + "  ", self.random.random() / (1 + tables))
        return text

    def item(self, path: Path, indent: str, kind: float) -> str:
        """Return what stands behind a dash, whole lines."""
        if kind < 0.5:
            return self.table(path, indent)
        if kind < 0.6:
            return self.flow(path) + "\n"
        if kind < 0.7 and len(path) < 4:  # a list in a list, which begins on the same line
            first = "- " + self.line(self.leaf((*path, 0)))
            return first + f"{indent}- " + self.item((*path, 1), indent + "  ", 1)
        return self.line(self.leaf(path))

    def flow(self, path: Path) -> str:
        if self.random.random() < 0.5:
            keys = self.keys()
            items = [f"{key}: {self.inner((*path, key))}" for key in keys]
            return "{" + ", ".join(items) + "}"
        items = [self.inner((*path, index)) for index in range(self.random.randint(0, 3))]
        self.last_above = ""
        return "[" + ", ".join(items) + "]"

    def inner(self, path: Path) -> str:
        if len(path) < 5 and self.random.random() < 0.3:
            return self.flow(path)
        return self.leaf(path, comment=False).form


class Toml(Writer):
    def forms(self, n: int) -> list[tuple[Any, str]]:
        return [
            (f"s {n}", f"'s {n}'"),
            (f"u{n}\u00e9", f'"u{n}\\u00e9"'),
            (f"m{n}", f"'''m{n}'''"),
            (n + 256, hex(n + 256)),
            (1000 + n, f"1_{n:03}" if n < 1000 else str(1000 + n)),
            (n * 1000.0, f"{n}e3"),
        ]

    def document(self) -> str:
        text = self.lines((), "")
        for key in self.random.sample(["t1", "t2", "t 3", "t4"], self.random.randint(1, 4)):
            text += self.tables((key,), [self.name(key)])
        return text + self.random.choice(("", "# end\n"))

    def name(self, key: str) -> str:
        return (
            key if key.replace("-", "").isascii() and key.replace("-", "").isalnum() else f'"{key}"'
        )

    def tables(self, path: Path, names: list[str]) -> str:
        """Return a table, or a list of tables, with those in it."""
        indent = self.unit * (len(names) - 1) if self.random.random() < 0.3 else ""
        many = self.random.random() < 0.5
        text = ""
        for index in range(self.random.randint(1, 3) if many else 1):
            place = (*path, index) if many else path
            header = ".".join(names)
            text += (
                "\n" + self.above(indent) + indent + (f"[[{header}]]" if many else f"[{header}]")
            )
            text += "\n" + self.lines(place, indent)
            if len(names) < 3:
                for key in self.random.sample(["s1", "s 2"], self.random.randint(0, 2)):
                    text += self.tables((*place, key), [*names, self.name(key)])
        return text

    def lines(self, path: Path, indent: str) -> str:
        text = ""
        for key in self.keys():
            text += self.above(indent) + f"{indent}{self.name(key)} = "
            kind = self.random.random()
            if kind < 0.6:
                leaf = self.leaf((*path, key))
                text += f"{leaf.form} {leaf.comment}\n" if leaf.comment else f"{leaf.form}\n"
            elif kind < 0.8:
                text += self.inline((*path, key)) + "\n"
            else:
                text += self.array((*path, key), indent)
        return text

    def array(self, path: Path, indent: str) -> str:
        """Return a list with an item on each line, and comments."""
        text, inner = "[\n", indent + self.unit
        size = self.random.randint(1, 4)
        last = self.random.choice((",", ""))
        for index in range(size):
            text += self.above(inner) + inner
            comma = "," if index < size - 1 else last
            if self.random.random() < 0.5:
                text += self.inline((*path, index)) + comma + "\n"
                continue
            leaf = self.leaf((*path, index))
            text += (
                f"{leaf.form}{comma} {leaf.comment}\n" if leaf.comment else f"{leaf.form}{comma}\n"
            )
        return f"{text}{indent}]\n"

    def inline(self, path: Path) -> str:
        if self.random.random() < 0.7:
            items = [f"{self.name(key)} = {self.inner((*path, key))}" for key in self.keys()]
            return "{ " + ", ".join(items) + " }"
        items = [self.inner((*path, index)) for index in range(self.random.randint(0, 3))]
        self.last_above = ""
        return "[" + ", ".join(items) + "]"

    def inner(self, path: Path) -> str:
        if len(path) < 6 and self.random.random() < 0.3:
            return self.inline(path)
        return self.leaf(path, comment=False).form


WRITERS = {"json": Json, "yaml": Yaml, "toml": Toml}


def changed(content: Any, chance: random.Random) -> Any:
    """Return another content with a few values set, added and taken out."""
    content = copy.deepcopy(content)
    for _time in range(chance.randint(1, 4)):
        collections = [content, *_collections(content)]
        one = chance.choice(collections)
        new: Any = chance.choice(
            [
                7,
                "new",
                True,
                "a: #b",
                ["n", 1],
                {"k": 1},
                {"k": {"l": [1, {"m": 2}]}},
                [{"path": "n"}],
            ]
        )
        action = chance.random()
        if isinstance(one, dict):
            keys = list(one)
            if action < 0.35 or not keys:
                one[f"new {chance.randint(0, 9)}"] = copy.deepcopy(new)
            elif action < 0.7:
                one[chance.choice(keys)] = copy.deepcopy(new)
            else:
                del one[chance.choice(keys)]
        elif action < 0.45 or not one:
            one.insert(chance.randint(0, len(one)), copy.deepcopy(new))
        elif action < 0.6:
            one[chance.randrange(len(one))] = copy.deepcopy(new)
        else:
            del one[chance.randrange(len(one))]
    return content


def _collections(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value
    found = [one for one in inner if isinstance(one, dict | list)]
    return [*found, *(deeper for one in found for deeper in _collections(one))]


def scalars(value: Any, path: Path = ()) -> dict[Path, Any]:
    """Return everything in a document that is no collection, keyed by path."""
    if not isinstance(value, dict | list):
        return {path: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {
        place: scalar
        for key, inner in items
        for place, scalar in scalars(inner, (*path, key)).items()
    }
