# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from hashlib import sha256

import pytest

from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    plant,
)


@pytest.mark.parametrize("content", [b"", b'[nvidia-container-runtime]\nmode = "auto"\n'])
def test_configuration_of_the_toolkit_is_recognised_by_its_checksum(observe, tmp_path, content):
    path = "/etc/nvidia-container-runtime/config.toml"
    plant(tmp_path, {path: content.decode()})
    toolkit = observe(Programs({}))["toolkit"]
    assert (toolkit["config"], toolkit["config_sha256"]) == (
        path,
        sha256(content).hexdigest(),
    )


def test_configuration_of_the_toolkit_that_is_no_file_has_no_checksum(observe, tmp_path):
    path = "/etc/nvidia-container-runtime/config.toml"
    (tmp_path / path[1:]).mkdir(parents=True)
    toolkit = observe(Programs({}))["toolkit"]
    assert (toolkit["config"], toolkit["config_sha256"]) == (path, None)


def test_a_specification_of_cdi_that_does_not_parse(observe, tmp_path):
    broken, right = "/etc/cdi/nic.yaml", "/var/run/cdi/nvidia.yaml"
    plant(tmp_path, {broken: "kind: [\n", right: "kind: nvidia.com/gpu\ndevices: [{name: all}]\n"})
    (tmp_path / "etc/cdi/loop.json").symlink_to("loop.json")
    found = observe(Programs({}))["cdi"]
    assert found["devices"] == ["nvidia.com/gpu=all"]
    assert found["kinds"] == {broken: None, right: "nvidia.com/gpu"}
    assert list(found["errors"]) == [broken, "/etc/cdi/loop.json"]
    assert found["errors"][broken].startswith(f"{broken}, line 2, column 1: ")
