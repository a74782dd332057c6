# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The history of an actor's edits of a file, from which the former content is restored.

A history has the content before the first and before the last edit. The node stores it as an opaque
text. No function does I/O.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.observed.machine import Change
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    DocumentError,
    fingerprint,
    same,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Edits, Language


class HistoryUnreadable(DocumentError, ValueError):
    """The stored text is not a history."""

    def __init__(self, problem: str, state: str = "is damaged") -> None:
        super().__init__(f"the history of the file {state}: {problem}")


class History(NamedTuple):
    """The edits of a file by one actor."""

    original: str | None  # the content without the edits; None: no file
    written: str  # the content after the last edit
    before: str | None  # the content before the last edit
    directories: tuple[str, ...] = ()  # created for the file, outermost first
    language: Language | None = None  # None in histories of early versions


def remember(*histories: History) -> str:
    """Return the text to store; `recall` chooses one of the histories."""
    return json.dumps({"version": 1, "pasts": [one._asdict() for one in histories]})


def later(version: object) -> str:
    """Return what is wrong with a record of another version."""
    return f"a later version of metal.gpu wrote it (version {version}); update the collection"


def recall(stored: str | None, content: str | None) -> History | None:
    """Return the history of a file with this content; None: no text is stored.

    During an edit, the stored text has two histories, the new one first. After an interrupted edit,
    the content of the file decides which one is right. Raises HistoryUnreadable.
    """
    if stored is None:
        return None
    try:
        found = json.loads(stored)
        if "version" in found and found["version"] != 1:
            raise HistoryUnreadable(later(found["version"]), "cannot be read")
        histories = [_history(**one) for one in found["pasts"]]
        matching = (one for one in histories if _lines(one.written) == _lines(content))
        return next(matching, histories[-1])
    except HistoryUnreadable:
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise HistoryUnreadable(f"{type(error).__name__}: {error}") from error


def _history(
    *,
    original: Any,
    written: Any,
    before: Any,
    directories: Any = (),
    language: Any = None,
) -> History:
    texts = [text for text in (original, before) if text is not None]
    if not all(isinstance(text, str) for text in (written, *texts, *directories)):
        raise TypeError("a content or a directory is not a text")
    if language not in (None, *documents.LANGUAGES):
        raise ValueError(f"language {language!r}")
    return History(original, written, before, tuple(directories), language)


def _lines(content: str | None) -> list[str] | None:
    """Return the lines of a file; an observation has them without carriage returns."""
    return None if content is None else content.replace("\r\n", "\n").split("\n")


def change(content: str | None, language: Language, edits: Edits) -> str | None:
    """Return the content after the edits; None: no file. Raises DocumentError."""
    before = content or ""
    after = documents.render(
        before, language, documents.apply(documents.parse(before, language), edits)
    )
    return content if after == before else after


def restore(content: str | None, language: Language, history: History | None) -> str | None:
    """Return the content without the actor's edits; None: no file.

    If no one else edited the file since, the result has the original bytes. Otherwise it only has
    the original values. Raises DocumentError.
    """
    if content is None or history is None:
        return content
    if content == history.written:
        return history.original
    language = history.language or language
    current, written, original = (
        documents.parse(text, language)
        for text in (content, history.written, history.original or "")
    )
    rest = documents.render(content, language, documents.restore(current, written, original))
    if history.original is None and rest.strip() in ("", "{}"):
        return None
    return rest


def undo(
    content: str | None, language: Language, history: History | None
) -> tuple[str | None, History | None]:
    """Return the content without the actor's last edit, and its history.

    Only one edit can be undone. It restores the bytes under the same condition as `restore`. Raises
    DocumentError.
    """
    if history is None or history.before == history.written:
        return content, history
    rest = restore(content, language, history._replace(original=history.before))
    if rest is None or history.before is None or history.before == history.original:
        return rest, None
    original = restore(rest, language, history._replace(written=history.before))
    return rest, History(original, rest, rest, history.directories, history.language)


def extend(
    history: History | None,
    content: str | None,
    language: Language,
    *,
    written: str,
    created: Iterable[str] = (),
) -> History:
    """Return the history of a file after one more edit. Raises DocumentError."""
    if history is None:
        return History(content, written, content, tuple(created), language)
    # The admin may have edited the file since. Those edits are part of the original.
    original = restore(content, language, history)
    directories = tuple(dict.fromkeys((*history.directories, *created)))
    return History(original, written, content, directories, language)


class Summary(NamedTuple):
    """The edits of one actor, as far as plans need them."""

    changes: tuple[Change, ...] = ()
    untouched: bool = False  # no one else edited the file since
    error: str | None = None  # why the changes are unknown


def summarize(path: str, stored: str, content: str | None) -> Summary:
    """Return the summary of a stored history. Raises nothing, whatever the texts contain."""
    try:
        history = recall(stored, content)
        language = (history and history.language) or documents.language_of(path)
        if history is None or language is None:
            raise HistoryUnreadable("it does not name the language of the file")
        original, written = (
            documents.read(text, language).content
            for text in (history.original or "", history.written)
        )
    except DocumentError as error:
        return Summary(error=str(error))
    untouched = _lines(history.written) == _lines(content)
    return Summary(tuple(changes(original, written)), untouched)


def last_changes(path: str, stored: str, content: str | None) -> tuple[Change, ...]:
    """Return what the last edit of a stored history changed; empty if that is unknown."""
    try:
        history = recall(stored, content)
        language = (history and history.language) or documents.language_of(path)
        if history is None or language is None:
            return ()
        before, written = (
            documents.read(text, language).content
            for text in (history.before or "", history.written)
        )
    except DocumentError:
        return ()
    return tuple(changes(before, written))


def original(stored: str, content: str | None) -> str | None:
    """Return the file without an actor's edits; None if somebody else has edited it since."""
    try:
        history = recall(stored, content)
    except HistoryUnreadable:
        return None
    if history is None or _lines(history.written) != _lines(content):
        return None
    return history.original


def without(stored: str, content: str | None, language: Language) -> str | None:
    """Return the file without an actor's edits, also if others have edited it since.

    Their edits stay. None if nobody can tell.
    """
    try:
        return restore(content, language, recall(stored, content))
    except DocumentError:
        return None


def changes(
    original: Mapping[str, Any], written: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[Change]:
    """Yield the key path of each different value, what was there and what is."""
    for key in [*original, *(key for key in written if key not in original)]:
        before, after = original.get(key), written.get(key)
        if isinstance(after, dict) and isinstance(before, dict | None):
            yield from changes(before or {}, after, (*path, key))
        elif not same(before, after):
            then = fingerprint(after) if key in written else None
            yield {"key": [*path, key], "before": before, "after": then}
