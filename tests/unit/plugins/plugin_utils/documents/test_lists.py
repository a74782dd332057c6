# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Items of lists are edited in place, tables among them key by key."""

from __future__ import annotations

import random
from collections import Counter
from textwrap import dedent

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    NotEditable,
    canonical,
    origins,
)
from ansible_collections.metal.gpu.tests.unit.support import random_documents

# Written by hand after containerd's stream processors and Docker's address pools.
EDITS = [
    pytest.param(
        "toml",
        lambda data: data["pool"].insert(1, {"base": "10.9.0.0/16", "opts": {"x": 1}}),
        """\
        # pools
        [[pool]] # first
        base = '10.1.0.0/16' # quoted
        size = 0x10

          # second
          [[pool]]
          size = 1_000
          [pool.opts]
          x = 1e3

        [other]
        """,
        """\
        # pools
        [[pool]] # first
        base = '10.1.0.0/16' # quoted
        size = 0x10

        [[pool]]
        base = "10.9.0.0/16"

        [pool.opts]
        x = 1

          # second
          [[pool]]
          size = 1_000
          [pool.opts]
          x = 1e3

        [other]
        """,
        id="toml-a-table-between",
    ),
    pytest.param(
        "toml",
        lambda data: data["pool"].insert(0, {"size": 3}),
        '# pools\n[[pool]]\nbase = "a"\n',
        '[[pool]]\nsize = 3\n\n# pools\n[[pool]]\nbase = "a"\n',
        id="toml-a-table-before-the-comment-of-the-first",
    ),
    pytest.param(
        "toml",
        lambda data: (data["pool"][1].update(size=5, name="n"), data["pool"][1]["opts"].clear()),
        """\
        [[pool]]
        base = 0x0a  # ten
        [[pool]]
        base = 0x0b  # eleven
        size = 1_000  # thousand
        [pool.opts]
        x = 1
        """,
        """\
        [[pool]]
        base = 0x0a  # ten
        [[pool]]
        base = 0x0b  # eleven
        size = 5  # thousand
        name = "n"
        [pool.opts]
        """,
        id="toml-keys-of-a-table",
    ),
    pytest.param(
        "toml",
        lambda data: data["pool"].pop(0),
        "# about a\n[[pool]]\na = 1 # x\n[pool.sub]\nb = 1\n\n# about b\n[[pool]]\na = 0x2\n",
        "# about a\n\n# about b\n[[pool]]\na = 0x2\n",
        id="toml-a-table-out",
    ),
    pytest.param(
        "toml",
        lambda data: data["t"]["pool"].clear(),
        "[t]\nk = 0x1\n[[t.pool]]\na = 1\n[u]\nk = 0x2\n",
        "[t]\nk = 0x1\npool = []\n[u]\nk = 0x2\n",
        id="toml-the-last-table-out",
    ),
    pytest.param(
        "toml",
        lambda data: (data["l"][0].update(a=2), data["l"].append({"a": 4}), data["l"][1].pop("c")),
        """\
        l = [
          {a = 0x1, b = '''b'''}, # one
          # about two
          { a = 1e3, c = 2026-01-01 }
        ]
        """,
        """\
        l = [
          {a = 2, b = '''b'''}, # one
          # about two
          { a = 1e3 },
          {a = 4}
        ]
        """,
        id="toml-inline-tables",
    ),
    pytest.param(
        "toml",
        lambda data: (data["l"].remove("b"), data["l"].insert(1, "n"), data["m"].append("x")),
        'l = [\n  "a", # one\n  "b", # two\n  "c" # three\n]\nm = [\n  # "cri",\n]\n',
        'l = [\n  "a", # one\n  "n",\n  "c" # three\n]\nm = [\n  # "cri",\n  "x"\n]\n',
        id="toml-comments-between-items",
    ),
    pytest.param(
        "yaml",
        lambda data: (data["l"][0].update(b="new"), data["l"].append({"a": 7, "c": [{"d": 1}]})),
        """\
        l:
          # first
          - a: 0x10   # sixteen
            b: 'quoted'

            # about c
            c: "on"  # on
          - {a: 1_000, b: 'x'}  # flow
        m: 1
        """,
        """\
        l:
          # first
          - a: 0x10   # sixteen
            b: new

            # about c
            c: "on"  # on
          - {a: 1_000, b: 'x'}  # flow
          - a: 7
            c:
              - d: 1
        m: 1
        """,
        id="yaml-keys-of-a-table-and-a-new-one",
    ),
    pytest.param(
        "yaml",
        lambda data: data["l"][0].pop("a"),
        "l:\n- a: 1  # one\n  b: 0x2  # two\n- c: 1\n",
        "l:\n- b: 0x2  # two\n- c: 1\n",
        id="yaml-the-key-behind-the-dash",
    ),
    pytest.param(
        "yaml",
        lambda data: data["l"][0].pop("a"),
        "l:\n- a: 1\n  # about b\n  b: 0x2\n- c: 1\n",
        "l:\n-\n  # about b\n  b: 0x2\n- c: 1\n",
        id="yaml-the-key-behind-the-dash-before-a-comment",
    ),
    pytest.param(
        "yaml",
        lambda data: (data["l"].pop(0), data["l"].insert(0, {"n": 1}), data["l"].insert(2, "e")),
        "l:\n# about a\n- a\n# about b\n- b: 0x2  # two\n# after\n",
        'l:\n# about a\n- "n": 1\n# about b\n- b: 0x2  # two\n- e\n# after\n',
        id="yaml-items-before-and-behind",
    ),
    pytest.param(
        "yaml",
        lambda data: (data["l"][0].pop(0), data["l"][0].append(3), data["l"][1].insert(0, "n")),
        "l:\n- - 1\n  - 0x2  # two\n- - 'x'\n",
        "l:\n- - 0x2  # two\n  - 3\n- - \"n\"\n  - 'x'\n",
        id="yaml-lists-in-lists",
    ),
    pytest.param(
        "yaml",
        lambda data: (data["l"].insert(1, "k"), data["l"][2].update(c=3)),
        "l: [a, {b: 'x', c: 0x2}, # two\n    d]\n",
        "l: [a, k, {b: 'x', c: 3}, # two\n    d]\n",
        id="yaml-flow",
    ),
    pytest.param(
        "json",
        lambda data: (data["pools"][0].update(size=24), data["pools"].append({"base": "c"})),
        """\
        {
          "pools": [
            {"base": "a", "size": 1.60e1},
            {
              "base": "\\u0062",
              "size": 1e2
            }
          ]
        }
        """,
        """\
        {
          "pools": [
            {"base": "a", "size": 24},
            {
              "base": "\\u0062",
              "size": 1e2
            },
            {
              "base": "c"
            }
          ]
        }
        """,
        id="json",
    ),
]


@pytest.mark.parametrize(("language", "change", "before", "after"), EDITS)
def test_only_what_changes_in_a_list_is_written(language, change, before, after):
    before, after = dedent(before), dedent(after)
    wanted = documents.parse(before, language)
    change(wanted)
    assert documents.render(before, language, wanted) == after


@pytest.mark.parametrize("mark", ["\ufeff", ""], ids=["byte-order-mark", "none"])
@pytest.mark.parametrize(("language", "change", "before", "after"), EDITS)
def test_what_editors_of_windows_write_stays(language, change, before, after, mark):
    before, after = (mark + dedent(part).replace("\n", "\r\n") for part in (before, after))
    wanted = documents.parse(before, language)
    change(wanted)
    assert documents.render(before, language, wanted) == after


@pytest.mark.parametrize(
    ("language", "text", "change", "message"),
    [
        pytest.param(
            "toml",
            "[[l]]\na = 1\n",
            lambda data: data["l"].append(1),
            "l has tables with headers and cannot hold other values",
            id="toml-a-number-among-tables",
        ),
        pytest.param(
            "toml",
            "l = [{a.b = 1}]\n",
            lambda data: data["l"][0]["a"].update(c=1),
            r"l\[0\] is written through an alias, a merge key or a dotted key",
            id="toml-dotted-keys-between-brackets",
        ),
        pytest.param(
            "yaml",
            "a: &x {k: 1, m: 1}\nl:\n- *x\n",
            lambda data: data["l"][0].update(k=2),
            r"l\[0\] is written through an alias, a merge key or a dotted key",
            id="yaml-alias",
        ),
        pytest.param(
            "yaml",
            "a: &x {k: 1}\nl:\n- <<: *x\n  m: 1\n",
            lambda data: data["l"][0].update(k=2),
            r"l\[0\] is written through an alias, a merge key or a dotted key",
            id="yaml-merged",
        ),
    ],
)
def test_what_cannot_be_edited_in_a_list_is_named(language, text, change, message):
    wanted = documents.parse(text, language)
    change(wanted)
    with pytest.raises(NotEditable, match=message):
        documents.render(text, language, wanted)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([1, 2], [1, 3], [0, None]),
        ([1, 1, 1], [1, 1], [0, 1]),
        ([{"a": 1, "b": 1}, {"a": 2, "b": 2}], [{"a": 2, "b": 3}], [1]),
        ([{"a": 1}], [{"a": 2}], [None]),
        ([{"o": []}, {"o": [], "n": 1}], [{"o": 1}, {"o": [], "n": 2, "k": 1}], [None, 1]),
        ([{"a": {"b": {"c": 1, "d": 1}}}], ["x", {"a": {"b": {"c": 1}}}], [None, 0]),
        ([[1, 2], [3]], [[2], [3, 4]], [0, 1]),
        ([1], [True], [None]),
        ([{"n": i} for i in range(200)], [{"n": i, "x": 1} for i in range(200)], [None] * 200),
    ],
)
def test_items_are_known_again(before, after, expected):
    assert origins(before, after) == expected


def test_a_long_list_takes_no_long_time():
    """Seconds, where comparing all items with all others takes hours."""
    items = ["the same"] * 100_000
    assert origins(items, [*items[:50_000], "new", *items[50_000:]]).count(None) == 1


@pytest.mark.parametrize("language", random_documents.WRITERS)
def test_nothing_is_lost_that_an_edit_is_not_about(language):
    """The same with other seeds: `_check(language, seed)` in a loop; 30,000 passed by hand."""
    refused = sum(not _check(language, seed) for seed in range(SEEDS[language]))
    assert refused < SEEDS[language] / (1 if language == "toml" else SEEDS[language])


SEEDS = {"json": 300, "yaml": 200, "toml": 50}


def _check(language, seed):
    """Change a random document, and back. Tell whether it can be done."""
    writer = random_documents.WRITERS[language](seed)
    text = writer.document()
    content = documents.parse(text, language)
    wanted = random_documents.changed(content, random.Random(seed))
    try:
        result = documents.render(text, language, wanted)
    except NotEditable:  # a list of TOML tables was to get something else
        return False
    left = Counter(map(canonical, random_documents.scalars(wanted).values()))
    for leaf in writer.leaves.values():
        if left[canonical(leaf.value)]:
            lines = [line for line in result.split("\n") if leaf.form in line]
            assert any(leaf.comment in line for line in lines), (seed, leaf)
            assert leaf.above in result[: result.index(leaf.form)], (seed, leaf)
    again = documents.render(result, language, content)
    assert documents.parse(again, language) == content
    return True
