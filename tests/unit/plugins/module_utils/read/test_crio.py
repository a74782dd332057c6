# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.crio import (
    Effective,
    Runtime,
    mentioned_hooks_dirs,
    parse_effective,
    parse_hook,
    reading_order,
)

CRUN = {"crio": {"runtime": {"default_runtime": "crun", "runtimes": {"crun": {}}}}}
NVIDIA = {
    "crio": {
        "runtime": {
            "runtimes": {
                "nvidia": {
                    "runtime_path": "/usr/bin/nvidia-container-runtime",
                    "runtime_type": "oci",
                    "runtime_root": "/run/crun",
                    "monitor_path": "/usr/libexec/crio/conmon",
                }
            }
        }
    }
}
ONE_KEY = {"crio": {"runtime": {"runtimes": {"nvidia": {"monitor_cgroup": "pod"}}}}}
FOLDERS = {
    "crio": {
        "runtime": {
            "cdi_spec_dirs": ["/srv/cdi"],
            "hooks_dir": ["/srv/hooks", "/etc/containers/oci/hooks.d"],
            "conmon": "/usr/local/bin/conmon",
        }
    }
}
EMPTY = Runtime(
    type=None, binary=None, root=None, monitor=None, monitor_cgroup=None, annotations=[]
)
DEFAULTS = (["/etc/cdi", "/var/run/cdi"], ["/usr/share/containers/oci/hooks.d"], None)


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param([], Effective(None, {}, *DEFAULTS), id="no-file"),
        pytest.param(
            [CRUN, NVIDIA],
            Effective(
                "crun",
                {
                    "crun": EMPTY,
                    "nvidia": {
                        **EMPTY,
                        "type": "oci",
                        "binary": "/usr/bin/nvidia-container-runtime",
                        "root": "/run/crun",
                        "monitor": "/usr/libexec/crio/conmon",
                    },
                },
                *DEFAULTS,
            ),
            id="drop-in-adds",
        ),
        pytest.param(
            [NVIDIA, ONE_KEY],
            Effective(None, {"nvidia": {**EMPTY, "monitor_cgroup": "pod"}}, *DEFAULTS),
            id="a later table replaces the earlier one as a whole, as seen with 1.36.3",
        ),
        pytest.param(
            [FOLDERS, CRUN],
            Effective(
                "crun",
                {"crun": EMPTY},
                ["/srv/cdi"],
                ["/srv/hooks", "/etc/containers/oci/hooks.d"],
                "/usr/local/bin/conmon",
            ),
            id="folders and the monitor of all runtimes",
        ),
        pytest.param(
            [{"Crio": {"Runtime": {"RUNTIMES": {"NVIDIA": {"Runtime_Path": "/a"}}}}}],
            Effective(None, {"NVIDIA": {**EMPTY, "binary": "/a"}}, *DEFAULTS),
            id="another case, as BurntSushi/toml 1.5.0 matches it: not in the name of a runtime",
        ),
        pytest.param([{"crio": []}], Effective(None, {}, *DEFAULTS), id="nonsense"),
    ],
)
def test_parse_effective(documents, expected):
    assert parse_effective(documents) == expected


def test_files_are_read_in_the_order_of_crio():
    """As `crio config` of 1.36.3 lists them: dots first, and folders among the files."""
    folder = "/etc/crio/crio.conf.d"
    files = [f"{folder}/{name}" for name in (".a.conf.xyz", "10-crio.conf", "20/x", "20.bak", "9")]
    expected = ["/etc/crio/crio.conf", *files]
    assert reading_order(reversed(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("hooks_dir = [\"/a\", '/b']\n", ["/a", "/b"], id="one line"),
        pytest.param('  hooks_dir = [\n  "/a/hooks.d",\n]\n', ["/a/hooks.d"], id="lines"),
        pytest.param('# hooks_dir = ["/a"]\n', [], id="a comment"),
        pytest.param("hooks_dir = [", [], id="not TOML"),
    ],
)
def test_folders_of_hooks_that_a_file_names(text, expected):
    assert mentioned_hooks_dirs(text) == expected


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        pytest.param(
            {"version": "1.0.0", "hook": {"path": "/usr/bin/nvidia-container-runtime-hook"}},
            "/usr/bin/nvidia-container-runtime-hook",
            id="the package of 2018",
        ),
        pytest.param(
            {"version": "1.0.0", "hook": {"path": "/usr/local/nvidia/toolkit/nvidia-ctk"}},
            "/usr/local/nvidia/toolkit/nvidia-ctk",
            id="the toolkit's container",
        ),
        pytest.param(
            {"hook": "/usr/bin/nvidia-container-toolkit", "stage": ["prestart"]},
            "/usr/bin/nvidia-container-toolkit",
            id="the form before 1.0.0",
        ),
        pytest.param({"version": "1.0.0", "hook": {"path": "/opt/acme/hook"}}, None, id="another"),
        pytest.param({"hook": []}, None, id="nonsense"),
    ],
)
def test_hooks_of_nvidia(hook, expected):
    assert parse_hook(hook) == expected
