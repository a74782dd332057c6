# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import subprocess

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_smi_lines
from ansible_collections.metal.gpu.tests.unit.support import smi_xml
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

ADDRESS = "0000:03:00.0"
UUID = "GPU-00000000-0000-0000-0000-000000000001"
GPU = {"address": ADDRESS, "uuid": UUID, "name": "NVIDIA H100 80GB HBM3"}
ROW = f"0, {UUID}, {GPU['name']}, 81559, 0000{ADDRESS}, Enabled, 580.178.04\n"
BUS = {
    f"/sys/bus/pci/devices/{ADDRESS}/{name}": f"0x{value}\n"
    for name, value in {"vendor": "10de", "device": "2330", "class": "030200"}.items()
}


def programs(query, text=""):
    return Programs({"nvidia-smi": query, "sh -c": (0, text, ""), "timeout": (0, "", "")})


def asked(one):
    return [line for line in one.asked if line.startswith("sh -c")]


def test_a_healthy_gpu(observe, tmp_path):
    plant(tmp_path, BUS)
    one = programs((0, ROW, ""), smi_xml.report([GPU], "hopper"))
    found = observe(one)["health"]
    assert asked(one) == [" ".join(nvidia_smi_lines.query("/usr/bin/nvidia-smi"))]
    assert (found["cuda_version"], found["error"]) == ("13.0", None)
    (gpu,) = found["gpus"]
    assert (gpu["pci_address"], gpu["uuid"], gpu["model"]) == (ADDRESS, UUID, GPU["name"])
    assert "fabric" not in gpu


def split(report):
    """Return the report with two MIG instances of its GPU."""
    instances = "".join(
        f"<mig_device><index>{index}</index><gpu_instance_id>{index + 7}</gpu_instance_id>"
        "<compute_instance_id>0</compute_instance_id></mig_device>"
        for index in range(2)
    )
    return report.replace("<mig_devices>None<", f"<mig_devices>{instances}<")


MINORS = "config 1\nmonitor 2\ngpu1/gi7/access 201\ngpu1/gi7/ci0/access 202\ngpu1/gi8/access 210\n"
FILES = ["/dev/nvidia-caps/nvidia-cap201", "/dev/nvidia-caps/nvidia-cap202"]


@pytest.mark.parametrize(
    ("minor", "minors", "files"),
    [
        pytest.param(1, MINORS, [FILES, []], id="listed, as far as it goes"),
        pytest.param(0, MINORS, [[], []], id="of another GPU"),
        pytest.param(None, MINORS, [[], []], id="number of the GPU unknown"),
        pytest.param(1, None, [[], []], id="a driver without the list"),
    ],
)
def test_instances_have_the_files_that_the_driver_lists(observe, tmp_path, minor, minors, files):
    texts = dict(BUS)
    if minor is not None:
        path = f"/proc/driver/nvidia/gpus/{ADDRESS}/information"
        texts[path] = f"Model: \t\t {GPU['name']}\nDevice Minor: \t {minor}\n"
    if minors is not None:
        texts["/proc/driver/nvidia-caps/mig-minors"] = minors
    plant(tmp_path, texts)
    (gpu,) = observe(programs((0, ROW, ""), split(smi_xml.report([GPU], "hopper"))))["health"][
        "gpus"
    ]
    assert [one["index"] for one in gpu["mig_instances"]] == [0, 1]
    assert [one["files"] for one in gpu["mig_instances"]] == files


def test_the_observation_of_a_gpu_is_small(observe, tmp_path):
    plant(tmp_path, BUS)
    found = observe(programs((0, ROW, ""), smi_xml.report([GPU], "hopper")))
    assert len(json.dumps(found["health"]["gpus"])) < 700


@pytest.mark.parametrize(
    "query",
    [
        pytest.param((124, "", ""), id="hangs"),
        pytest.param((9, "NVIDIA-SMI has failed\n", ""), id="no driver"),
        pytest.param((0, "\x1b[2J", ""), id="garbage"),
    ],
)
def test_where_the_first_query_fails_nothing_else_is_asked(observe, tmp_path, query):
    """A program that hangs takes its time limit once."""
    plant(tmp_path, BUS)
    one = programs(query)
    assert observe(one)["health"] == {"cuda_version": None, "error": None, "gpus": []}
    assert asked(one) == []


def test_a_node_without_nvidia_smi(observe):
    assert observe(Programs({}))["health"] == {"cuda_version": None, "error": None, "gpus": []}


def test_a_report_that_hangs(observe, tmp_path):
    plant(tmp_path, BUS)
    one = Programs({"nvidia-smi": (0, ROW, ""), "sh -c": (124, "", "")})
    assert "did not end within 60 s" in observe(one)["health"]["error"]


@pytest.mark.parametrize("name", ["nvidia-smi", "it's $(here)"])
def test_the_command_in_a_shell(tmp_path, name):
    """The output is cut at the limit, and a program that is endless ends."""
    program = tmp_path / name
    program.write_text('#!/bin/sh\necho "$@"\nexec yes\n')
    program.chmod(0o755)
    command = nvidia_smi_lines.query(str(program))
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    assert printed.startswith(b"-q -x\ny\n")
    assert len(printed) == nvidia_smi_lines.MAX_BYTES
