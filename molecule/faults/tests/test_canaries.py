# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""No secret of an admin gets anywhere that it was not before, at -vvvv and with --diff neither."""

from __future__ import annotations

import re
from urllib.parse import unquote

import canaries
import pytest

STATES = "/var/lib/metal-gpu/config_document/"
RUNS = ("verify, of virgin nodes", "refused", "site", "node", "verify")


def test_runs_came_to_their_ends(story):
    codes = {name: run.returncode for name, run in story.runs.items()}
    assert {name: codes[name] for name in ("site", "node", "verify")} == dict.fromkeys(
        ("site", "node", "verify"), 0
    )
    assert codes["refused"] != 0
    words = story.runs["refused"].words
    for node in ("gpu-1", "gpu-2"):
        assert re.search(rf"fatal: \[{node}\].*REPOSITORY_UNREACHABLE {node}: ", words)
    assert "fatal: [gpu-3]" in words


def test_secrets_were_used(laboratory, story):
    """Else nobody could have shown them: each node has read from the mirror with its password."""
    assert story.readers >= set(laboratory.addresses.values())
    for run in ("site", "node"):
        assert "***" in story.runs[run].output
    edited = {
        "gpu-1": [
            "/etc/containerd/config.toml",
            "/var/lib/kubelet/config.yaml",
            "/etc/default/kubelet",
            "/etc/systemd/system/kubelet.service.d/20-gpu.conf",
        ],
        "gpu-2": ["/etc/containerd/config.toml"],
        "gpu-3": ["/etc/docker/daemon.json"],
    }
    for node, paths in edited.items():
        assert set(paths) <= set(story.planted[node])
        for path in paths:
            modified = laboratory.host(node).file(path).mtime.timestamp()
            assert modified > float(story.started)


@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_printed(story, run):
    lines = story.runs[run].output.splitlines()
    assert {
        place: [line[:200] for line in lines if canaries.shown({place: secret}, line)][:3]
        for place, secret in story.canaries.items()
        if canaries.shown({place: secret}, "\n".join(lines))
    } == {}


def test_nothing_is_in_the_results(story):
    """As they are handed to callbacks, which may keep them."""
    lines = story.results.read_text().splitlines()
    assert len(lines) > 100
    found = [(line[:100], canaries.shown(story.canaries, line)) for line in lines]
    assert [(line, places) for line, places in found if places] == []


def test_nothing_is_kept_on_the_controller(story):
    files = [path for path in story.home.rglob("*") if path.is_file()]
    texts = {path: path.read_text(errors="replace") for path in files}
    assert [path for path, text in texts.items() if canaries.shown(story.canaries, text)] == []


@pytest.mark.parametrize("node", canaries.NODES)
def test_nothing_is_in_the_journal(laboratory, story, node):
    assert canaries.journal(laboratory, node, story.canaries, story.started) == []


@pytest.mark.parametrize("node", canaries.NODES)
def test_nothing_is_in_a_command_line(story, node):
    """But for the engine's, where the admin has written it."""
    expected = {"/usr/sbin/dockerd"} if node == "gpu-3" else set()
    assert story.programs[node] == expected


@pytest.mark.parametrize("node", canaries.NODES)
def test_copies_can_be_read_by_nobody_else(laboratory, story, node):
    """A file that was edited has a copy and a history; a repository's file has its password."""
    planted, found = story.planted[node], canaries.copies(laboratory, node)
    assert planted.keys() <= found.keys()
    assert {path: found[path] for path in planted} == planted  # with the same modes
    for path, copy in found.items():
        if path in planted:
            continue
        assert copy.owner == "root"
        if re.fullmatch(r"/etc/apt/sources\.list\.d/metal-gpu-[\w-]+\.sources", path):
            assert copy.mode == 0o600
            continue
        original = original_of(path)
        assert original in planted, path
        assert copy.mode & ~planted[original].mode == 0, path


def original_of(path: str) -> str:
    """Return the file that a copy or a history is of."""
    assert path.startswith(STATES), path
    return unquote(path.removeprefix(STATES).partition("@")[0])
