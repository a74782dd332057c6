# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from hashlib import sha256
from posixpath import basename, dirname

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files
from ansible_collections.metal.gpu.plugins.modules import config_document
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.history import History, remember
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import fingerprint
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import move, plant


def test_what_this_collection_has_left_is_found(observe, tmp_path):
    path, actor = "/etc/containerd/config.toml", "metal.gpu.containerd"
    place = config_document.Place(path, actor, str(tmp_path / "var/lib/metal-gpu/config_document"))
    rule = "/etc/modprobe.d/metal-gpu-nouveau.conf"
    mark = "# BEGIN managed by Ansible, role metal.gpu.nvidia_driver\n"
    theirs = "/etc/modprobe.d/metal-gpu-cluster.conf"
    plant(tmp_path, {rule: f"{mark}blacklist nouveau\n", theirs: "blacklist nouveau\n"})
    written = "[plugins.cri]\na = 1\n"
    history = remember(History(original="", written=written, before=""))
    plant(tmp_path, {place.history.removeprefix(str(tmp_path)): history, path: written})
    noted = "/var/lib/metal-gpu/packages/containerd.json"
    plant(tmp_path, {noted: '{"containerd.io": {"version": "2.4.1-*", "before": null}}'})
    bad = "/var/lib/metal-gpu/packages/docker_ce.json"
    plant(tmp_path, {bad: "{"})
    ours = observe(Programs({}))["ours"]
    assert bad in ours["packages"].pop("docker_ce")["error"]
    assert ours == {
        "files": [rule],
        "edits": [
            {
                "path": path,
                "actor": actor,
                "changes": [
                    {"key": ["plugins", "cri", "a"], "before": None, "after": fingerprint(1)}
                ],
                "untouched": True,
                "error": None,
            }
        ],
        "packages": {
            "containerd": {
                "path": noted,
                "packages": {"containerd.io": {"version": "2.4.1-*", "before": None}},
                "error": None,
            }
        },
    }


@pytest.mark.parametrize(
    ("record", "error"),
    [
        pytest.param('{"version": 1, "a": {"version": "1", "before": null}}', None, id="today"),
        pytest.param('{"a": {"version": "1", "before": null}}', None, id="before there were any"),
        pytest.param(
            '{"version": 2, "roles": []}',
            "a later version of metal.gpu wrote it (version 2); update the collection",
            id="later",
        ),
    ],
)
def test_versions_of_records(observe, tmp_path, record, error):
    path = "/var/lib/metal-gpu/packages/x.json"
    plant(tmp_path, {path: record})
    found = observe(Programs({}))["ours"]["packages"]["x"]
    assert [*found["packages"]] == ([] if error else ["a"])
    assert found["error"] == (error and f"{path}: {error}")


@pytest.mark.parametrize(
    "path",
    [
        "/etc/containerd/config.toml",
        "/etc/docker/daemon.json",
        "/etc/nvidia-container-runtime/config.toml",
        "/etc/crio/crio.conf.d/99-metal-gpu.conf",
    ],
)
def test_edited_file_has_the_path_of_the_configuration(observe, tmp_path, path):
    """Its folder is a link, and the history has the real path. Plans compare the other one."""
    real = f"/srv/conf/{basename(path)}"
    left, written = "a = 1\n", "a = 2\n"
    name = document_history_files.file_name(real, "metal.gpu.nvidia_container_runtime")
    history = remember(History(left, written, left, language="toml"))
    plant(tmp_path, {path: written, f"{document_history_files.DIRECTORY}/{name}": history})
    move(tmp_path, dirname(path), dirname(real))
    (edit,) = observe(Programs({}))["ours"]["edits"]
    assert (edit["path"], edit["untouched"]) == (path, True)
    assert edit["changes"][0]["key"] == ["a"]


def test_edited_file_that_is_gone_has_its_real_path(observe, tmp_path):
    """Nothing tells any more under which path somebody read it."""
    path = "/srv/conf/daemon.json"
    name = document_history_files.file_name(path, "metal.gpu.docker_ce")
    plant(tmp_path, {f"{document_history_files.DIRECTORY}/{name}": "{}"})
    (edit,) = observe(Programs({}))["ours"]["edits"]
    assert edit["path"] == path


def test_linked_settings_of_the_toolkit_are_known_without_the_edit(observe, tmp_path):
    """So a removal of the package recognises the file that the package made."""
    path, real = "/etc/nvidia-container-runtime/config.toml", "/srv/toolkit.toml"
    left, written = "a = 1\n", "a = 2\n"
    name = document_history_files.file_name(real, "metal.gpu.nvidia_container_runtime")
    history = remember(History(left, written, left, language="toml"))
    plant(tmp_path, {path: written, f"{document_history_files.DIRECTORY}/{name}": history})
    move(tmp_path, path, real)
    found = observe(Programs({}))["toolkit"]["config_sha256"]
    assert found == sha256(left.encode()).hexdigest()


EMOJI = r'{"log-opts": {"tag": "\ud83d\ude00"}, "default-runtime": "runc"}'


@pytest.mark.parametrize(
    ("path", "state", "changes", "error"),
    [
        pytest.param(
            "/etc/docker/daemon.json",
            remember(History(EMOJI, EMOJI.replace("runc", "nvidia"), EMOJI, language="json")),
            [{"key": ["default-runtime"], "before": "runc", "after": fingerprint("nvidia")}],
            None,
            id="emoji-escape",
        ),
        pytest.param(
            "/etc/docker/daemon.json",
            '{"version": 1, "pasts": [{"original": "{}", "written": "{\\"a\\": 1}", '
            '"before": "{}", "directories": []}]}',
            [{"key": ["a"], "before": None, "after": fingerprint(1)}],
            None,
            id="without-language-by-suffix",
        ),
        pytest.param(
            "/etc/cni/conf",
            remember(History("a: 1\n", "a: 2\n", "a: 1\n", language="yaml")),
            [{"key": ["a"], "before": 1, "after": fingerprint(2)}],
            None,
            id="without-suffix-by-language",
        ),
        pytest.param(
            "/etc/cni/conf",
            remember(History("a: 1\n", "a: 2\n", "a: 1\n")),
            [],
            "the history of the file is damaged: it does not name the language",
            id="neither",
        ),
        pytest.param(
            "/etc/docker/daemon.json",
            remember(History("{", "{}", "{", language="json")),
            [],
            "line 1, column 2: Expecting property name enclosed in double quotes",
            id="original-that-cannot-be-read",
        ),
        pytest.param(
            *("/etc/docker/daemon.json", "{", []),
            "the history of the file is damaged: JSONDecodeError: ",
            id="damaged",
        ),
    ],
)
def test_the_way_back_is_read_in_the_language_of_the_edit(
    observe, tmp_path, path, state, changes, error
):
    name = document_history_files.file_name(path, "metal.gpu.x")
    file = f"{document_history_files.DIRECTORY}/{name}"
    plant(tmp_path, {file: state})
    [edit] = observe(Programs({}))["ours"]["edits"]
    assert (edit["path"], edit["changes"]) == (path, changes)
    assert edit["error"] is None if error is None else edit["error"].startswith(f"{file}: {error}")


@pytest.mark.parametrize("now", ["{\r\n}\r\n", "{}"], ids=["untouched", "touched"])
def test_carriage_returns_are_no_change(observe, tmp_path, now):
    """The node hands lines over without them."""
    written = "{\r\n}\r\n"
    name = document_history_files.file_name("/etc/d.json", "metal.gpu.x")
    history = remember(History(None, written, None, language="json"))
    plant(tmp_path, {f"{document_history_files.DIRECTORY}/{name}": history})
    (tmp_path / "etc/d.json").parent.mkdir()
    (tmp_path / "etc/d.json").write_bytes(now.encode())
    [edit] = observe(Programs({}))["ours"]["edits"]
    assert edit["untouched"] is (now == written)
