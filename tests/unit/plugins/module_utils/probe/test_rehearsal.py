# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.rehearsal import FOLDER, rehearse

NOW = 1_800_000_000.0


class Programs:
    """Stand-ins for programs: what they were asked, and what was in the folder."""

    def __init__(self, **answers: tuple[int, str, str]) -> None:
        self.answers, self.asked = answers, list[list[str]]()
        self.seen: dict[str, str] = {}

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.asked.append(argv)
        folder = Path(argv[1])
        self.seen = {
            str(path.relative_to(folder)): path.read_text()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        return self.answers.get(argv[0], (0, f"by {argv[0]}", ""))


def asked(run: Programs, tmp_path: Path, **request: Any) -> dict[str, Any]:
    found = rehearse(request, run, NOW, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.name.startswith("metal-gpu-")] == []
    return found


def test_files_are_beside_those_of_the_node_and_win(tmp_path: Path) -> None:
    node = tmp_path / "node"
    (node / "partial").mkdir(parents=True)
    for name in ("a.sources", "ours.sources", "lock"):
        (node / name).write_text("the node's")
    programs = Programs()
    found = asked(
        programs,
        tmp_path,
        links=[("sources", str(node)), ("none", str(tmp_path / "absent"))],
        copies=[("cache", str(node)), ("other", str(tmp_path / "absent"))],
        files={"sources/ours.sources": "ours", "conf": f"in {FOLDER}/sources"},
        programs=[{"argv": ["apt", FOLDER, f"--of={FOLDER}/conf"]}],
    )
    assert found == {"printed": "by apt", "error": None, "answers": {}}
    ((_apt, folder, option),) = programs.asked
    assert option == f"--of={folder}/conf"
    assert programs.seen == {
        "cache/a.sources": "the node's",
        "cache/lock": "the node's",
        "cache/ours.sources": "the node's",
        "conf": f"in {folder}/sources",
        "sources/a.sources": "the node's",
        "sources/ours.sources": "ours",
    }
    assert {path.read_text() for path in node.glob("*s*")} == {"the node's"}


def test_only_root_reads_the_sources(tmp_path: Path) -> None:
    modes = []

    def look(argv: list[str]) -> tuple[int, str, str]:
        modes.extend(os.stat(one).st_mode & 0o777 for one in (argv[0], f"{argv[0]}/ours"))
        return 0, "", ""

    rehearse({"files": {"ours": "password"}, "programs": [{"argv": [FOLDER]}]}, look, NOW, tmp_path)
    assert modes == [0o711, 0o600]


def test_first_failure_ends_it_and_is_explained(tmp_path: Path) -> None:
    programs = Programs(update=(100, "Get:1", "E: no"), madison=(0, "x | 1", ""))
    found = asked(
        programs,
        tmp_path,
        programs=[{"argv": ["update", FOLDER]}, {"argv": ["install", FOLDER]}],
        answers={"versions": ["madison", FOLDER]},
        tells={"policy": ["policy", FOLDER]},
    )
    assert found == {"printed": "Get:1", "error": "E: no", "answers": {"versions": "x | 1"}}
    assert [argv[0] for argv in programs.asked] == ["update", "madison"]


def test_warnings_before_a_failure_belong_to_it(tmp_path: Path) -> None:
    """apt update succeeds without an archive that is down."""
    warning = "W: Failed to fetch http://archive.example/InRelease  Could not connect"
    found = asked(
        Programs(update=(0, "Err:1\n", warning), install=(100, "", "E: no")),
        tmp_path,
        programs=[{"argv": ["update", FOLDER]}, {"argv": ["install", FOLDER]}],
        answers={"versions": ["madison", FOLDER]},
    )
    assert found["error"] == "E: no"
    assert found["answers"] == {"update": f"Err:1\n{warning}", "versions": "by madison"}


def test_folder_that_changes_while_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = tmp_path / "node"
    (node / "folder").mkdir(parents=True)
    (node / "gone").symlink_to("/nonexistent/x")
    (tmp_path / "elsewhere").write_text("the node's")
    (node / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("a.solv", "b.solv", "folder/c.solv"):
        (node / name).write_text("text")

    read = shutil.copyfile

    def copy(source: Any, *more: Any, **options: Any) -> Any:
        if os.fspath(source).endswith(("b.solv", "c.solv")):
            os.unlink(source)
        return read(source, *more, **options)

    monkeypatch.setattr(shutil, "copyfile", copy)
    programs = Programs()
    asked(programs, tmp_path, copies=[("cache", str(node))], programs=[{"argv": ["dnf", FOLDER]}])
    # A link would let dnf write the node's file.
    assert programs.seen == {"cache/a.solv": "text", "cache/link": "the node's"}


def test_file_that_cannot_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "a.solv").write_text("text")

    def fail(*_args: Any, **_options: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(OSError, match="No space left"):
        asked(Programs(), tmp_path, copies=[("cache", str(tmp_path / "node"))], programs=[])


def test_success_tells_more(tmp_path: Path) -> None:
    found = asked(
        Programs(),
        tmp_path,
        programs=[{"argv": ["install", FOLDER]}],
        answers={"versions": ["madison", FOLDER]},
        tells={"policy": ["policy", FOLDER]},
    )
    assert found["answers"] == {"policy": "by policy"}


@pytest.mark.parametrize("words", ["Operation aborted.", "Error: nothing provides x"])
def test_dnf_that_declines_has_not_failed(tmp_path: Path, words: str) -> None:
    program = {"argv": ["dnf", FOLDER], "success": "Operation aborted"}
    found = asked(Programs(dnf=(1, "table", words)), tmp_path, programs=[program])
    assert (found["error"] is None) is words.startswith("Operation")


@pytest.mark.parametrize(
    ("ages", "is_read"),
    [
        pytest.param({}, True, id="no index"),
        pytest.param({"stamp": 10}, False, id="new"),
        pytest.param({"stamp": 4000}, True, id="old"),
        pytest.param({"stamp": 4000, "lists": 10}, True, id="the first one counts"),
        pytest.param({"lists": 10}, False, id="no stamp"),
    ],
)
def test_index_is_read_if_it_is_old(tmp_path: Path, ages: dict[str, int], is_read: bool) -> None:
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (NOW - age, NOW - age))
    programs = Programs()
    asked(
        programs,
        tmp_path,
        old={"files": [str(tmp_path / "stamp"), str(tmp_path / "lists")], "seconds": 3600},
        programs=[{"argv": ["update", FOLDER], "if_old": True}, {"argv": ["install", FOLDER]}],
    )
    assert ("update" in [argv[0] for argv in programs.asked]) is is_read
