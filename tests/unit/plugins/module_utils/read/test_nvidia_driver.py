# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver
from ansible_collections.metal.gpu.plugins.module_utils.read.nvidia_driver import LoadedModule
from ansible_collections.metal.gpu.tests.unit.support.recordings import recording

RECORD = Path(__file__).parents[4] / "recorded" / "debian_driver.yml"
DEBIAN = yaml.safe_load(RECORD.read_text())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            recording("nvidia_driver/version-580-proprietary.txt"),
            LoadedModule("580.82.07", "proprietary"),
            id="proprietary",
        ),
        pytest.param(
            recording("nvidia_driver/version-590-open.txt"),
            LoadedModule("590.48.01", "open"),
            id="open",
        ),
        pytest.param("something else\n", None, id="unknown-form"),
        pytest.param("", None, id="no-module"),
    ],
)
def test_parse_loaded_module(text, expected):
    assert nvidia_driver.parse_loaded_module(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Model: \t\t P100\nDevice Minor: \t 3\n", 3), ("Model: \t\t P100\n", None)],
)
def test_parse_minor(text, expected):
    assert nvidia_driver.parse_minor(text) == expected


@pytest.mark.parametrize(
    ("uuid", "expected"),
    [
        ("GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01", "GPU-6b7c1c5f-9d3e-5d0a-8f0b-5a3d1f1f2c01"),
        # Of a GPU that nobody has used since the boot: a report of a Tesla K80, driver 470.
        ("GPU-????????-????-????-????-????????????", None),
        ("", None),
    ],
)
def test_parse_uuid(uuid, expected):
    text = f"Model: \t\t P100\nGPU UUID: \t {uuid}\nDevice Minor: \t 3\n"
    assert nvidia_driver.parse_uuid(text) == expected


@pytest.mark.parametrize("name", [*DEBIAN["modules"].values(), "nvidia"])
@pytest.mark.parametrize("suffix", ["", ".xz", ".zst"])
def test_parse_modules_dep(name, suffix):
    """By whatever name a package gives its file; the driver's other modules do not count."""
    file = f"updates/dkms/{name}.ko{suffix}"
    text = (
        f"kernel/drivers/video/fbdev/nvidia/nvidiafb.ko{suffix}: kernel/drivers/i2c/i2c-core.ko\n"
        f"updates/dkms/{name}-uvm.ko{suffix}: {file}\n"
        f"{file}:\n"
        f"updates/dkms/nvidia-fs.ko{suffix}: {file}\n"
    )
    assert nvidia_driver.parse_modules_dep(text) == [file]


def test_parse_modules_load():
    assert nvidia_driver.parse_modules_load("# why\n; why\n\nnvidia-uvm\nbr_netfilter\n") == [
        "nvidia_uvm",
        "br_netfilter",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("options x y\nblacklist nouveau\n", True, id="blacklist"),
        pytest.param("install nouveau /bin/false\n", True, id="install"),
        pytest.param("#blacklist nouveau\n", False, id="comment"),
        pytest.param("blacklist nouveaux\n", False, id="another-module"),
        pytest.param("options nouveau modeset=0\n", False, id="options"),
    ],
)
def test_is_blocked(text, expected):
    assert nvidia_driver.is_blocked(text, nvidia_driver.NOUVEAU) is expected


@pytest.mark.parametrize(
    ("files", "rivals"),
    [
        ([], ["nouveau"]),
        (["kernel/drivers/gpu/drm/nova/nova.ko.zst: kernel/lib/x.ko.zst\n"], ["nouveau"]),
        (["", "kernel/drivers/gpu/nova-core/nova_core.ko.zst:\n"], ["nouveau", "nova_core"]),
        (["kernel/drivers/gpu/nova-core/nova-core.ko:\n"], ["nouveau", "nova_core"]),
    ],
)
def test_which_drivers_of_the_kernel_must_be_blocked(files, rivals):
    assert nvidia_driver.parse_rivals(files) == rivals


def test_a_dash_is_an_underscore():
    assert nvidia_driver.is_blocked("blacklist nova-core\n", nvidia_driver.NOVA)


@pytest.mark.parametrize(
    ("name", "is_driver", "is_toolkit"),
    [
        ("nvidia-driver-cuda", True, False),
        ("nvidia-kernel-open-dkms", True, False),
        ("libnvidia-ml1", True, False),
        ("libcuda1", True, False),
        ("cuda-drivers-580", True, False),
        ("firmware-nvidia-gsp", True, False),
        ("firmware-nvidia-tesla-535-gsp", True, False),
        ("nvidia-firmware-580-580.178.04", True, False),
        ("nvidia-kernel-support", True, False),
        ("firmware-nvidia-graphics", False, False),
        ("nvidia-gpu-firmware", False, False),
        ("nvidia-cuda-toolkit-doc", False, False),
        ("nvidia-cuda-mps", True, False),
        ("nvidia-container-toolkit", False, True),
        ("libnvidia-container1", False, True),
        ("nvidia-docker2", False, True),
        ("libcudart12", False, False),
    ],
)
def test_whose_package(name, is_driver, is_toolkit):
    assert nvidia_driver.is_driver_package(name) is is_driver
    assert nvidia_driver.is_toolkit_package(name) is is_toolkit


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([], "nvidia", id="NVIDIA's own packages"),
        pytest.param(
            ["install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n"], "nvidia-current"
        ),
        pytest.param(
            ["install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n"],
            "nvidia-current-open",
            id="open",
        ),
        pytest.param(
            ["install nvidia /sbin/modprobe --ignore-install -q nvidia-tesla-535\n"],
            "nvidia-tesla-535",
            id="path and options",
        ),
        pytest.param(
            [
                "install nvidia-uvm modprobe nvidia ; modprobe -i nvidia-current-uvm\n"
                "install nvidia-drm modprobe nvidia-modeset\n"
            ],
            "nvidia",
            id="other modules",
        ),
        pytest.param(["install nvidia /bin/false\n"], "nvidia", id="no module"),
        pytest.param(["# install nvidia modprobe -i x\n"], "nvidia", id="comment"),
        pytest.param(
            ["install nvidia modprobe -i a\n", "install nvidia modprobe -i b\n"], "a", id="first"
        ),
    ],
)
def test_parse_module_name(texts, expected):
    assert nvidia_driver.parse_module_name(texts) == expected
