# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os

import pytest

from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    plant,
    recording,
)

DROP_INS = "/etc/crio/crio.conf.d"
# The words of the CRI-O of the laboratory: `crio status config` of 1.36.3.
STATUS = recording("crio/status-1.36.3.toml")
PACKAGED = recording("crio/10-crio.conf")
VERSION = (0, "crio version 1.36.3\n", "")
DOWN = (1, "", "dial unix: no such file\n")
CONMON = "/usr/libexec/crio/conmon"


def crio(observe, *, status=DOWN, packages=()):
    answers = {"crio --version": VERSION, "crio status": status}
    if packages:
        answers["dpkg-query"] = (0, "".join(packages), "")
    return observe(Programs(answers), ["cri-o"])["engines"]["crio"]


@pytest.mark.parametrize(
    ("status", "default", "source"),
    [
        pytest.param(
            (0, '[crio.runtime]\ndefault_runtime = "runc"\n', ""),
            "runc",
            "crio status config",
            id="running",
        ),
        pytest.param(
            DOWN,
            "nvidia",
            f"/etc/crio/crio.conf, {DROP_INS}/99-nvidia.conf",
            id="stopped",
        ),
    ],
)
def test_crio_is_asked_or_its_files_are_read(observe, tmp_path, status, default, source):
    drop_in = '[crio.runtime]\ndefault_runtime = "nvidia"\n'
    plant(
        tmp_path,
        {
            "/etc/crio/crio.conf": "[crio]\n",
            f"{DROP_INS}/50-broken.conf": "a = \n",
            f"{DROP_INS}/99-nvidia.conf": drop_in,
        },
    )
    found = crio(observe, status=status)
    assert (found["version"], found["default_runtime"]) == ("1.36.3", default)
    assert found["config"] == {
        "path": "/etc/crio/crio.conf",
        "exists": True,
        "files": [
            "/etc/crio/crio.conf",
            f"{DROP_INS}/50-broken.conf",
            f"{DROP_INS}/99-nvidia.conf",
        ],
        "runtime_files": {},
        "without_monitor": {},
        "monitor": None,
        "defaults": {f"{DROP_INS}/99-nvidia.conf": "nvidia"},
        "error": f"{DROP_INS}/50-broken.conf, line 1, column 5: Invalid value",
        "obstacles": {},
        "source": source,
    }


def test_what_a_running_crio_says(observe):
    found = crio(observe, status=(0, STATUS, ""))
    assert found["default_runtime"] == "runc"
    assert found["runtimes"]["crun"] == {
        "type": "",
        "binary": "/usr/libexec/crio/crun",
        "root": "/run/crun",
        "monitor": CONMON,
        "monitor_cgroup": "system.slice",
        "annotations": ["io.containers.trace-syscall"],
    }
    assert found["cdi_dirs"] == ["/etc/cdi", "/var/run/cdi"]
    assert found["hooks_dirs"] == ["/usr/share/containers/oci/hooks.d"]


def test_the_packaged_file_of_a_stopped_crio(observe, tmp_path):
    plant(tmp_path, {f"{DROP_INS}/10-crio.conf": PACKAGED})
    found = crio(observe)
    assert {name: one["monitor"] for name, one in found["runtimes"].items()} == {
        "crun": CONMON,
        "runc": CONMON,
    }
    assert found["default_runtime"] == "crun"
    assert found["monitor_in_path"] is False


def test_every_file_of_the_folder_counts_whatever_its_name(observe, tmp_path):
    """An editor's copy, a hidden file and one in a folder. A later table replaces the earlier."""
    table = '[crio.runtime.runtimes.nvidia]\nruntime_path = "/{}"\n'
    names = [".99-nvidia.conf.swp", "99-nvidia.conf~", "99-nvidia.toml", "old/99.bak"]
    plant(
        tmp_path,
        {f"{DROP_INS}/{name}": table.format(number) for number, name in enumerate(names)},
    )
    found = crio(observe)
    assert found["config"]["runtime_files"] == {"nvidia": [f"{DROP_INS}/{one}" for one in names]}
    assert found["runtimes"]["nvidia"]["binary"] == "/3"


def test_files_count_at_the_next_start_whatever_a_running_crio_says(observe, tmp_path):
    runtimes = '[crio.runtime.runtimes.{}]\nruntime_path = "/x"\nruntime_type = "{}"\n'
    plant(
        tmp_path,
        {
            f"{DROP_INS}/10-crio.conf": PACKAGED,
            f"{DROP_INS}/50-gpu.conf": runtimes.format("nvidia", "oci"),
            f"{DROP_INS}/60-kata.conf": runtimes.format("kata", "vm"),
            f"{DROP_INS}/70-conmon.conf": '[crio.runtime]\nconmon = "/usr/bin/conmon"\n',
        },
    )
    found = crio(observe, status=(0, STATUS, ""))
    assert "nvidia" not in found["runtimes"]
    assert found["config"]["without_monitor"] == {"nvidia": [f"{DROP_INS}/50-gpu.conf"]}
    assert found["config"]["monitor"] == "/usr/bin/conmon"


def test_crio_with_a_file_that_cannot_be_read(observe, tmp_path):
    (tmp_path / "etc/crio").mkdir(parents=True)
    (tmp_path / "etc/crio/crio.conf").symlink_to("crio.conf")
    config = crio(observe)["config"]
    assert (config["exists"], config["source"]) == (None, None)
    assert config["error"] == "/etc/crio/crio.conf: Too many levels of symbolic links"


def hook(program, **more):
    return json.dumps(
        {"version": "1.0.0", "hook": {"path": program}, "stages": ["prestart"]} | more
    )


def test_hooks_of_nvidia_where_crio_reads_them(observe, tmp_path):
    packaged = "/usr/share/containers/oci/hooks.d"
    program = "/usr/bin/nvidia-container-runtime-hook"
    plant(
        tmp_path,
        {
            f"{DROP_INS}/20-hooks.conf": (
                f'[crio.runtime]\nhooks_dir = ["{packaged}", "/srv/hooks.d/"]\n'
            ),
            f"{packaged}/oci-nvidia-hook.json": hook(
                program, when={"always": True, "commands": [".*"]}
            ),
            f"{packaged}/acme.json": hook("/opt/acme/hook"),
            f"{packaged}/broken.json": "{",
            "/srv/hooks.d/off.json": hook(program, when={"always": False}),
            "/srv/hooks.d/old.json": json.dumps({"hook": program, "stage": ["prestart"]}),
            # CRI-O is not told to read this folder, which Podman reads.
            "/etc/containers/oci/hooks.d/oci-nvidia-hook.json": hook(program),
        },
    )
    found = crio(observe)["hooks"]
    assert found == [
        {"path": "/srv/hooks.d/off.json", "program": program, "always": False, "error": None},
        {
            "path": "/srv/hooks.d/old.json",
            "program": program,
            "always": None,
            "error": '/srv/hooks.d/old.json: its "version" is not 1.0.0',
        },
        {
            "path": f"{packaged}/oci-nvidia-hook.json",
            "program": program,
            "always": True,
            "error": None,
        },
    ]


@pytest.mark.parametrize(
    ("release", "packages", "expected"),
    [
        pytest.param("ID=debian\n", (), None, id="a common system"),
        pytest.param(
            "ID=rhcos\nVARIANT_ID=coreos\n",
            (),
            "/etc/os-release has VARIANT_ID=coreos",
            id="the system of OpenShift",
        ),
        pytest.param(
            "ID=debian\n",
            ("cri-o\t1.30.0-1.rhaos4.18.el9\tinstalled\tinstall\tamd64\n",),
            "the package cri-o is 1.30.0-1.rhaos4.18.el9",
            id="its package",
        ),
    ],
)
def test_openshift(observe, tmp_path, release, packages, expected):
    plant(tmp_path, {"/etc/os-release": release})
    assert crio(observe, packages=packages)["openshift"] == expected


def test_files_that_changed_after_the_start(observe, tmp_path):
    plant(tmp_path, {f"{DROP_INS}/10-crio.conf": PACKAGED})
    os.utime(tmp_path / DROP_INS[1:] / "10-crio.conf", (1, 1))
    assert crio(observe)["changed_since_start"] == []
