# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Builds the documents as a site that needs nothing from elsewhere: `make docs`.

usage: .venv-docs/bin/python scripts/docs_site.py [FOLDER]

MkDocs wants all pages in one folder. So this program copies the documents, with what they link
to, to the same places in a folder of their own. A link that leads nowhere fails, and so does a page
that would load something from another host, and a search that does not find a finding.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
# What the menu has, in this order. A pattern stands for its files in alphabetical order. A page has
# the title before the colon, or else its heading. The search prefers the words of titles.
MENU = {
    "Start": [
        "Quickstart: README.md",
        "Install, and what the nodes need: docs/install.md",
        "docs/what-it-does.md",
        "Uninstall (teardown): docs/teardown.md",
    ],
    "Add nodes": ["docs/scan.md", "docs/fleet.md", "docs/docker-hosts.md"],
    "Upgrade": [
        "Upgrade the driver or the kernel: docs/upgrade.md",
        "docs/driver.md",
        "docs/fabric.md",
    ],
    "My pod is pending": ["Troubleshooting, pending pods: docs/troubleshooting.md"],
    "Air gap": ["Air gap (airgap, offline): docs/air-gap.md", "docs/registries.md"],
    "Other tools": [
        "k3s, Kubespray, GPU Operator: docs/coexistence.md",
        "CI, exit codes, JSON: docs/ci.md",
        "docs/isolation.md",
    ],
    "Reference": [
        "Supported systems: docs/support.md",
        *("docs/command.md", "docs/terminal.md", "docs/library.md"),
        "roles/*/README.md",
        "docs/*.md",
    ],
    "Project": [
        *("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"),
        "tests/recorded/README.md",
    ],
    "Decisions": ["docs/decisions/*.md"],
}
LINK = re.compile(r"(?<=\]\()[^)\s]+(?=\))")
STYLE = """\
.md-grid { max-width: 76rem; }
.md-typeset td code { white-space: nowrap; }
.md-typeset pre > code { white-space: pre-wrap; }
@media (max-width: 44em) {
  .md-typeset table:not([class]) :is(td, th) { min-width: 5rem; padding: .4em .5em; }
  .md-typeset td { overflow-wrap: anywhere; }
  .md-typeset td code { white-space: normal; }
}
"""
# What readers type, and which title of the search has it.
SEARCHED = {
    "GPU_FAULTY": "docs/troubleshooting.html#gpu_faulty",
    "quickstart": "index.html",
    "install": "docs/install.html",
    "add nodes": "docs/fleet.html",
    "upgrade the driver": "docs/upgrade.html",
    "pending pods": "docs/troubleshooting.html",
    "airgap": "docs/air-gap.html",
    "uninstall": "docs/teardown.html",
    "supported systems": "docs/support.html",
}
UNSEARCHED = ("docs/decisions/", "CHANGELOG.md")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
# What a browser loads with a page, other than a link that the reader follows.
FOREIGN = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'> ]+"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*\bhref=["']?(?:https?:)?//[^"'> ]+"""
    r"""|<(?:pre|div) class=["']?mermaid"""  # the theme loads its program from a host of its own
    r"""|url\(["']?(?:https?:)?//[^)]+"""
)


def menu() -> dict[str, dict[str, str]]:
    """Return the pages of each section with their titles. A page is in its first place only."""
    shown: dict[str, dict[str, str]] = {}
    seen: set[str] = set()
    for section, entries in MENU.items():
        shown[section] = {}
        for entry in entries:
            named, _colon, pattern = entry.rpartition(": ")
            for path in sorted(ROOT.glob(pattern)):
                page = path.relative_to(ROOT).as_posix()
                if page not in seen:
                    shown[section][page] = named or title(path)
                    seen.add(page)
    return shown


def lists(text: str) -> Iterator[str]:
    """Yield the lines with lists as Python-Markdown wants them.

    The text of an item has to be indented by four spaces, and an empty line before the list.
    """
    width, fenced, before = 0, False, ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if not fenced and (item := ITEM.match(line)):
            if not width and before.strip():
                yield ""
            width = len(item.group())
        elif line.strip() and not line.startswith(" " * (width or 1)):
            width = 0
        indented = width and line.startswith(" " * width)
        yield " " * (4 - width) + line if indented else line
        before = line


class Pages:
    """The folder from which MkDocs builds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broken: list[str] = []

    def add(self, name: str) -> None:
        """Copy a page, and what it links to."""
        source = ROOT / name

        def follow(link: re.Match[str]) -> str:
            return self._follow(name, link.group())

        text = LINK.sub(follow, source.read_text(encoding="utf-8"))
        self._write(name, "\n".join(lists(text)) + "\n")

    def _follow(self, page: str, link: str) -> str:
        """Return the link as the site has it."""
        target, hash_, anchor = link.partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return link
        path = Path(os.path.normpath(ROOT / page / ".." / target))
        if not path.is_relative_to(ROOT) or not path.exists():
            self.broken.append(f"{page}: {link} leads nowhere")
        elif path.is_dir():
            return f"{target.rstrip('/')}/{self._list(path)}"
        elif path.suffix != ".md":
            self._copy(path)
        elif not (self.folder / path.relative_to(ROOT)).exists() and not is_in_menu(path):
            self.add(path.relative_to(ROOT).as_posix())
        return target + hash_ + anchor

    def _list(self, folder: Path) -> str:
        """Make a page of a folder without one, and return its name."""
        if (folder / "README.md").exists():
            return "README.md"
        name = folder.relative_to(ROOT).as_posix()
        place = f"{name}/index.md"
        if not (self.folder / place).exists():
            names = sorted(one.name for one in folder.iterdir() if one.is_file())
            rows = "\n".join(f"- [{one}]({one})" for one in names)
            self._write(place, f"# {name}\n\n{rows}\n")
            for one in names:
                if not one.endswith(".md"):
                    self._copy(folder / one)
        return "index.md"

    def _copy(self, path: Path) -> None:
        target = self.folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)

    def _write(self, name: str, text: str) -> None:
        if name.startswith(UNSEARCHED):  # their words would hide the guides
            text = f"---\nsearch:\n  exclude: true\n---\n\n{text}"
        (target := self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def is_in_menu(path: Path) -> bool:
    """Tell whether a page is copied anyway."""
    return any(path.relative_to(ROOT).as_posix() in pages for pages in menu().values())


def title(page: Path) -> str:
    """Return the first heading, without the marks of code."""
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1].replace("`", "") if heading else page.name


def build(pages: Path, site: Path, sections: dict[str, dict[str, str]]) -> None:
    """Build the site. MkDocs ends the program at a warning."""
    logging.basicConfig(level=logging.WARNING, format="docs: %(message)s")
    from mkdocs.commands.build import build as build_site
    from mkdocs.config import load_config

    config = load_config(
        str(ROOT / "mkdocs.yml"),
        docs_dir=str(pages),
        site_dir=str(site),
        strict=True,
        nav=[
            {section: [{shown: page} for page, shown in named.items()]}
            for section, named in sections.items()
        ],
        extra_css=["site.css"],
    )
    build_site(config)


def foreign(site: Path) -> Iterator[str]:
    """Yield what a page or a style sheet would load from another host."""
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        for found in FOREIGN.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)}: {found}"


def unsearched(site: Path) -> Iterator[str]:
    """Yield why a reader who searches does not find a page."""
    name = "search/search_index.json"
    index = site / name
    if not index.exists():
        yield f"{name} is missing"
        return
    sections = json.loads(index.read_text(encoding="utf-8"))["docs"]
    titles = {one["location"]: one["title"].lower() for one in sections}
    for words, place in SEARCHED.items():
        if words.lower() not in titles.get(place, ""):
            yield f"{name} has no {words} in the title of {place}"


def main() -> int:
    """Return 1 if a link is broken, a page needs another host, or the search finds nothing."""
    site = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve()
    sections = menu()
    with TemporaryDirectory(prefix="site-of-metal-gpu-") as folder:
        pages = Pages(Path(folder))
        for names in sections.values():
            for name in names:
                pages.add(name)
        problems = pages.broken
        if not problems:
            menued = {name for names in sections.values() for name in names}
            others = sorted(
                path.relative_to(folder).as_posix() for path in pages.folder.rglob("*.md")
            )
            sections["More"] = {
                name: title(pages.folder / name) for name in others if name not in menued
            }
            (pages.folder / "site.css").write_text(STYLE)
            build(pages.folder, site, sections)
            problems = [*foreign(site), *unsearched(site)]
    for problem in problems:
        print(f"docs: {problem}", file=sys.stderr)
    if not problems:
        count = sum(1 for _page in site.rglob("*.html"))
        print(f"docs: clean, {count} pages in {site}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
