# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history as document_history
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Edits
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.history import History
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import fingerprint

ORIGINAL = '{"a":1,\n "b":2}'


def put(content, history=None, **keys):
    """Return the file and its history after a change, as the action plugin makes it."""
    after = document_history.change(content, "json", Edits(merge=keys))
    return after, document_history.extend(history, content, "json", written=after)


def test_several_changes_are_given_back_to_the_byte():
    first, history = put(ORIGINAL, a=5)
    second, history = put(first, history, c={"d": 1})
    assert document_history.restore(second, "json", history) == ORIGINAL


def test_a_foreign_change_between_ours_stays():
    first, history = put(ORIGINAL, a=5)
    theirs = first.replace('"b":2', '"b": 3')
    second, history = put(theirs, history, c={"d": 1})
    assert history.original == '{"a":1,\n "b": 3}'
    assert document_history.restore(second, "json", history) == history.original


@pytest.mark.parametrize(
    ("current", "rest"),
    [
        ('{\n  "a": {\n    "b": 1\n  }\n}\n', None),
        ('{"a": {"b": 1}}', None),
        ('{"a": {"b": 1}, "theirs": 1}', '{"theirs": 1}'),
        ('{"a": {"b": 2}}', '{"a": {"b": 2}}'),
        (None, None),
    ],
    ids=["untouched", "reformatted", "theirs-too", "theirs-by-now", "deleted"],
)
def test_a_file_of_ours_goes_unless_it_holds_something_else(current, rest):
    content, history = put(None, a={"b": 1})
    assert history == History(None, content, None, language="json")
    assert document_history.restore(current, "json", history) == rest


def test_the_last_change_is_undone_to_the_byte_and_only_once():
    first, history = put(ORIGINAL, a=5)
    second, history = put(first, history, c={"d": 1})
    rest, history = document_history.undo(second, "json", history)
    assert rest == first
    assert document_history.undo(rest, "json", history) == (rest, history)
    assert document_history.restore(rest, "json", history) == ORIGINAL


@pytest.mark.parametrize("original", [ORIGINAL, None])
def test_nothing_is_left_when_the_only_change_is_undone(original):
    content, history = put(original, a=5)
    assert document_history.undo(content, "json", history) == (original, None)


def test_foreign_changes_stay_when_the_last_change_is_undone():
    first, history = put(ORIGINAL, a=5)
    second, history = put(first.replace('"b":2', '"b": 3'), history, c={"d": 1})
    rest, history = document_history.undo(second.replace('"a":5', '"a":5,"e":6'), "json", history)
    assert json.loads(rest) == {"a": 5, "b": 3, "e": 6}
    assert json.loads(document_history.restore(rest, "json", history)) == {"a": 1, "b": 3, "e": 6}


def test_there_is_nothing_to_undo_without_a_history():
    assert document_history.undo(ORIGINAL, "json", None) == (ORIGINAL, None)


def test_a_file_that_was_deleted_since_begins_anew():
    _content, history = put(ORIGINAL, a=5)
    _content, history = put(None, history, a=5)
    assert history.original is None


def test_no_file_stays_no_file():
    assert document_history.change(None, "toml", Edits(remove=(("a",),))) is None


def test_directories_accumulate():
    history = document_history.extend(None, None, "json", written="{}", created=["/x"])
    history = document_history.extend(history, None, "json", written="{}", created=["/x/y"])
    assert history.directories == ("/x", "/x/y")


def test_recall_goes_by_what_the_file_is():
    old, new = History("o", "w1", "o"), History("o", "w2", "w1", ("/d",))
    state = document_history.remember(new, old)
    assert document_history.recall(state, "w2") == new  # cut off behind the file
    assert document_history.recall(state, "w1") == old  # cut off before it
    assert document_history.recall(state, "theirs") == old
    assert document_history.recall(None, "w1") is None


def test_a_change_that_was_cut_off_before_the_file_gives_nothing_back():
    _content, history = put(ORIGINAL, a=5, c=[1])
    assert document_history.restore(ORIGINAL, "json", history) == ORIGINAL


RECORDED = {"original": "o", "written": "w", "before": "b"}


@pytest.mark.parametrize(
    "state",
    [
        *("", "{", "[]", '{"pasts": []}', '{"pasts": [{}]}', "null", "\ufffd\0", 100_000 * "["),
        *(
            json.dumps({"pasts": [{**RECORDED, key: value}]})
            for key, value in (
                *(("written", None), ("original", 1), ("directories", [1]), ("directories", 1)),
                *(("language", "ini"), ("language", ["json"]), ("more", 1)),
            )
        ),
    ],
    ids=lambda state: state[-40:],
)
def test_a_damaged_state_is_an_error(state):
    with pytest.raises(document_history.HistoryUnreadable, match="damaged"):
        document_history.recall(state, "x")


def test_a_state_of_a_later_version_is_refused():
    state = json.dumps({"version": 2, "pasts": [{**RECORDED, "more": 1}]})
    with pytest.raises(document_history.HistoryUnreadable, match="cannot be read: a later version"):
        document_history.recall(state, "x")


def test_the_language_of_an_edit_is_remembered_and_used():
    """A file whose suffix does not tell it, or tells another one."""
    content, history = put(ORIGINAL, a=5)
    history = document_history.recall(document_history.remember(history), content)
    assert history.language == "json"
    theirs = content.replace("{", r'{"tag": "\ud83d\ude00",')  # no YAML
    assert json.loads(document_history.restore(theirs, "yaml", history))["a"] == 1


def test_a_state_of_old_has_no_language():
    state = json.dumps({"version": 1, "pasts": [RECORDED]})
    assert document_history.recall(state, "w") == History("o", "w", "b", language=None)


@pytest.mark.parametrize(
    ("original", "written", "expected"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="none"),
        pytest.param(
            {},
            {"a": {"b": 1}},
            [{"key": ["a", "b"], "before": None, "after": fingerprint(1)}],
            id="added",
        ),
        pytest.param(
            {"a": "x"},
            {"a": "y"},
            [{"key": ["a"], "before": "x", "after": fingerprint("y")}],
            id="replaced",
        ),
        pytest.param(
            {"a": {"b": 1}}, {}, [{"key": ["a"], "before": {"b": 1}, "after": None}], id="removed"
        ),
        pytest.param(
            {"a": [1]},
            {"a": [1, 2]},
            [{"key": ["a"], "before": [1], "after": fingerprint([1, 2])}],
            id="list",
        ),
    ],
)
def test_changes(original, written, expected):
    assert list(document_history.changes(original, written)) == expected
