# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs that MIG splits: the simulated kernel, and what NVML and nvidia-smi say of it."""

import ctypes
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest
import yaml
from rig import DESCRIPTIONS, LAB, LIBRARY, Rig
from simulation import mig
from simulation.faults import FaultError

from metal_lab import cuda_programs
from metal_lab.pod_images import VECTORADD_IMAGE
from metal_lab.silicon.machine import machine_json, mig_profiles

VERSION = "580.178.04"
RECORD = yaml.safe_load((LAB / "recorded/mig.yml").read_text())
MINORS = "/proc/driver/nvidia-caps/mig-minors"
SUCCESS, NOT_SUPPORTED, NOT_FOUND = 0, 3, 6
NO_DEVICE = "no CUDA-capable device is detected"
A100 = "0000:03:00.0"


class Split(Rig):
    """A node whose only GPU is an A100, with the driver loaded."""

    def __init__(self, root, machine="a100x1"):
        super().__init__(root, machine, flavour="open")
        self.modprobe("nvidia")

    def lines(self, word):
        rows = [line.split() for line in self.read(LIBRARY).splitlines()]
        pairs = [row[1:] for row in rows if row[:1] == [word]]
        return [dict(pair.split("=", 1) for pair in row if "=" in pair) for row in pairs]

    @property
    def mode(self):
        return self.lines("gpu")[0]["mig_mode"]

    @property
    def instances(self):
        return [(row["index"], row["gi"], row["number"]) for row in self.lines("instance")]


@pytest.fixture
def node(tmp_path):
    return Split(tmp_path)


@pytest.fixture(scope="session")
def installation(install):
    return install(VERSION)


@pytest.fixture
def driver(installation, node):
    """The libraries, which read what the kernel of the node has written."""
    installation.clear()
    for name in ("nvidiactl", "nvidia0"):
        (installation.root / "dev" / name).touch()

    def show(*, on_node=True):
        version = installation.root / "proc/driver/nvidia/version"
        version.parent.mkdir(parents=True, exist_ok=True)
        version.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  \n")
        if not on_node:
            version.unlink()
        text = node.read(LIBRARY).partition("metal-lab-machine 1\n")[2]
        installation.describe(text)
        return installation

    return show


# ---- the kernel -------------------------------------------------------------------------------


@pytest.mark.parametrize("row", RECORD["minors"], ids=lambda row: row["name"])
def test_numbers_of_files_are_the_recorded_ones(row):
    assert mig.minors()[row["name"]] == row["minor"]


def test_machines_without_mig_have_no_such_files(node, tmp_path):
    """That real ones have none is unproven: README.md."""
    assert "508 nvidia-caps\n" in node.read("/run/metal-lab/proc-devices")
    assert node.read(MINORS).startswith("config 1\nmonitor 2\ngpu0/gi0/access 3\n")
    node.modprobe("-r", "nvidia")
    assert not node.node.path(MINORS).exists()
    t4 = Split(tmp_path / "other", "t4x1")
    assert not t4.node.path(MINORS).exists()
    assert "nvidia-caps" not in t4.read("/run/metal-lab/proc-devices")


@pytest.mark.parametrize(
    ("profiles", "instances"),
    [
        pytest.param([], [], id="none"),
        pytest.param(["1g.5gb", "1g.5gb"], [("0", "7", "19"), ("1", "8", "19")], id="alike"),
        # The number of a device is not that of the instance: it changes with the others.
        pytest.param(["1g.5gb", "3g.20gb"], [("0", "2", "9"), ("1", "7", "19")], id="mixed"),
    ],
)
def test_instances(node, profiles, instances):
    assert node.mode == "0"
    node.fault("mig", "0", *profiles)
    assert (node.mode, node.instances) == ("1", instances)
    node.fault("mig-off")
    assert (node.mode, node.instances) == ("0", [])


def test_the_same_instance_has_the_same_uuid(node):
    node.fault("mig", "0", "1g.5gb")
    (first,) = node.lines("instance")
    node.fault("mig", "0", "1g.5gb", "2g.10gb")
    node.fault("mig", "0", "1g.5gb")
    assert node.lines("instance") == [first]
    assert re.fullmatch(r"MIG-[0-9a-f-]{36}", first["uuid"])
    assert (first["gi_minor"], first["ci_minor"]) == ("66", "67")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["0", "9g.90gb"], "not one of 1g.5gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb"),
        (["0", "4g.20gb", "4g.20gb"], "7 slices"),
        (["0", "2g.10gb", *["1g.5gb"] * 6], "7 slices"),
        (["0", "3g.20gb", "3g.20gb", "1g.5gb"], "has 40192 MiB"),
        (["1"], "GPU 1 does not exist"),
    ],
)
def test_what_does_not_fit(node, arguments, words):
    with pytest.raises(FaultError, match=words):
        node.fault("mig", *arguments)
    assert node.mode == "0"


@pytest.mark.parametrize(
    ("machine", "words"), [("t4x1", "nothing is known"), ("h100x8", "nothing is known")]
)
def test_gpus_of_which_nothing_is_recorded(tmp_path, machine, words):
    with pytest.raises(FaultError, match=words):
        Split(tmp_path, machine).fault("mig")


def test_no_driver(tmp_path):
    with pytest.raises(FaultError, match="no driver"):
        Rig(tmp_path, "a100x1", flavour=None).fault("mig")


def test_boot_keeps_the_mode_and_no_instance(node):
    node.fault("mig", "0", "1g.5gb")
    node.reboot()
    assert (node.mode, node.instances) == ("1", [])
    node.fault("restore")
    assert node.mode == "0"


def test_newer_gpus_forget_the_mode(node):
    """As the record says of Hopper: the mode goes with the driver."""
    (gpu,) = node.machine.gpus
    gpu["gpu"]["architecture"] = "hopper"
    node.fault("mig", "0", "1g.5gb")
    assert node.mode == "1"
    node.modprobe("-r", "nvidia")
    node.modprobe("nvidia")
    assert node.mode == "0"


@pytest.mark.parametrize(
    "profiles",
    [
        ["3g.20gb", "3g.20gb"],
        ["4g.20gb", "3g.20gb"],
        ["3g.20gb", "2g.10gb", "2g.10gb"],
        ["1g.5gb"] * 7,
        ["7g.40gb"],
    ],
    ids=" ".join,
)
def test_what_fills_a_gpu(node, profiles):
    node.fault("mig", "0", *profiles)
    assert len(node.instances) == len(profiles)


@pytest.mark.parametrize("row", RECORD["profiles"], ids=lambda row: row["gpu"])
def test_profiles_are_those_of_the_record(row):
    found = mig_profiles(row["gpu"])
    assert [one["name"] for one in found] == [part["name"] for part in row["parts"]]
    machines = {gpu["model"] for one in DESCRIPTIONS.values() for gpu in one["gpus"]}
    assert row["gpu"] in machines
    assert mig_profiles("Tesla T4") == []


# ---- cards ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", [pytest.param(A100, id="there"), pytest.param("0000:85:00.0", id="elsewhere")]
)
def test_another_card(node, place):
    node.fault("mig", "0", "1g.5gb")
    (before,) = node.lines("gpu")
    node.fault("swap-gpu", "0", place)
    assert node.lines("gpu") == [before]
    node.reboot()
    (after,) = node.lines("gpu")
    assert after["address"] == place
    assert before["uuid"] != after["uuid"]
    assert before["serial"] != after["serial"]
    assert after["mig_mode"] == "0"
    assert [entry.name for entry in node.node.path("/sys/bus/pci/devices").iterdir()] == [place]
    node.reboot()
    assert node.lines("gpu") == [after]


def test_card_stays_until_the_boot(node):
    """What a fault is undone by is no boot."""
    (before,) = node.lines("gpu")
    node.fault("swap-gpu", "0")
    node.fault("restore")
    assert node.lines("gpu") == [before]
    node.reboot()
    assert node.lines("gpu") != [before]


def test_two_cards_do_not_share_a_slot(tmp_path):
    rig = Rig(tmp_path, "p100x4")
    rig.fault("swap-gpu", "0", "0000:ff:00.0")
    with pytest.raises(FaultError, match="is taken"):
        rig.fault("swap-gpu", "1", "0000:ff:00.0")
    rig.fault("swap-gpu", "0", "0000:fe:00.0")
    rig.fault("swap-gpu", "1", "0000:ff:00.0")


def test_place_of_another_card(tmp_path):
    description = machine_json(DESCRIPTIONS["p100x4"], "gpu-1")
    taken = description["functions"][0]["address"]
    with pytest.raises(FaultError, match="is taken"):
        Rig(tmp_path, "p100x4").fault("swap-gpu", "0", taken)


# ---- NVML and nvidia-smi ----------------------------------------------------------------------


def smi(driver, *arguments):
    status, output = driver.smi(*arguments)
    assert status == SUCCESS
    return output


def test_list_has_the_recorded_lines(driver, node):
    node.fault("mig", "0", "3g.20gb", "1g.5gb")
    _gpu, *lines = smi(driver(), "-L").splitlines()
    uuids = [row["uuid"] for row in node.lines("instance")]
    names = ["3g.20gb", "1g.5gb"]
    pattern = re.compile(r"(  MIG )(\S+ +)(Device  )(\d)(: \(UUID: )(MIG-[0-9a-f-]{36})\)")
    (recorded,) = {
        (*match.group(1, 3, 5), len(match[2]))
        for match in (pattern.fullmatch(row["line"]) for row in RECORD["lines"])
    }
    for line, name, uuid, index in zip(lines, names, uuids, "01", strict=True):
        match = pattern.fullmatch(line)
        assert (*match.group(1, 3, 5), len(match[2])) == recorded
        assert (match[2].strip(), match[4], match[6]) == (name, index, uuid)


def test_report_lists_the_instances(driver, node):
    node.fault("mig", "0", "1g.5gb", "3g.20gb")
    gpu = ET.fromstring(smi(driver(), "-q", "-x")).find("gpu")
    assert gpu.findtext("mig_mode/current_mig") == gpu.findtext("mig_mode/pending_mig") == "Enabled"
    assert gpu.findtext("remapped_rows") == "N/A"
    rows = [[part.text for part in one] for one in gpu.findall("mig_devices/mig_device")]
    assert rows == [["0", "2", "0"], ["1", "7", "0"]]
    node.fault("mig", "0")
    gpu = ET.fromstring(smi(driver(), "-q", "-x")).find("gpu")
    assert gpu.findtext("mig_mode/current_mig") == "Enabled"
    assert gpu.findtext("mig_devices").strip() == "None"


@pytest.fixture
def nvml(driver, node):
    node.fault("mig", "0", "1g.5gb", "3g.20gb")
    library = driver().nvml()
    assert library.nvmlInit_v2() == SUCCESS
    yield library
    assert library.nvmlShutdown() == SUCCESS


def text(function, *arguments):
    buffer = ctypes.create_string_buffer(96)
    assert function(*arguments, buffer, len(buffer)) == SUCCESS
    return buffer.value.decode()


def number(function, *arguments):
    value = ctypes.c_uint(99)
    assert function(*arguments, ctypes.byref(value)) == SUCCESS
    return value.value


def pointer(function, *arguments):
    value = ctypes.c_void_p()
    assert function(*arguments, ctypes.byref(value)) == SUCCESS
    return value


def test_instances_have_handles(nvml, node):
    gpu = pointer(nvml.nvmlDeviceGetHandleByIndex_v2, 0)
    assert number(nvml.nvmlDeviceGetMaxMigDeviceCount, gpu) == 7
    assert number(nvml.nvmlDeviceIsMigDeviceHandle, gpu) == 0
    for index, row in enumerate(node.lines("instance")):
        part = pointer(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
        assert number(nvml.nvmlDeviceIsMigDeviceHandle, part) == 1
        assert text(nvml.nvmlDeviceGetUUID, part) == row["uuid"]
        assert number(nvml.nvmlDeviceGetIndex, part) == index
        assert number(nvml.nvmlDeviceGetGpuInstanceId, part) == int(row["gi"])
        assert number(nvml.nvmlDeviceGetComputeInstanceId, part) == 0
        assert pointer(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, part).value == gpu.value
        found = pointer(nvml.nvmlDeviceGetHandleByUUID, row["uuid"].encode())
        assert found.value == part.value
    nothing = ctypes.byref(ctypes.c_void_p())
    assert nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 2, nothing) == NOT_FOUND
    assert nvml.nvmlDeviceGetHandleByUUID(b"MIG-other", nothing) == NOT_FOUND


def test_profile_of_an_instance(nvml):
    """The way in which NVIDIA's programs find the name of a profile: by its number."""
    gpu = pointer(nvml.nvmlDeviceGetHandleByIndex_v2, 0)
    part = pointer(nvml.nvmlDeviceGetGpuInstanceById, gpu, 2)
    info = (ctypes.c_uint * 16)()
    assert nvml.nvmlGpuInstanceGetInfo(part, info) == SUCCESS
    assert list(info[2:4]) == [2, 9]  # after the handle of the GPU
    profile = (ctypes.c_uint * 16)()
    types = [
        kind
        for kind in range(18)
        if nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, kind, profile) == SUCCESS
        and profile[0] == 9
    ]
    assert types == [2]  # NVML_GPU_INSTANCE_PROFILE_3_SLICE
    assert nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(part, 2, 0, profile) == SUCCESS
    assert nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(part, 1, 0, profile) == NOT_SUPPORTED


def test_instance_that_is_gone(driver, nvml, node):
    gpu = pointer(nvml.nvmlDeviceGetHandleByIndex_v2, 0)
    part = pointer(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 1)
    node.fault("mig", "0", "1g.5gb")
    driver()
    assert nvml.nvmlDeviceGetUUID(part, ctypes.create_string_buffer(96), 96) == NOT_FOUND


def test_container_sees_the_instances_whose_files_it_has(driver, node):
    node.fault("mig", "0", "1g.5gb", "3g.20gb")
    installation = driver(on_node=False)
    assert len(smi(installation, "-L").splitlines()) == 1
    caps = installation.root / "dev/nvidia-caps"
    caps.mkdir()
    (caps / "nvidia-cap66").touch()
    assert len(smi(installation, "-L").splitlines()) == 1
    (caps / "nvidia-cap67").touch()
    _gpu, line = smi(installation, "-L").splitlines()
    assert "MIG 1g.5gb" in line
    shutil.rmtree(caps)


# ---- CUDA -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def vector_add(installation, tmp_path_factory):
    (installation.libraries / "libcuda.so.1").symlink_to(f"libcuda.so.{VERSION}")
    image = cuda_programs.images()[VECTORADD_IMAGE]
    return cuda_programs.build(image, tmp_path_factory.mktemp("programs") / "vectorAdd")


@pytest.fixture
def add(driver, node, vector_add):
    """Return what runs vectorAdd in a container: its exit status and its errors."""

    def run(visible, *, files=()):
        installation = driver(on_node=False)
        text = node.read(LIBRARY).partition("metal-lab-machine 1\n")[2]
        # An ordinary file has the major number 0.
        installation.describe(re.sub(r"(?m)^(driver_version .*)$", r"\1\nuvm 0", text, count=1))
        (installation.root / "dev/nvidia-uvm").touch()
        caps = installation.root / "dev/nvidia-caps"
        caps.mkdir()
        for number in files:
            (caps / f"nvidia-cap{number}").touch()
        environment = {**os.environ, "LD_LIBRARY_PATH": str(installation.libraries)}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        result = subprocess.run(
            [vector_add], env=environment, capture_output=True, text=True, check=False
        )
        return result.returncode, result.stderr

    return run


@pytest.mark.parametrize("visible", ["{first}", "{first},{second}", None, "0"])
def test_program_computes_on_an_instance(add, node, visible):
    """The smoke pod names an instance by its UUID."""
    node.fault("mig", "0", "1g.5gb", "1g.5gb")
    first, second = (row["uuid"] for row in node.lines("instance"))
    named = visible and visible.format(first=first, second=second)
    assert add(named, files=(66, 67)) == (0, "")


@pytest.mark.parametrize("visible", ["{second}", "{first}0", "MIG-", "MIG-other", "MIG-other,0"])
def test_instance_that_a_program_does_not_have(add, node, visible):
    """The container has the files of the first one."""
    node.fault("mig", "0", "1g.5gb", "1g.5gb")
    first, second = (row["uuid"] for row in node.lines("instance"))
    status, errors = add(visible.format(first=first, second=second), files=(66, 67))
    assert status == 1
    assert NO_DEVICE in errors


@pytest.mark.parametrize("profiles", [["1g.5gb"], []], ids=["split", "no instance"])
def test_nothing_computes_without_an_instance(add, node, profiles):
    node.fault("mig", "0", *profiles)
    status, errors = add(None)
    assert status == 1
    assert NO_DEVICE in errors
