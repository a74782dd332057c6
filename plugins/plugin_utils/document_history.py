# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a file was before its first and its last change by an actor, so that it can be given back.

The node keeps it as an opaque text, its *state*. No function does I/O.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from . import documents
from .document_model import DocumentError, same

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .documents import Edits, Language


class StateUnreadable(DocumentError, ValueError):
    """The state is not what `remember` writes."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"the record of what it was before is damaged: {problem}")


class Past(NamedTuple):
    """What one actor has done to a file."""

    original: str | None  # what it would be without them; None: there would be no file
    written: str  # as they left it
    before: str | None  # as they found it at their last change
    directories: tuple[str, ...] = ()  # made for the file, outermost first
    language: Language | None = None  # that they read it in; None in states of old


def remember(*pasts: Past) -> str:
    """Return the state from which `recall` chooses."""
    return json.dumps({"version": 1, "pasts": [past._asdict() for past in pasts]})


def recall(state: str | None, content: str | None) -> Past | None:
    """Return the past of a file with this content, or None where it has none.

    The state holds two while a change is under way, the coming one first: had the change been cut
    off, the file would tell which is true. Raises StateUnreadable.
    """
    if state is None:
        return None
    try:
        pasts = [_past(**past) for past in json.loads(state)["pasts"]]
        is_it = (past for past in pasts if _lines(past.written) == _lines(content))
        return next(is_it, pasts[-1])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise StateUnreadable(f"{type(error).__name__}: {error}") from error


def _past(
    *,
    original: Any,
    written: Any,
    before: Any,
    directories: Any = (),
    language: Any = None,
) -> Past:
    texts = [text for text in (original, before) if text is not None]
    if not all(isinstance(text, str) for text in (written, *texts, *directories)):
        raise TypeError("a content, or a directory, that is not a text")
    if language not in (None, *documents.LANGUAGES):
        raise ValueError(f"language {language!r}")
    return Past(original, written, before, tuple(directories), language)


def _lines(content: str | None) -> list[str] | None:
    """Return the lines of a file, which an observation has without their carriage returns."""
    return None if content is None else content.replace("\r\n", "\n").split("\n")


def change(content: str | None, language: Language, edits: Edits) -> str | None:
    """Return the content after the edits, None for no file. Raises DocumentError."""
    before = content or ""
    after = documents.render(
        before, language, documents.apply(documents.parse(before, language), edits)
    )
    return content if after == before else after


def give_back(content: str | None, language: Language, past: Past | None) -> str | None:
    """Return the content without what the actor wrote, None for no file.

    To the byte what it was where nobody has touched it since, and equal in meaning where somebody
    has. Raises DocumentError.
    """
    if content is None or past is None:
        return content
    if content == past.written:
        return past.original
    language = past.language or language
    current, written, original = (
        documents.parse(text, language) for text in (content, past.written, past.original or "")
    )
    rest = documents.render(content, language, documents.give_back(current, written, original))
    if past.original is None and rest.strip() in ("", "{}"):
        return None
    return rest


def undo(
    content: str | None, language: Language, past: Past | None
) -> tuple[str | None, Past | None]:
    """Return the content without the actor's last change, and the past that it has then.

    There is one step back, to the byte under the same condition as in `give_back`. Raises
    DocumentError.
    """
    if past is None or past.before == past.written:
        return content, past
    rest = give_back(content, language, past._replace(original=past.before))
    if rest is None or past.before is None or past.before == past.original:
        return rest, None
    original = give_back(rest, language, past._replace(written=past.before))
    return rest, Past(original, rest, rest, past.directories, past.language)


def extend(
    past: Past | None,
    content: str | None,
    language: Language,
    *,
    written: str,
    made: Iterable[str] = (),
) -> Past:
    """Return the past of a file after one more change. Raises DocumentError."""
    if past is None:
        return Past(content, written, content, tuple(made), language)
    # Somebody else may have changed the file since: without us it would have that change.
    original = give_back(content, language, past)
    directories = tuple(dict.fromkeys((*past.directories, *made)))
    return Past(original, written, content, directories, language)


class Summary(NamedTuple):
    """What one actor has done to a file that others wrote, as far as plans need to know it."""

    changes: tuple[dict[str, Any], ...] = ()
    untouched: bool = False  # nobody has changed the file since
    error: str | None = None  # why the changes are not known


def summarize(path: str, state: str, content: str | None) -> Summary:
    """Return what a state says about a file. Whatever is in the two, this raises nothing."""
    try:
        past = recall(state, content)
        language = (past and past.language) or documents.language_of(path)
        if past is None or language is None:
            raise StateUnreadable("it does not tell the language of the file")
        original, written = (
            documents.read(text, language).content for text in (past.original or "", past.written)
        )
    except DocumentError as error:
        return Summary(error=str(error))
    untouched = _lines(past.written) == _lines(content)
    return Summary(tuple(changes(original, written)), untouched)


def changes(
    original: Mapping[str, Any], written: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the key path of each value that differs, with what it was before (None: nothing)."""
    for key in [*original, *(key for key in written if key not in original)]:
        before, after = original.get(key), written.get(key)
        if isinstance(after, dict) and isinstance(before, dict | None):
            yield from changes(before or {}, after, (*path, key))
        elif not same(before, after):
            yield {"key": [*path, key], "before": before}
