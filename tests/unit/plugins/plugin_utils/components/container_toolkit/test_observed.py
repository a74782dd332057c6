# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from hashlib import sha256

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.document_history_files import file_name
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.history import History, remember
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


@pytest.mark.parametrize(
    ("found", "is_without_edits"),
    [
        pytest.param('runtimes = ["/usr/libexec/crio/crun"]\n', True, id="as it was left"),
        pytest.param('runtimes = ["kata"]\n', False, id="somebody else has edited it since"),
    ],
)
def test_checksum_is_that_of_the_file_without_our_edits(observe, tmp_path, found, is_without_edits):
    """So that the teardown, which restores the file first, can tell whose it is."""
    path = "/etc/nvidia-container-runtime/config.toml"
    table = "[nvidia-container-runtime]\n"
    original = f'{table}runtimes = ["runc", "crun"]\n'
    written = f'{table}runtimes = ["/usr/libexec/crio/crun"]\n'
    past = History(original, written, original, language="toml")
    name = file_name(path, "metal.gpu.nvidia_container_runtime.crio")
    plant(
        tmp_path,
        {
            path: table + found,
            f"/var/lib/metal-gpu/config_document/{name}": remember(past),
        },
    )
    toolkit = observe(Programs({}))["toolkit"]
    is_original = toolkit["config_sha256"] == sha256(original.encode()).hexdigest()
    assert is_original is is_without_edits
    assert toolkit["runtimes"] == [found.split('"')[1]]


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


@pytest.mark.parametrize(
    ("text", "devices", "has_all"),
    [
        pytest.param(None, None, True, id="no file"),
        pytest.param("# NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS=0\n", None, True, id="a comment"),
        pytest.param("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS=all\n", None, True, id="all"),
        pytest.param("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS=0, 1:0\n", ["0", "1:0"], True, id="some"),
        pytest.param("NVIDIA_CTK_CDI_GENERATE_DEVICE_IDS=none\n", ["none"], False, id="none"),
        pytest.param("NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE=True\n", None, False, id="no all"),
        pytest.param("NVIDIA_CTK_CDI_GENERATE_NO_ALL_DEVICE=0\n", None, True, id="all, said so"),
    ],
)
def test_what_the_admin_has_the_cdi_service_list(observe, tmp_path, text, devices, has_all):
    if text is not None:
        plant(tmp_path, {"/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env": text})
    toolkit = observe(Programs({}))["toolkit"]
    assert (toolkit["cdi_devices"], toolkit["cdi_has_all"]) == (devices, has_all)
