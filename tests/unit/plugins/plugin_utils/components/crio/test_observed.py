# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    plant,
)


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
            (1, "", "dial unix: no such file\n"),
            "nvidia",
            "/etc/crio/crio.conf, /etc/crio/crio.conf.d/99-nvidia.conf",
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
            "/etc/crio/crio.conf.d/50-broken.conf": "a = \n",
            "/etc/crio/crio.conf.d/99-nvidia.conf": drop_in,
        },
    )
    programs = Programs({"crio --version": (0, "crio version 1.36.3\n", ""), "crio status": status})
    found = observe(programs)["engines"]["crio"]
    assert (found["version"], found["default_runtime"]) == ("1.36.3", default)
    assert found["config"] == {
        "path": "/etc/crio/crio.conf",
        "exists": True,
        "error": "/etc/crio/crio.conf.d/50-broken.conf, line 1, column 5: Invalid value",
        "source": source,
    }


def test_crio_with_a_file_that_cannot_be_read(observe, tmp_path):
    (tmp_path / "etc/crio").mkdir(parents=True)
    (tmp_path / "etc/crio/crio.conf").symlink_to("crio.conf")
    config = observe(Programs({}))["engines"]["crio"]["config"]
    assert (config["exists"], config["source"]) == (None, None)
    assert config["error"] == "/etc/crio/crio.conf: Too many levels of symbolic links"
