# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in NVML and nvidia-smi, compiled with /dev and /proc in a planted directory."""

import ctypes
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

import metal_lab
from metal_lab.silicon.build import cuda_version, nvml_header
from metal_lab.silicon.nvml.stubs import parse_functions

VERSION = "580.178.04"
SUCCESS, UNINITIALIZED, NOT_SUPPORTED, NOT_FOUND, TIMEOUT, GPU_IS_LOST = 0, 1, 3, 6, 10, 15
CORRUPTED_INFOROM, RESET_REQUIRED, UNKNOWN = 14, 16, 999
RECORDED = Path(metal_lab.__file__).parent / "recorded"
RECORD = yaml.safe_load((RECORDED / "nvidia_smi_handles.yml").read_text())


@pytest.fixture(scope="session")
def installation(install):
    return install(VERSION)


@pytest.fixture
def driver(installation):
    installation.clear()
    return installation


@pytest.fixture(scope="session")
def recorded_installation(install):
    return install(RECORD["branches"][-1])


@pytest.fixture
def recorded_driver(recorded_installation):
    """The stand-in of a branch of which there are records."""
    recorded_installation.clear()
    return recorded_installation


@pytest.fixture
def nvml(driver):
    driver.load()
    library = driver.nvml()
    assert library.nvmlInit_v2() == SUCCESS
    yield library
    assert library.nvmlShutdown() == SUCCESS


def handle(library, index):
    device = ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == SUCCESS
    return device


def test_every_function_of_the_header_is_there(driver):
    names = parse_functions(nvml_header().read_text())
    assert len(names) > 400
    library = driver.nvml()
    assert [name for name in names if not hasattr(library, name)] == []
    assert library.nvmlDeviceGetFanSpeed_v2() == NOT_SUPPORTED


def test_programs_load_on_the_oldest_node(driver):
    files = [driver.libraries / name for name in ("nvidia-smi", "libnvidia-ml.so.1")]
    command = ["objdump", "-T", *files]
    symbols = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    versions = {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)}
    assert max(versions) <= (2, 36)  # Debian 12


def test_smi_needs_of_an_image_what_the_real_one_needs(driver):
    """`objdump -p` of nvidia-smi 550.163.01 of Debian 13."""
    command = ["objdump", "-p", driver.libraries / "nvidia-smi"]
    headers = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    needed = {"libpthread.so.0", "libm.so.6", "libdl.so.2", "libc.so.6", "librt.so.1"}
    assert set(re.findall(r"NEEDED +(\S+)", headers)) == needed


@pytest.mark.parametrize(
    ("version", "cuda"),
    [("580.178.04", 13000), ("550.163.01", 12040), ("610.57.04", 13020), ("390.25", 9010)],
)
def test_cuda_version(version, cuda):
    assert cuda_version(version) == cuda


def proc_version(driver, version):
    file = driver.root / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Wed Nov  4\n")


@pytest.mark.parametrize(
    ("prepare", "status", "first_line"),
    [
        pytest.param(
            lambda driver: None,
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.",
            id="no-driver",
        ),
        pytest.param(
            lambda driver: (driver.load(), (driver.root / "dev/nvidiactl").unlink()),
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.",
            id="no-control-device",
        ),
        pytest.param(
            lambda driver: (driver.load(), proc_version(driver, "580.173.02")),
            18,
            "Failed to initialize NVML: Driver/library version mismatch",
            id="mismatch-on-the-node",
        ),
        pytest.param(
            lambda driver: (driver.load(), driver.describe("driver_version 580.173.02\nend\n")),
            18,
            "Failed to initialize NVML: Driver/library version mismatch",
            id="mismatch-in-a-container",
        ),
        pytest.param(
            lambda driver: (
                driver.load(devices=[])
                or [file.unlink() for file in (driver.root / "dev").glob("nvidia[0-9]")]
            ),
            6,
            "No devices were found",
            id="no-device",
        ),
    ],
)
def test_smi_says_what_is_wrong(driver, prepare, status, first_line):
    prepare(driver)
    for arguments in ([], ["-L"], ["--query-gpu=index", "--format=csv"]):
        result, output = driver.smi(*arguments)
        assert (result, output.splitlines()[0]) == (status, first_line)


@pytest.mark.parametrize("kept_away", [False, True], ids=["free", "kept-away"])
def test_files_that_root_needs_are_created_on_the_node(driver, kept_away):
    """Not in containers, which the test above shows: they do not have the file of the version."""
    driver.load()
    proc_version(driver, VERSION)
    shutil.rmtree(driver.root / "dev")
    (driver.root / "dev").mkdir()
    if kept_away:
        (driver.root / "run/metal-lab/kept-away").mkdir(parents=True)
        (driver.root / "run/metal-lab/kept-away/nvidiactl").touch()
    creates = os.geteuid() == 0 and not kept_away
    status, _ = driver.smi("-L")
    assert status == (0 if creates else 9)
    created = sorted(file.name for file in (driver.root / "dev").iterdir())
    assert created == ([*(f"nvidia{n}" for n in range(4)), "nvidiactl"] if creates else [])


def test_smi_without_the_library(driver, tmp_path):
    status, output = driver.smi("-L", libraries=tmp_path)
    assert status == 12
    assert output.startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")


@pytest.mark.parametrize(
    ("arguments", "status", "output"),
    [
        pytest.param(
            ["--query-gpu=index,name,uuid,memory.total", "--format=csv", "-i", "1"],
            0,
            "index, name, uuid, memory.total [MiB]\n1, Tesla P100-PCIE-16GB, GPU-1, 16384 MiB\n",
            id="csv",
        ),
        pytest.param(
            ["--query-gpu", "memory.free,mig.mode.current", "-i", "3", "--format", "csv,nounits"],
            0,
            "memory.free [MiB], mig.mode.current\n16256, [N/A]\n",
            id="no-units",
        ),
        pytest.param(
            ["--query-gpu=gpu_bus_id,pci.device_id", "--format=csv,noheader", "--id=GPU-3"],
            0,
            "00000000:84:00.0, 0x15F810DE\n",
            id="by-uuid",
        ),
        pytest.param(["-L", "-i", "0000:83:00.0"], 0, None, id="by-bus-id"),
        pytest.param(
            ["--query-gpu=index,x", "--format=csv"],
            2,
            'Field "x" is not a valid field to query.\n\n',
            id="unknown-field",
        ),
        pytest.param(["-i", "99"], 6, "No devices were found\n", id="unknown-gpu"),
        pytest.param(["--query-gpu=index"], 2, None, id="no-format"),
        pytest.param(["--frobnicate"], 2, None, id="unknown-option"),
    ],
)
def test_smi(driver, arguments, status, output):
    driver.load()
    result = driver.smi(*arguments)
    assert result[0] == status
    assert output is None or result[1] == output


def test_smi_lists_in_bus_order(driver):
    driver.load()
    assert driver.smi("-L") == (0, listed(0, 1, 2, 3))


def test_a_container_sees_the_gpus_whose_device_files_it_has(driver):
    driver.load(devices=[1, 3])
    assert driver.smi("--query-gpu=index,uuid,count", "--format=csv,noheader") == (
        0,
        "0, GPU-1, 2\n1, GPU-3, 2\n",
    )


def listed(*indexes):
    return "".join(f"GPU {n}: Tesla P100-PCIE-16GB (UUID: GPU-{n})\n" for n in indexes)


@pytest.mark.parametrize(
    ("refusal", "command"),
    [
        pytest.param(refusal, command, id=" ".join((refusal["state"], *command["arguments"])))
        for refusal in RECORD["refusals"]
        for command in RECORD["commands"]
        if command["of"] in ("all", refusal["kind"])
    ],
)
def test_smi_without_the_handle_of_a_gpu_does_as_recorded(recorded_driver, refusal, command):
    recorded_driver.load("ok", "ok", refusal["state"])
    texts = {
        "words": refusal["words"],
        "others": "0\n1\n3\n",
        "before": listed(0, 1),
        "after": listed(3),
    }
    status, output = recorded_driver.smi(*command["arguments"])
    assert output == command["output"].format(**texts)
    assert status == command.get("exit", refusal["exit"])


QUERY = ("--query-gpu=index,uuid,memory.total", "--format=csv,noheader")


def test_newer_branches_name_the_place(driver):
    line = (
        "Unable to determine the device handle for GPU2: 0000:83:00.0: "
        "GPU is lost.  Reboot the system to recover this GPU"
    )
    driver.load("ok", "ok", "lost")
    assert driver.smi(*QUERY) == (15, f"{line}\n\n\n")

    driver.load("ok", "ok", "lost", smi="rows")
    status, output = driver.smi(*QUERY)
    assert (status, output.splitlines()[0]) == (15, line)
    assert [row[:2] for row in output.splitlines() if ", GPU-" in row] == ["0,", "1,", "3,"]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        pytest.param("lost", GPU_IS_LOST, id="lost"),
        pytest.param("needs-reset", RESET_REQUIRED, id="needs-reset"),
        pytest.param("unknown-error", UNKNOWN, id="unknown-error"),
        pytest.param("hidden", NOT_FOUND, id="hidden"),
    ],
)
def test_nvml_refuses_the_handle_but_goes_on_with_one_it_gave(driver, nvml, state, code):
    """A plugin that runs keeps what it has; one that starts gets as far as this GPU."""
    held, count, index = handle(nvml, 1), ctypes.c_uint(), ctypes.c_uint()
    driver.load("ok", state)
    device = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(device)) == code
    assert nvml.nvmlDeviceGetHandleByUUID(b"GPU-1", ctypes.byref(device)) == code
    assert nvml.nvmlDeviceGetHandleByPciBusId_v2(b"0000:04:00.0", ctypes.byref(device)) == code
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == SUCCESS
    assert nvml.nvmlDeviceGetIndex(held, ctypes.byref(index)) == SUCCESS
    assert (count.value, index.value) == (4, 1)
    reached = SUCCESS if state == "hidden" else code
    assert nvml.nvmlDeviceGetPowerUsage(held, ctypes.byref(index)) == reached


def test_gpu_lost_in_use_is_in_the_cells_not_in_the_exit_code(driver):
    driver.load("ok", "lost-in-use")
    status, output = driver.smi(*QUERY)
    assert status == 0
    assert output.splitlines()[1] == "1, GPU-1, [GPU is lost]"
    assert driver.smi("-L") == (0, listed(0, 1, 2, 3))
    status, output = driver.smi()
    assert status == 15
    assert "ERR! /  250W | GPU is lost            |    ERR!      Default |" in output
    assert {len(line) for line in output.splitlines()[1:] if line} == {91}


def test_corrupted_inforom_is_told_by_the_table_alone(driver, nvml):
    driver.load("ok", "inforom")
    assert nvml.nvmlDeviceValidateInforom(handle(nvml, 0)) == SUCCESS
    assert nvml.nvmlDeviceValidateInforom(handle(nvml, 1)) == CORRUPTED_INFOROM
    assert driver.smi(*QUERY)[0] == driver.smi("-L")[0] == 0
    status, output = driver.smi()
    assert status == 14
    assert output.splitlines()[-1] == "WARNING: infoROM is corrupted at gpu 00000000:04:00.0"


def test_smi_exits_as_it_is_told_with_all_its_rows(driver):
    driver.load()
    _status, whole = driver.smi(*QUERY)
    driver.load(smi="exit=8")
    assert driver.smi(*QUERY) == (8, whole)


def test_smi_prints_garbage(driver):
    driver.load(smi="garbage")
    result = subprocess.run(
        [driver.libraries / "nvidia-smi", *QUERY],
        env={**os.environ, "LD_LIBRARY_PATH": str(driver.libraries)},
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0
    with pytest.raises(UnicodeDecodeError):
        result.stdout.decode()


def test_smi_does_not_end(driver):
    driver.load(smi="hang")
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(
            [driver.libraries / "nvidia-smi", "-L"],
            env={**os.environ, "LD_LIBRARY_PATH": str(driver.libraries)},
            timeout=0.3,
            check=False,
        )


def test_table(driver):
    driver.load()
    status, output = driver.smi()
    lines = output.splitlines()
    assert status == 0
    assert f"| NVIDIA-SMI {VERSION}             Driver Version: {VERSION}     CUDA " in output
    assert {len(line) for line in lines[1:] if line} == {91}
    assert sum("Tesla P100-PCIE-16GB" in line for line in lines) == 4


def test_persistence_mode(driver):
    driver.load()
    size = driver.description.stat().st_size
    query = ("--query-gpu=persistence_mode", "--format=csv,noheader")
    assert driver.smi("-pm", "1", "-i", "2")[1] == (
        "Enabled persistence mode for GPU 00000000:83:00.0.\nAll done.\n"
    )
    assert driver.smi(*query)[1].split() == ["Disabled", "Disabled", "Enabled", "Disabled"]
    assert "already Enabled" in driver.smi("-pm", "1")[1]
    assert driver.smi("-pm", "0")[0] == 0
    assert driver.smi(*query)[1].split() == ["Disabled"] * 4
    assert driver.description.stat().st_size == size


def test_fabric(driver):
    """The words of real GPUs of 590 to 610: N/A without brackets if there is no fabric."""
    driver.load()
    query = ("--query-gpu=fabric.state,fabric.status", "--format=csv,noheader")
    assert driver.smi(*query)[1].splitlines() == ["N/A, N/A"] * 4
    text = driver.description.read_text(errors="replace").partition("metal-lab-machine 1\n")[2]
    for minor, state in enumerate((1, 2, 3)):
        text = text.replace(f"gpu minor={minor} ", f"gpu minor={minor} fabric={state} ")
    driver.describe(text)
    assert driver.smi(*query)[1].splitlines() == [
        "Not Started, N/A",
        "In Progress, N/A",
        "Completed, Success",
        "N/A, N/A",
    ]


def test_handles_survive_that_another_gpu_goes(driver, nvml):
    last = handle(nvml, 3)
    index, count = ctypes.c_uint(), ctypes.c_uint()
    lines = driver.description.read_text(errors="replace").partition("metal-lab-machine 1\n")[2]
    driver.describe("".join(line for line in lines.splitlines(True) if "GPU-1 " not in line))
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == SUCCESS
    assert nvml.nvmlDeviceGetIndex(last, ctypes.byref(index)) == SUCCESS
    assert (count.value, index.value) == (3, 2)


def test_calls_before_init(driver):
    driver.load()
    library, device = driver.nvml(), ctypes.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == UNINITIALIZED
    assert library.nvmlShutdown() == UNINITIALIZED


def test_unknown_uuid(nvml):
    assert nvml.nvmlDeviceGetHandleByUUID(b"GPU-x", ctypes.byref(ctypes.c_void_p())) == NOT_FOUND


def test_topology(nvml):
    level = ctypes.c_int()
    for other, expected in ((1, 40), (2, 50)):
        result = nvml.nvmlDeviceGetTopologyCommonAncestor(
            handle(nvml, 0), handle(nvml, other), ctypes.byref(level)
        )
        assert (result, level.value) == (SUCCESS, expected)


class EventData(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


XID_EVENT = 8


@pytest.mark.parametrize(
    ("state", "xid"), [("xid48", 48), ("lost", 79)], ids=["xid", "fallen-off-the-bus"]
)
def test_event_tells_of_a_new_fault_once(driver, nvml, state, xid):
    driver.load("xid31")  # there before anyone watches
    events, data = ctypes.c_void_p(), EventData()
    assert nvml.nvmlEventSetCreate(ctypes.byref(events)) == SUCCESS
    for index in range(4):
        types = ctypes.c_ulonglong(XID_EVENT)
        assert nvml.nvmlDeviceRegisterEvents(handle(nvml, index), types, events) == SUCCESS
    assert nvml.nvmlEventSetWait_v2(events, ctypes.byref(data), 0) == TIMEOUT

    watched = handle(nvml, 2)
    timer = threading.Timer(0.05, driver.load, ["xid31", "ok", state])
    timer.start()
    assert nvml.nvmlEventSetWait_v2(events, ctypes.byref(data), 5000) == SUCCESS
    timer.join()
    assert (data.device, data.type, data.data) == (watched.value, XID_EVENT, xid)
    assert nvml.nvmlEventSetWait_v2(events, ctypes.byref(data), 0) == TIMEOUT
    assert nvml.nvmlEventSetFree(events) == SUCCESS
