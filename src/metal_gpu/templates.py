# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Render the templates in the variables of a host, without loading Ansible.

Jinja's own filters, tests and operators work, as in the defaults of the roles. Lookups and filters
of Ansible do not exist here. A variable that uses them is an error with its name. Why not by
Ansible: docs/decisions/063-inventories-by-ansible.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from jinja2 import StrictUndefined, Template, TemplateError, Undefined, meta, pass_context
from jinja2.nativetypes import NativeEnvironment, NativeTemplate
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

_DEEPEST = 20  # variables that name each other
_REMEMBERED = 1000  # templates


class Unsafe(str):
    """A text that is no template, whatever it contains: `!unsafe` in YAML."""

    __slots__ = ()


class AsItIs:
    """A table that a template can read, and whose values are not rendered, such as `groups`."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)


class NotRendered(Exception):
    """A variable cannot be rendered; the message names it."""


def _join(parts: Iterable[object]) -> object:
    """Return the value of a template: of a single expression as it is, as Ansible does."""
    values = [*parts]
    if len(values) == 1 and not isinstance(values[0], Undefined):
        return values[0]
    return "".join(map(str, values))  # of an undefined variable, this is the error


class _Environment(SandboxedEnvironment, NativeEnvironment):
    """A sandbox, because an inventory may come from elsewhere."""

    concat = staticmethod(_join)  # type: ignore[assignment]


class _Template(NativeTemplate):
    environment_class = _Environment


_Environment.template_class = _Template


@pass_context
def _as_it_is(_context: Context, value: object) -> object:
    """Keep Jinja from writing constants as texts, as it does if nothing needs the context."""
    return value


_environment = _Environment(undefined=StrictUndefined, finalize=_as_it_is)


class Variables:
    """The variables of a host. Values are rendered when they are asked for."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.values = values

    def __getitem__(self, name: str) -> object:
        """Return the value of a variable. Raises NotRendered, and KeyError."""
        value = self.values[name]
        try:
            return self._render(value, 0)
        except Exception as error:  # a template may raise anything
            message = f"only ansible-playbook can render the variable {name}: {error}"
            raise NotRendered(message) from error

    def _render(self, value: object, depth: int) -> object:
        if depth > _DEEPEST:
            raise TemplateError("variables name each other in a circle")
        if isinstance(value, Unsafe):
            return str(value)
        if isinstance(value, str) and ("{{" in value or "{%" in value):
            template, names = _compiled(value)
            return template.render(self._named(names, depth + 1))
        if isinstance(value, Mapping):
            return {key: self._render(item, depth) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
            return [self._render(item, depth) for item in value]
        return value

    def _named(self, names: Iterable[str], depth: int) -> dict[str, object]:
        """Return the rendered values of the variables that a template names, and of no others."""
        return {
            name: self._render(self.values[name], depth) for name in names if name in self.values
        }


@lru_cache(maxsize=_REMEMBERED)
def _compiled(text: str) -> tuple[Template, Sequence[str]]:
    """Return a template, and the variables that it names. All hosts have the defaults of roles."""
    parsed = _environment.parse(text)
    names = meta.find_undeclared_variables(parsed)
    return _environment.from_string(parsed), tuple(names)
