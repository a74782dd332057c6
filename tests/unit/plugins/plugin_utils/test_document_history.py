# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils import document_history as history
from ansible_collections.metal.gpu.plugins.plugin_utils.document_history import Past
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import Edits

ORIGINAL = '{"a":1,\n "b":2}'


def put(content, past=None, **keys):
    """Return the file and its past after a change, as the action plugin makes it."""
    after = history.change(content, "json", Edits(merge=keys))
    return after, history.extend(past, content, "json", written=after)


def test_several_changes_are_given_back_to_the_byte():
    first, past = put(ORIGINAL, a=5)
    second, past = put(first, past, c={"d": 1})
    assert history.give_back(second, "json", past) == ORIGINAL


def test_a_foreign_change_between_ours_stays():
    first, past = put(ORIGINAL, a=5)
    theirs = first.replace('"b":2', '"b": 3')
    second, past = put(theirs, past, c={"d": 1})
    assert past.original == '{"a":1,\n "b": 3}'
    assert history.give_back(second, "json", past) == past.original


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
    content, past = put(None, a={"b": 1})
    assert past == Past(None, content, None, language="json")
    assert history.give_back(current, "json", past) == rest


def test_the_last_change_is_undone_to_the_byte_and_only_once():
    first, past = put(ORIGINAL, a=5)
    second, past = put(first, past, c={"d": 1})
    rest, past = history.undo(second, "json", past)
    assert rest == first
    assert history.undo(rest, "json", past) == (rest, past)
    assert history.give_back(rest, "json", past) == ORIGINAL


@pytest.mark.parametrize("original", [ORIGINAL, None])
def test_nothing_is_left_when_the_only_change_is_undone(original):
    content, past = put(original, a=5)
    assert history.undo(content, "json", past) == (original, None)


def test_foreign_changes_stay_when_the_last_change_is_undone():
    first, past = put(ORIGINAL, a=5)
    second, past = put(first.replace('"b":2', '"b": 3'), past, c={"d": 1})
    rest, past = history.undo(second.replace('"a":5', '"a":5,"e":6'), "json", past)
    assert json.loads(rest) == {"a": 5, "b": 3, "e": 6}
    assert json.loads(history.give_back(rest, "json", past)) == {"a": 1, "b": 3, "e": 6}


def test_there_is_nothing_to_undo_without_a_past():
    assert history.undo(ORIGINAL, "json", None) == (ORIGINAL, None)


def test_a_file_that_was_deleted_since_begins_anew():
    _content, past = put(ORIGINAL, a=5)
    _content, past = put(None, past, a=5)
    assert past.original is None


def test_no_file_stays_no_file():
    assert history.change(None, "toml", Edits(remove=(("a",),))) is None


def test_directories_accumulate():
    past = history.extend(None, None, "json", written="{}", made=["/x"])
    past = history.extend(past, None, "json", written="{}", made=["/x/y"])
    assert past.directories == ("/x", "/x/y")


def test_recall_goes_by_what_the_file_is():
    old, new = Past("o", "w1", "o"), Past("o", "w2", "w1", ("/d",))
    state = history.remember(new, old)
    assert history.recall(state, "w2") == new  # cut off behind the file
    assert history.recall(state, "w1") == old  # cut off before it
    assert history.recall(state, "theirs") == old
    assert history.recall(None, "w1") is None


def test_a_change_that_was_cut_off_before_the_file_gives_nothing_back():
    _content, past = put(ORIGINAL, a=5, c=[1])
    assert history.give_back(ORIGINAL, "json", past) == ORIGINAL


PAST = {"original": "o", "written": "w", "before": "b"}


@pytest.mark.parametrize(
    "state",
    [
        *("", "{", "[]", '{"pasts": []}', '{"pasts": [{}]}', "null", "\ufffd\0", 100_000 * "["),
        *(
            json.dumps({"pasts": [{**PAST, key: value}]})
            for key, value in (
                *(("written", None), ("original", 1), ("directories", [1]), ("directories", 1)),
                *(("language", "ini"), ("language", ["json"]), ("more", 1)),
            )
        ),
    ],
    ids=lambda state: state[-40:],
)
def test_a_damaged_state_is_an_error(state):
    with pytest.raises(history.StateUnreadable, match="damaged"):
        history.recall(state, "x")


def test_the_language_of_an_edit_is_remembered_and_used():
    """A file whose suffix does not tell it, or tells another one."""
    content, past = put(ORIGINAL, a=5)
    past = history.recall(history.remember(past), content)
    assert past.language == "json"
    theirs = content.replace("{", r'{"tag": "\ud83d\ude00",')  # no YAML
    assert json.loads(history.give_back(theirs, "yaml", past))["a"] == 1


def test_a_state_of_old_has_no_language():
    state = json.dumps({"version": 1, "pasts": [PAST]})
    assert history.recall(state, "w") == Past("o", "w", "b", language=None)


@pytest.mark.parametrize(
    ("original", "written", "expected"),
    [
        pytest.param({"a": 1}, {"a": 1}, [], id="none"),
        pytest.param({}, {"a": {"b": 1}}, [{"key": ["a", "b"], "before": None}], id="added"),
        pytest.param({"a": "x"}, {"a": "y"}, [{"key": ["a"], "before": "x"}], id="replaced"),
        pytest.param({"a": {"b": 1}}, {}, [{"key": ["a"], "before": {"b": 1}}], id="removed"),
        pytest.param({"a": [1]}, {"a": [1, 2]}, [{"key": ["a"], "before": [1]}], id="list"),
    ],
)
def test_changes(original, written, expected):
    assert list(history.changes(original, written)) == expected
