# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing is ever lost of the files that engines and kubelets have: collected and random ones."""

from __future__ import annotations

import os
import re
from collections import Counter

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents import history
from ansible_collections.metal.gpu.tests.unit.support import config_files, random_documents

# `make test-full` asks for ten times as many mutations, and gets ten times as many files.
RANDOM_FILES = max(200, int(os.environ.get("METAL_GPU_MUTATIONS", "2000")) // 10)
COLLECTED = list(config_files.collected())
FOREIGN = {"x-of-another-tool": {"a": 1}}


def comments(text):
    """Return the comments of a text, in their order. A sign in quotes counts as one, too."""
    return re.findall(r"#[^\n\r]*", text)


def is_within(part, whole):
    """Return whether a list has the items of another one, in the same order."""
    rest = iter(whole)
    return all(item in rest for item in part)


def check(file):
    language = file.language
    written = history.change(file.text, language, file.edits)
    assert written is not None

    # What the edit is not about keeps its value and its place, and every comment stays.
    before, after = (
        random_documents.scalars(documents.read(text, language).content)
        for text in (file.text, written)
    )
    wanted = documents.apply(documents.parse(file.text, language), file.edits)
    ours = {place for place, value in before.items() if scalar_at(wanted, place) != [value]}
    foreign = [place for place in before if place not in ours]
    assert [place for place in after if place in set(foreign)] == foreign
    assert {place: after[place] for place in foreign} == {place: before[place] for place in foreign}
    gone = {"# needed"}  # on the line of a gate that is removed
    kept = [one for one in comments(file.text) if one.strip() not in {*gone, "# gate"}]
    assert is_within(kept, comments(written))

    # The second time, nothing changes.
    assert history.change(written, language, file.edits) == written

    # The removal gives back the bytes, also from the history as it is stored.
    past = history.extend(None, file.text, language, written=written)
    stored = history.recall(history.remember(past), written)
    assert history.restore(written, language, stored) == file.text

    # Also if another tool has added something, which stays with its comments.
    theirs = documents.render(written, language, {**documents.parse(written, language), **FOREIGN})
    rest = history.restore(theirs, language, stored)
    expected = {**documents.parse(file.text, language), **FOREIGN}
    assert documents.parse(rest, language) == expected
    assert is_within(kept, comments(rest))

    # Another tool writes its own text again and again. Ours comes back, and goes without a trace.
    again = history.change(file.text, language, file.edits)
    assert again == written
    past = history.extend(stored, file.text, language, written=again)
    if not file.edits.remove and not file.edits.discard:
        assert history.restore(again, language, past) == file.text


def scalar_at(content, path):
    for key in path:
        try:
            content = content[key]
        except (LookupError, TypeError):
            return []
    return [content]


def test_there_are_enough_files():
    assert len(COLLECTED) >= 40
    folders = Counter(file.name.partition("/")[0] for file in COLLECTED)
    assert min(folders.values()) >= 5, folders


@pytest.mark.parametrize("ending", ["registries.yaml", "hosts.toml", "registries.conf"])
def test_registries_of_every_engine_are_among_them(ending):
    kinds = {"registries.yaml": ".txt", "hosts.toml": ".toml", "registries.conf": ".conf"}
    names = [file.name for file in COLLECTED if file.name.startswith("registries/")]
    assert len([name for name in names if name.endswith(kinds[ending])]) >= 3


@pytest.mark.parametrize("file", COLLECTED, ids=[file.name for file in COLLECTED])
def test_collected_file(file):
    check(file)


@pytest.mark.parametrize("kind", range(len(config_files.KINDS)), ids=map(str, config_files.KINDS))
def test_random_files(kind):
    for seed in range(kind, RANDOM_FILES, len(config_files.KINDS)):
        file = config_files.generated(seed)
        try:
            check(file)
        except Exception as error:
            error.add_note(f"generated({seed}):\n{file.text}")
            raise
