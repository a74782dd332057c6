# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time
from posixpath import dirname

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import document_history_files
from ansible_collections.metal.gpu.tests.unit.support.observing import (
    CONTAINERD_VERSION,
    IN_THE_FUTURE,
    active_since,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    move,
    plant,
    recording,
)


def test_containerd_is_asked_about_the_file_that_its_unit_names(observe, tmp_path):
    unit = "[Service]\nExecStart=/usr/bin/containerd -c /opt/c.toml\n"
    plant(
        tmp_path,
        {"/etc/systemd/system/containerd.service": unit, "/opt/c.toml": "version = 2\n"},
    )
    programs = Programs(
        {
            "containerd --version": (0, CONTAINERD_VERSION, ""),
            "containerd --config /opt/c.toml config dump": (0, "version = 4\n", ""),
        }
    )
    config = observe(programs)["engines"]["containerd"]["config"]
    assert (config["path"], config["version"]) == ("/opt/c.toml", 2)


@pytest.mark.parametrize(
    ("text", "stderr", "error"),
    [
        pytest.param(
            "version = 2\nfoo = \n",
            recording("containerd/refusal-2.4.2-syntax.txt"),
            "/etc/containerd/config.toml, line 2, column 7: Invalid value",
            id="syntax",
        ),
        pytest.param(
            'version = 2\ndisabled_plugins = ["cri"]\n',
            recording("containerd/refusal-2.4.2-cri.txt"),
            "failed to load TOML from /etc/containerd/config.toml:"
            ' invalid disabled plugin URI "cri" expect io.containerd.x.vx',
            id="refused",
        ),
        pytest.param(
            "\ufeffversion = 2\n",
            recording("containerd/refusal-2.1.4-byte-order-mark.txt"),
            "/etc/containerd/config.toml, line 1, column 1: the file starts with a byte order mark,"
            r" which this containerd rejects. Remove it: sed -i '1s/^\xEF\xBB\xBF//'"
            " /etc/containerd/config.toml",
            id="byte-order-mark",
        ),
    ],
)
def test_containerd_with_a_configuration_it_refuses(observe, tmp_path, text, stderr, error):
    plant(tmp_path, {"/etc/containerd/config.toml": text})
    programs = Programs(
        {
            "containerd --version": (0, CONTAINERD_VERSION, ""),
            "containerd --config": (1, "", stderr),
        }
    )
    found = observe(programs)["engines"]["containerd"]
    assert found["config"]["error"] == error
    assert (found["cri_enabled"], found["runtimes"]) == (None, {})
    assert found["config"]["source"] is None
    assert found["running"] is None  # no systemd answers here


def test_containerd_without_a_file(observe):
    programs = Programs(
        {
            "containerd --version": (0, "containerd 1.6.20\n", ""),
            "containerd config default": (0, recording("containerd/default-1.6.20.toml"), ""),
        }
    )
    found = observe(programs)["engines"]["containerd"]
    assert (found["config"]["exists"], found["cri_enabled"]) == (False, True)
    assert found["config"]["source"] == "containerd config default"


@pytest.mark.parametrize(
    ("text", "obstacle"),
    [
        pytest.param("\ufeffversion = 2\n", None, id="byte-order-mark"),
        pytest.param(
            "version = 2\na.b = 1\n[a]\n",
            "/etc/containerd/config.toml, line 3, column 3: Cannot declare ('a',) twice",
            id="more-than-TOML",
        ),
    ],
)
def test_what_containerd_reads_is_no_error(observe, tmp_path, text, obstacle):
    """`containerd config dump` of 1.6.20 reads both."""
    plant(tmp_path, {"/etc/containerd/config.toml": text})
    programs = Programs(
        {
            "containerd --version": (0, CONTAINERD_VERSION, ""),
            "containerd --config": (0, recording("containerd/dump-2.4.2-nvidia.toml"), ""),
        }
    )
    config = observe(programs)["engines"]["containerd"]["config"]
    assert (config["error"], config["obstacle"]) == (None, obstacle)


def test_imported_files_with_settings_of_the_cri_plugin(observe, tmp_path):
    """Before containerd 2.1, they take the place of the importing file's."""
    cri = (
        '[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/containerd/certs.d"\n'
    )
    config = 'version = 2\nimports = ["conf.d/*.toml"]\n' + cri
    plant(tmp_path, {"/etc/containerd/config.toml": config})
    plant(tmp_path, {"/etc/containerd/conf.d/cri.toml": cri})
    plant(tmp_path, {"/etc/containerd/conf.d/debug.toml": '[debug]\nlevel = "debug"\n'})
    found = observe(Programs({}))["engines"]["containerd"]["config"]
    assert found["imported_cri"] == ["/etc/containerd/conf.d/cri.toml"]


@pytest.mark.parametrize(
    ("started_s", "changed"),
    [
        pytest.param(1, ["/etc/containerd/conf.d/99-metal-gpu.toml"], id="before"),
        pytest.param(IN_THE_FUTURE, [], id="after"),
    ],
)
def test_containerd_started_before_its_files_were_written(observe, tmp_path, started_s, changed):
    imports = 'version = 3\nimports = ["conf.d/*.toml"]\n'
    plant(tmp_path, {"/etc/containerd/config.toml": imports})
    plant(tmp_path, {"/etc/containerd/conf.d/99-metal-gpu.toml": "version = 3\n"})
    before_boot = time.time() - time.monotonic() - 60
    os.utime(tmp_path / "etc/containerd/config.toml", (before_boot, before_boot))
    node = observe(Programs({"systemctl show": (0, active_since("containerd", started_s), "")}))
    assert node["engines"]["containerd"]["changed_since_start"] == changed


def test_settings_of_registries_below_a_folder_of_drop_ins_are_no_drop_ins(observe, tmp_path):
    """containerd reads hosts.toml at each pull. An asterisk of `imports` is for no slash."""
    plant(
        tmp_path,
        {
            "/etc/containerd/config.toml": 'version = 3\nimports = ["*.toml"]\n',
            "/etc/containerd/certs.d/docker.io/hosts.toml": "",
        },
    )
    before_boot = time.time() - time.monotonic() - 60
    os.utime(tmp_path / "etc/containerd/config.toml", (before_boot, before_boot))
    node = observe(Programs({"systemctl show": (0, active_since("containerd", 1), "")}))
    assert node["engines"]["containerd"]["changed_since_start"] == []


@pytest.mark.parametrize(
    ("edited_s_ago", "expected"),
    [pytest.param(30, True, id="after the start"), pytest.param(90, False, id="before it")],
)
@pytest.mark.parametrize("unit", ["containerd", "crio"])
@pytest.mark.parametrize("linked", ["", "the file", "the folder"])
def test_edit_of_ours_that_the_engine_has_not_read(
    observe, tmp_path, unit, edited_s_ago, expected, linked
):
    """An admin has changed the file, too, so only the time of the history tells.

    The history has the real path of the file, and the engine's configuration has another one.
    """
    path = {"containerd": "/etc/containerd/config.toml", "crio": "/etc/crio/crio.conf"}[unit]
    real = path.replace("/etc/", "/srv/") if linked else path
    name = document_history_files.file_name(real, "metal.gpu.containerd")
    history = f"{document_history_files.DIRECTORY}/{name}"
    plant(tmp_path, {path: "", history: "{}"})
    if linked == "the file":
        move(tmp_path, path, real)
    elif linked:
        move(tmp_path, dirname(path), dirname(real))
    edited = time.time() - edited_s_ago
    os.utime(tmp_path / history[1:], (edited, edited))
    os.utime(tmp_path / path[1:], (time.time() - 10,) * 2)
    state = active_since(unit, time.monotonic() - 60)
    engine = observe(Programs({"systemctl show": (0, state, "")}))["engines"][unit]
    assert engine["changed_since_start"] == [path]
    assert engine["edited_since_start"] == ([path] if expected else [])


def test_files_that_imported_files_import(observe, tmp_path):
    """Names in a file are relative to that file. A file that imports itself is read once."""
    nvidia = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
    plant(
        tmp_path,
        {
            "/etc/containerd/config.toml": 'version = 2\nimports = ["conf.d/*.toml"]\n',
            "/etc/containerd/conf.d/one.toml": 'imports = ["two/*.toml", "gone.toml"]\n',
            "/etc/containerd/conf.d/two/self.toml": 'imports = ["*.toml", "none/*.toml"]\n'
            + nvidia,
        },
    )
    found = observe(Programs({}))["engines"]["containerd"]["config"]
    assert found["imported_cri"] == ["/etc/containerd/conf.d/two/self.toml"]
    assert found["imported_nvidia"] == ["/etc/containerd/conf.d/two/self.toml"]
    assert found["missing_imports"] == [
        "/etc/containerd/conf.d/gone.toml in /etc/containerd/conf.d/one.toml"
    ]


def test_imported_files_that_name_folders_of_registries(observe, tmp_path):
    """A file of version 2 has another table than one of version 3."""
    tables = {
        "one": '"io.containerd.cri.v1.images".registry',
        "two": '"io.containerd.grpc.v1.cri".registry',
        "other": '"io.containerd.cri.v1.images"',
    }
    folder = "/etc/containerd/conf.d"
    plant(
        tmp_path,
        {
            "/etc/containerd/config.toml": 'imports = ["conf.d/*.toml"]\n',
            **{
                f"{folder}/{name}.toml": f'[plugins.{table}]\nconfig_path = "/srv/{name}"\n'
                for name, table in tables.items()
            },
        },
    )
    found = observe(Programs({}))["engines"]["containerd"]["config"]["imported_folders"]
    assert found == {f"{folder}/one.toml": "/srv/one", f"{folder}/two.toml": "/srv/two"}


def test_file_of_a_runtime_that_does_not_exist(observe, tmp_path):
    """containerd 2 runs without its CRI plugin then. A comment names no file."""
    text = """version = 3
# base_runtime_spec = "/etc/containerd/comment.json"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
base_runtime_spec = "/etc/containerd/gone.json"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata]
base_runtime_spec = "/etc/containerd/there.json"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.relative]
base_runtime_spec = "cri-base.json"
"""
    plant(tmp_path, {"/etc/containerd/config.toml": 'version = 3\nimports = ["d/*.toml"]\n'})
    plant(tmp_path, {"/etc/containerd/d/runtimes.toml": text, "/etc/containerd/there.json": "{}"})
    programs = Programs(
        {
            "containerd --version": (0, CONTAINERD_VERSION, ""),
            "containerd --config": (0, text, ""),
        }
    )
    engine = observe(programs)["engines"]["containerd"]
    assert engine["runtimes"]["runc"]["base_runtime_spec"] == "/etc/containerd/gone.json"
    assert engine["missing_specs"] == ["/etc/containerd/gone.json of the runtime runc"]


def test_registry_with_mirrors_and_a_folder(observe, tmp_path):
    """The CRI plugin of containerd 1.6 to 2.4 does not load with both."""
    registry = '[plugins."io.containerd.cri.v1.images".registry]\nconfig_path = "/etc/c"\n'
    mirrors = registry + '[plugins."io.containerd.cri.v1.images".registry.mirrors."docker.io"]\n'
    plant(tmp_path, {"/etc/containerd/config.toml": "version = 3\n"})
    for dump, conflict in ((registry, False), (mirrors, True)):
        programs = Programs(
            {
                "containerd --version": (0, CONTAINERD_VERSION, ""),
                "containerd --config": (0, f"version = 3\n{dump}", ""),
            }
        )
        assert bool(observe(programs)["engines"]["containerd"]["conflicts"]) is conflict


@pytest.mark.parametrize(
    ("version", "command"),
    [("2.0.5", "migrate"), ("2.0.7", "dump"), ("1.7.24~ds1", "dump"), ("2.4.2", "dump")],
)
def test_containerd_whose_dump_is_incomplete_is_asked_again(observe, tmp_path, version, command):
    """2.0.0 to 2.0.5 print what a file of version 2 sets only with `config migrate`."""
    plant(tmp_path, {"/etc/containerd/config.toml": "version = 2\n"})
    table = '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.'
    config = "containerd --config /etc/containerd/config.toml config"
    programs = Programs(
        {
            "containerd --version": (0, f"containerd github.com/x {version} abc\n", ""),
            f"{config} dump": (0, f"{table}dump]\n", ""),
            f"{config} migrate": (0, f"{table}migrate]\n", ""),
        }
    )
    found = observe(programs)["engines"]["containerd"]
    assert list(found["runtimes"]) == [command]
    assert found["config"]["source"] == f"containerd config {command}"


def test_file_that_is_newer_than_containerd(observe, tmp_path):
    """1.6.20 accepts it, and ignores what it sets for pods. 1.7 rejects it itself."""
    plant(tmp_path, {"/etc/containerd/config.toml": "version = 3\n"})
    programs = Programs(
        {
            "containerd --version": (0, "containerd github.com/x 1.6.20~ds1\n", ""),
            "containerd --config": (0, recording("containerd/default-1.6.20.toml"), ""),
        }
    )
    assert observe(programs)["engines"]["containerd"]["config"]["error"] == (
        "/etc/containerd/config.toml has version 3, whose settings containerd 1.6.20 ignores"
    )
