# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os

import pytest

from metal_lab import cache


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "CACHE", tmp_path)


def write(name):
    return lambda out: (out / name).write_text(name)


def test_builds_once_per_key():
    first = cache.built("thing", "a", "a thing", write("one"))
    again = cache.built("thing", "a", "a thing", write("two"))
    assert first == again
    assert [path.name for path in first.iterdir()] == ["one"]


def test_crash_leaves_nothing_that_looks_finished():
    def crash(out):
        (out / "half").touch()
        raise SystemExit("out of disk")

    with pytest.raises(SystemExit, match="out of disk"):
        cache.built("thing", "a", "a thing", crash)
    folder = cache.built("thing", "a", "a thing", write("whole"))
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_only_what_is_long_unused_is_removed():
    old = cache.built("thing", "old", "a thing", write("x"))
    recent = cache.built("thing", "recent", "a thing", write("x"))
    os.utime(old, (0, 0))
    cache.built("thing", "new", "a thing", write("x"))
    assert not old.exists()
    assert recent.exists()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda folder: (folder / "b").write_text("2"), id="content"),
        pytest.param(lambda folder: (folder / "b").rename(folder / "c"), id="name"),
        pytest.param(lambda folder: (folder / "sub" / "d").write_text(""), id="new-file"),
    ],
)
def test_digest_sees(tmp_path, change):
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "b").write_text("1")
    before = cache.digest("text", folder)
    assert before == cache.digest("text", folder)
    change(folder)
    assert cache.digest("text", folder) != before
