# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from metal_lab import facts, mirror_service, processes, state

GPG, PACKAGE, METADATA = "debian/gpg", "docker/containerd.io.deb", "rocky/repomd.xml"


@pytest.fixture
def laboratory(monkeypatch, tmp_path):
    """Return the state of a laboratory whose mirror runs on an address of this machine."""
    monkeypatch.setattr(state, "FOLDER", tmp_path / "labs")
    published = tmp_path / "published"
    for path in (GPG, PACKAGE, METADATA):
        (published / path).parent.mkdir(parents=True)
        (published / path).write_text(path)
    made = state.State("default", mirror=str(published))
    made.gateway = made.loopback
    (made.folder / "logs").mkdir(parents=True)
    mirror_service.run(made)
    yield made
    processes.stop(list(made.processes.values()))


def _get(laboratory, path):
    """Return what the mirror serves, or its status."""
    url = f"http://{laboratory.gateway}:{facts.MIRROR_PORT}/{path}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code


def test_one_folder_is_left_until_restore(laboratory):
    assert _get(laboratory, PACKAGE) == PACKAGE
    mirror_service.inject(laboratory, "only", ["debian"])
    assert (_get(laboratory, GPG), _get(laboratory, PACKAGE)) == (GPG, 404)
    assert _get(laboratory, f"debian/../{PACKAGE}") == 404
    mirror_service.inject(laboratory, "restore", [])
    assert _get(laboratory, PACKAGE) == PACKAGE


def test_several_folders_are_left(laboratory):
    mirror_service.inject(laboratory, "only", ["debian", "rocky"])
    assert (_get(laboratory, GPG), _get(laboratory, METADATA)) == (GPG, METADATA)
    assert _get(laboratory, PACKAGE) == 404


def test_down(laboratory):
    mirror_service.inject(laboratory, "down", [])
    with pytest.raises(urllib.error.URLError, match="refused"):
        _get(laboratory, GPG)
    assert not processes.is_alive(laboratory.processes[mirror_service.NAME])


def test_list_names_all(laboratory):
    lines = mirror_service.inject(laboratory, "list", []).splitlines()
    assert [line.split()[0] for line in lines] == list(mirror_service.FAULTS)


@pytest.mark.parametrize(
    ("fault", "arguments", "message"),
    [
        ("flood", [], "no fault 'flood'; to list the faults: lab fault mirror list"),
        ("only", [], "wrong number of arguments: only FOLDER..."),
        ("only", ["debian", "ubuntu"], "no folder 'ubuntu' in the mirror; it has: debian, docker"),
    ],
)
def test_mistakes_are_named(laboratory, fault, arguments, message):
    with pytest.raises(SystemExit, match=message):
        mirror_service.inject(laboratory, fault, arguments)
