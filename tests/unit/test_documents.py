# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Documents name findings, steps, tests and files that exist, and show files that are valid."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from ansible_collections.metal.gpu.plugins.module_utils.findings import CATALOGUE, DOCUMENT
from ansible_collections.metal.gpu.plugins.module_utils.verdict.layers import NAMES
from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import (
    plan as plan_nvidia_driver,
)
from metal_gpu.terminal.main import app
from metal_lab.debs import EMPTY
from metal_lab.packages import compose

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
CHANGES = ROOT / "docs/what-it-does.md"
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))
POLICIES = [ROOT / "SECURITY.md", ROOT / "CODE_OF_CONDUCT.md"]
DOCUMENTS = [README, CONTRIBUTING, *POLICIES, *sorted(ROOT.glob("docs/*.md")), *DECISIONS]
TROUBLESHOOTING = (ROOT / DOCUMENT).read_text()


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in target:
            continue
        file, _hash, anchor = target.partition("#")
        linked = path.parent / file if file else path
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


def test_status_is_that_of_the_version() -> None:
    """The first release changes both."""
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text())["version"]
    status = re.search(r"^\*\*Status: (\S+), not on PyPI", README.read_text(), re.MULTILINE)
    assert version.endswith("-dev") == bool(status)


def test_nobody_is_told_to_install_a_name_that_is_not_ours() -> None:
    """Who registers a name that is not registered yet gets root on nodes."""
    named = re.compile(
        r"(?:pip|pipx|uv|collection) [\w -]*install (?:[^\n`]*['\" ])?metal[.-]gpu(?![\w-])"
    )
    sources = [path for name in ("src", "plugins", "roles") for path in (ROOT / name).rglob("*.*")]
    written = [*DOCUMENTS, *(path for path in sources if path.suffix in (".py", ".md", ".yml"))]
    assert [name(path) for path in written if named.search(path.read_text())] == []


def commands(path: Path) -> list[list[str]]:
    """Return the words of each command in the blocks for a shell."""
    blocks = "".join(re.findall(r"```shell\n(.*?)```", path.read_text(), re.DOTALL))
    return [shlex.split(line, comments=True) for line in blocks.splitlines()]


@pytest.mark.parametrize("words", [one for one in commands(README) if one[0] == "metal-gpu"])
def test_commands_of_the_readme_have_their_options(words: list[str]) -> None:
    name, *arguments = words[1:]
    get_command(app).commands[name].make_context(name, arguments)


def test_readme_installs_as_the_tests_of_the_wheel() -> None:
    """tests/install runs this command, and make targets exist."""
    tested = (ROOT / "tests/install/test_install.py").read_text()
    (installed,) = [one for one in commands(README) if one[0] == "uv"]
    option = '"--with-executables-from", "ansible-core"'
    assert installed == ["uv", "tool", "install", *json.loads(f"[{option}]"), ".[ansible]"]
    assert option in tested
    makefile = (ROOT / "Makefile").read_text()
    targets = [one[1] for one in commands(README) if one[0] == "make"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_readme_has_every_guide() -> None:
    linked = {*re.findall(r"\]\((docs/[\w-]+\.md)", README.read_text())}
    assert {name(path) for path in ROOT.glob("docs/*.md")} == linked


def test_readme_names_the_systems_of_the_laboratory() -> None:
    """docs/support.md has the levels, which are made from the records."""
    support = (ROOT / "docs/support.md").read_text()
    exercised = re.findall(r"^\| \[([^]]+)\]\(\S+\) \| exercised \|", support, re.MULTILINE)
    (cell,) = re.findall(r"^\| systems, \S+ \| \[([^]]+)\]", README.read_text(), re.MULTILINE)
    families = re.findall(r"(\w+) ([\d.]+) and ([\d.]+)", cell)
    assert exercised == [f"{family} {one}" for family, *both in families for one in both]


def test_page_of_what_it_does_names_findings_that_exist() -> None:
    codes = set(
        re.findall(r"(?:`|^)([A-Z]+_[A-Z_]+)(?:`| gpu-\d)", CHANGES.read_text(), re.MULTILINE)
    )
    assert len(codes) >= 20
    assert codes <= {*CATALOGUE}


def test_page_of_what_it_does_shows_the_steps_of_the_driver() -> None:
    shown = re.findall(r'^        "([^"(]+) \(', CHANGES.read_text(), re.MULTILINE)
    assert len(shown) > 5
    assert shown == [step.title for step in plan_nvidia_driver.STEPS if step.title in shown]


def test_page_of_what_it_does_shows_where_a_gpu_is_lost() -> None:
    line = rf"^gpu-1: GPU \S+ \(GPU-\S+\): {NAMES['kernel']}, but not {NAMES['nvml']}: see "
    assert re.search(line, CHANGES.read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", [*DOCUMENTS, *sorted(ROOT.glob("roles/*/README.md"))], ids=name)
def test_examples_read_files_beside_the_inventory(path: Path) -> None:
    """Ansible searches for another relative path beside the playbook, in the collection."""
    text = path.read_text()
    assert re.findall(r"lookup\('(?:ansible\.builtin\.)?file', *['\"][^/]", text) == []


def test_contributing_names_files_that_exist() -> None:
    folders = "docs|inventories|molecule|playbooks|plugins|roles|scripts|tests"
    paths = set(re.findall(rf"`((?:{folders})/[\w./-]+)`", CONTRIBUTING.read_text()))
    named = {path for path in paths if not re.search(r"\b(ROLE|TOOL|ENGINE|COMPONENT)\b", path)}
    assert len(named) > 20
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("path", DECISIONS, ids=name)
def test_heading_has_the_number_of_the_file(path: Path) -> None:
    (heading,) = re.findall(r"^# (\d+): ", path.read_text(), re.MULTILINE)
    assert path.name.startswith(f"{heading}-")


# --- the files for Compose -----------------------------------------------------------------------

COMPOSE = yaml.safe_load((ROOT / "tests/recorded/image_needs.yml").read_text())["compose"]
DOCKER_HOSTS = (ROOT / "docs/docker-hosts.md").read_text()
ON_COMPOSE = DOCKER_HOSTS.partition("\n## Compose\n")[2].partition("\n## ")[0]


def services() -> Iterator[dict[str, Any]]:
    for text in re.findall(r"```yaml\n(.*?)```", ON_COMPOSE, re.DOTALL):
        yield from yaml.safe_load(text)["services"].values()


def at(service: Any, path: str) -> list[Any]:
    for key in path.split("."):
        service = service.get(key, {})
    return [*service]


def test_services_for_compose_ask_for_gpus_as_the_specification_has_it() -> None:
    by_cdi, reserved = (
        [device for service in services() for device in at(service, COMPOSE[way]["value"])]
        for way in ("cdi", "reservation")
    )
    assert all(re.fullmatch(r"nvidia\.com/gpu=\w+", name) for name in by_cdi)
    for device in reserved:
        assert {*COMPOSE["required"]["value"]} <= device.keys()
        assert len({*COMPOSE["exclusive"]["value"]} & device.keys()) <= 1
    assert by_cdi
    assert reserved


def test_page_says_that_nothing_has_run_compose() -> None:
    """The laboratory has an empty file in place of the program."""
    assert "No test of this project has run Docker Compose." in ON_COMPOSE
    (plugin,) = compose("bookworm").binaries.values()
    assert plugin == EMPTY


# --- the index by symptom ------------------------------------------------------------------------

LINK = re.compile(r"\[([A-Z0-9_]+)\]\(#(\w+)\)")


def symptoms() -> list[tuple[str, str]]:
    """Return the rows of the index: what an admin sees, and the sections about it."""
    index = TROUBLESHOOTING.split("\n## Find it by what you see\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", index, re.MULTILINE)
    return [row for row in rows if row[0] not in ("you see", "---")]


def strings(data: object) -> list[str]:
    """Return all texts of a record."""
    if isinstance(data, dict):
        return strings([*data.values()])
    if isinstance(data, list):
        return [text for item in data for text in strings(item)]
    return [str(data)]


def one_line(text: str) -> str:
    return " ".join(text.split())


@cache
def evidence() -> str:
    """Return every text that a record or a fixture has."""
    folders = ("tests/recorded", "tests/unit/fixtures")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.*"))]
    records = [yaml.safe_load(path.read_text()) for path in files if path.suffix == ".yml"]
    printed = [path.read_text() for path in files if path.suffix == ".txt"]
    return "\n".join(map(one_line, [*strings(records), *printed]))


def section(code: str) -> str:
    return one_line(TROUBLESHOOTING.split(f"\n### {code}\n")[1].split("\n##")[0])


def test_symptoms_lead_to_one_to_three_sections() -> None:
    assert len(symptoms()) > 70
    for seen, sections in symptoms():
        codes = LINK.findall(sections)
        assert 1 <= len(codes) <= 3, seen
        assert all(code in CATALOGUE and anchor == code.lower() for code, anchor in codes), seen


@pytest.mark.parametrize("row", symptoms(), ids=lambda row: row[0])
def test_symptoms_quote_what_somebody_has_seen(row: tuple[str, str]) -> None:
    """A part in backquotes is in a linked section, in a record or in a fixture."""
    seen, sections = row
    texts = [*(section(code) for code, _anchor in LINK.findall(sections)), evidence()]
    for quoted in re.findall(r"`([^`]+)`", seen):
        words = re.compile(".{1,80}?".join(re.escape(part) for part in quoted.split("…")))
        assert any(map(words.search, texts)), quoted
