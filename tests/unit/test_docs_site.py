# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The site takes every document, and fails at a broken link. `make docs` builds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import command_page
import docs_site
from docs_site import SEARCHED, Pages, foreign, lists, menu, unsearched

ROOT = Path(__file__).resolve().parents[2]


def test_menu_has_every_document() -> None:
    pages = {page for section in menu().values() for page in section}
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    top = {path.name for path in ROOT.glob("*.md")}
    roles = {f"roles/{path.name}/README.md" for path in (ROOT / "roles").iterdir()}
    assert written | top | roles <= pages


def test_page_of_the_command_is_current() -> None:
    assert command_page.PAGE.read_text() == command_page.page(), "run `make command`"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docs/decisions").mkdir(parents=True)
    (tmp_path / "docs/decisions/001-plan.md").write_text("# 001: Plan\n")
    (tmp_path / "docs/picture.svg").write_text("<svg/>")
    monkeypatch.setattr(docs_site, "ROOT", tmp_path)
    return tmp_path


def add(checkout: Path, text: str) -> tuple[Pages, str]:
    (checkout / "README.md").write_text(text)
    pages = Pages(checkout / "site")
    pages.add("README.md")
    return pages, (checkout / "site/README.md").read_text()


def test_what_a_page_links_to_comes_along(checkout: Path) -> None:
    pages, text = add(
        checkout, "![a](docs/picture.svg) [b](docs/decisions) [c](https://x.example)\n"
    )
    assert text == "![a](docs/picture.svg) [b](docs/decisions/index.md) [c](https://x.example)\n"
    assert (checkout / "site/docs/picture.svg").read_text() == "<svg/>"
    assert "[001-plan.md](001-plan.md)" in (checkout / "site/docs/decisions/index.md").read_text()
    assert pages.broken == []


def test_decisions_are_not_searched(checkout: Path) -> None:
    pages = Pages(checkout / "site")
    pages.add("docs/decisions/001-plan.md")
    text = (checkout / "site/docs/decisions/001-plan.md").read_text()
    assert text.startswith("---\nsearch:\n  exclude: true\n---\n\n# 001: Plan")


@pytest.mark.parametrize("link", ["docs/nowhere.md", "../outside.md", "docs/nowhere.svg"])
def test_broken_link_is_named_with_its_page(checkout: Path, link: str) -> None:
    pages, _text = add(checkout, f"[a]({link})\n")
    assert pages.broken == [f"README.md: {link} leads nowhere"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("text\n- item\n- item", "text\n\n- item\n- item"),
        ("1. item\n   more\n\n   | a |", "1. item\n    more\n\n    | a |"),
        ("- item\n  more\ntext\n  verse", "- item\n    more\ntext\n  verse"),
        ("```\ntext\n- no item\n```", "```\ntext\n- no item\n```"),
    ],
    ids=["a list after a text", "a table in an item", "a list ends", "code"],
)
def test_lists_as_python_markdown_wants_them(written: str, shown: str) -> None:
    assert "\n".join(lists(written)) == shown


@pytest.mark.parametrize(
    ("page", "is_foreign"),
    [
        ('<script src="https://cdn.example/a.js">', True),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', True),
        ('<pre class="mermaid"><code>', True),
        ('<img alt="a" src="https://img.example/a.png">', True),
        ('<a href="https://docs.example">', False),
        ('<script src="assets/a.js">', False),
    ],
)
def test_page_that_needs_another_host(tmp_path: Path, page: str, is_foreign: bool) -> None:
    (tmp_path / "index.html").write_text(page)
    assert bool([*foreign(tmp_path)]) == is_foreign


FOUND = [{"location": place, "title": words, "text": ""} for words, place in SEARCHED.items()]


@pytest.mark.parametrize(
    ("sections", "problems"),
    [
        (None, 1),
        ([], len(SEARCHED)),
        ([{**one, "title": "GPU", "text": one["title"]} for one in FOUND], len(SEARCHED)),
        (FOUND, 0),
    ],
    ids=["no index", "an empty one", "without the titles", "with them"],
)
def test_search_finds_what_people_type(
    tmp_path: Path, sections: list[dict[str, str]] | None, problems: int
) -> None:
    if sections is not None:
        (tmp_path / "search").mkdir()
        (tmp_path / "search/search_index.json").write_text(json.dumps({"docs": sections}))
    assert len([*unsearched(tmp_path)]) == problems
