# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in of CUDA and the programs of the images, with /dev in a planted directory."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from metal_lab import cuda_programs
from metal_lab.pod_images import NVBANDWIDTH_IMAGE, OLD_VECTORADD_IMAGE, VECTORADD_IMAGE
from metal_lab.silicon.build import build, nvml_header

VERSION = "580.178.04"
RECORD = cuda_programs.record()
WORDS = {row["number"]: row["words"] for row in RECORD["errors"]}
SAYS = {**RECORD["vectoradd"]["stdout"], **RECORD["vectoradd"]["stderr"]}
GPU = (
    "gpu minor={minor} address=0000:{bus}:00.0 uuid={uuid} serial=3200000000000 "
    'name="Tesla P100-PCIE-16GB" memory_mib=16384 cc={cc} arch=4 brand=2 device=15f8 '
    "subsystem=10de:118f class=0302 numa={numa} power_w=250 mig=0 persistence=0 state={state}{more}"
)
START = SAYS["start"] % 50000


class Machine:
    """A driver's libraries, four GPUs with their device files, and NVIDIA's programs."""

    def __init__(self, directory, version=VERSION):
        self.version, self.root, self.libraries = version, directory / "root", directory / "lib"
        build(version, self.libraries, nvml_header(), [f'ROOT="{self.root}"'])
        for name in ("libcuda", "libnvidia-ml"):
            (self.libraries / f"{name}.so.1").symlink_to(f"{name}.so.{version}")
        self.description = self.libraries / f"libnvidia-sandboxutils.so.{version}"
        self.head = self.description.read_bytes()
        self.dev = self.root / "dev"
        self.dev.mkdir(parents=True)
        self.programs = {
            name: cuda_programs.build(image, directory / name.rpartition(":")[2])
            for name, image in cuda_programs.images().items()
        }

    def load(self, *gpus, loaded=None, uvm="uvm 0\n", cc="6.0"):
        """`gpus` have what differs from a good one: {state: lost}, or {more: " cuda=719"}."""
        gpus = [*gpus, {}, {}, {}, {}][:4]
        lines = []
        for n, (bus, gpu) in enumerate(zip(("03", "04", "83", "84"), gpus, strict=True)):
            good = {"minor": n, "bus": bus, "numa": n // 2, "uuid": f"GPU-{n}a{n}0", "cc": cc}
            lines.append(GPU.format(**{**good, "state": "ok", "more": "", **gpu}) + "\n")
        described = "".join(reversed(lines))  # in another order than on the bus
        text = (
            f"metal-lab-machine 1\ndriver_version {loaded or self.version}\n{uvm}{described}end\n"
        )
        self.description.write_bytes(self.head + text.encode())
        for file in self.dev.iterdir():
            file.unlink()
        # Ordinary files: their major number is 0, as in the line of the description.
        for name in ("nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(4))):
            (self.dev / name).touch()

    def run(self, image, *arguments, visible=None, libraries=None, timeout=30):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries or self.libraries)}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        result = subprocess.run(
            [self.programs[image], *arguments],
            env=environment, capture_output=True, text=True, check=False, timeout=timeout,
        )  # fmt: skip
        return result.returncode, result.stdout, result.stderr

    def add(self, visible=None, image=VECTORADD_IMAGE, **options):
        return self.run(image, visible=visible, **options)

    def exchange(self, visible=None):
        return self.run(NVBANDWIDTH_IMAGE, "-t", RECORD["nvbandwidth"]["test"], visible=visible)

    def smi(self):
        result = subprocess.run(
            [self.libraries / "nvidia-smi"],
            env={**os.environ, "LD_LIBRARY_PATH": str(self.libraries)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return result.returncode, re.sub(r"^.*\n", "", result.stdout)  # without the time


@pytest.fixture(scope="session")
def installation(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def machine(installation):
    installation.load()
    return installation


@pytest.fixture(scope="session")
def old_driver(tmp_path_factory):
    return Machine(tmp_path_factory.mktemp("old-cuda"), "470.256.02")


def failed(number, form="allocate", vector="A"):
    return (SAYS[form] % (vector, WORDS[number])) + "\n"


PASSES = (
    0,
    "\n".join(
        (
            START,
            SAYS["copy_in"],
            SAYS["launch"] % (196, 256),
            SAYS["copy_out"],
            SAYS["passed"],
            SAYS["done"],
            "",
        )
    ),
    "",
)


def test_vectors_are_added(machine):
    assert machine.add() == PASSES


@pytest.mark.parametrize(
    ("prepare", "number"),
    [
        pytest.param(lambda m: (m.dev / "nvidiactl").unlink(), 100, id="no-control-file"),
        pytest.param(
            lambda m: [(m.dev / f"nvidia{n}").unlink() for n in range(4)], 100, id="no-gpu-file"
        ),
        pytest.param(lambda m: m.description.write_bytes(m.head), 100, id="no-driver"),
        pytest.param(lambda m: (m.dev / "nvidia-uvm").unlink(), 999, id="no-uvm-file"),
        pytest.param(lambda m: m.load(uvm="uvm 510\n"), 999, id="wrong-number-of-uvm"),
        pytest.param(lambda m: m.load(uvm=""), 999, id="no-uvm-module"),
        pytest.param(lambda m: m.load({"more": " trained=0"}), 802, id="untrained-fabric"),
        pytest.param(lambda m: m.load(loaded="580.173.02"), 803, id="other-module"),
        pytest.param(lambda m: m.load({"state": "lost"}), 46, id="lost"),
        pytest.param(lambda m: m.load({"state": "lost-in-use"}), 46, id="lost-in-use"),
        pytest.param(lambda m: m.load({"more": " compute=2"}), 46, id="prohibited"),
        pytest.param(lambda m: m.load({"more": " cuda=2"}), 2, id="out-of-memory"),
        pytest.param(lambda m: m.load({"more": " cuda=100"}), 100, id="broken-100"),
    ],
)
def test_first_call_fails(machine, prepare, number):
    prepare(machine)
    assert machine.add() == (1, f"{START}\n", failed(number))


def test_without_the_library(machine, tmp_path):
    assert machine.run(VECTORADD_IMAGE, libraries=tmp_path) == (1, f"{START}\n", failed(35))


@pytest.mark.parametrize(
    ("gpu", "number"),
    [({"more": " cuda=719"}, 719), ({"more": " cuda=700"}, 700), ({"state": "xid48"}, 214)],
    ids=["broken", "broken-700", "ecc"],
)
def test_error_of_the_kernel_appears_after_the_launch(machine, gpu, number):
    machine.load(gpu)
    status, output, errors = machine.add()
    assert (status, errors) == (1, failed(number, "copy_from_device", "C"))
    assert output.endswith(SAYS["copy_out"] + "\n")


def test_kernel_does_not_end(machine):
    machine.load({}, {"more": " hang=1"})
    assert machine.add("0") == PASSES
    with pytest.raises(subprocess.TimeoutExpired):
        machine.add("1", timeout=0.5)


def test_error_comes_first_in_a_log_of_both_streams(machine):
    (machine.dev / "nvidiactl").unlink()
    result = subprocess.run(
        [machine.programs[VECTORADD_IMAGE]],
        env={**os.environ, "LD_LIBRARY_PATH": str(machine.libraries)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert result.stdout == failed(100) + f"{START}\n"


def test_wrong_result(machine):
    machine.load({"more": " wrong=1"})
    status, output, errors = machine.add()
    assert (status, errors) == (1, SAYS["wrong"] % 0 + "\n")
    assert SAYS["passed"] not in output


@pytest.mark.parametrize(
    "more", ["cuda=719", "wrong=1", "hang=1", "peer=broken", "peer=none", "trained=0"]
)
def test_nvidia_smi_shows_nothing_of_it(machine, more):
    good = machine.smi()
    machine.load({"more": f" {more}"})
    assert machine.smi() == good


@pytest.mark.parametrize(
    ("visible", "broken", "passes"),
    [
        pytest.param(None, 1, True, id="the-first-one"),
        pytest.param(None, 0, False, id="the-first-one-is-broken"),
        pytest.param("1", 1, False, id="index"),
        pytest.param("GPU-2a20", 2, False, id="uuid"),
        pytest.param("GPU-2a20", 0, True, id="another-uuid"),
        pytest.param("GPU-3", 3, False, id="beginning-of-a-uuid"),
        pytest.param("2,0", 0, True, id="order"),
        pytest.param("1,9,0", 0, True, id="before-a-wrong-entry"),
    ],
)
def test_visible_devices(machine, visible, broken, passes):
    machine.load(*({"more": " cuda=719"} if n == broken else {} for n in range(4)))
    assert (machine.add(visible)[0] == 0) == passes


@pytest.mark.parametrize(
    "visible", ["", "9", "99999999999", "GPU-", "GPU-x", "9,0", "NoDevFiles", "-1"]
)
def test_no_device_is_visible(machine, visible):
    assert machine.add(visible) == (1, f"{START}\n", failed(100))


def test_beginning_of_two_uuids_names_none(machine):
    machine.load({}, {"uuid": "GPU-0a01"})
    assert machine.add("GPU-0a0") == (1, f"{START}\n", failed(100))
    assert machine.add("GPU-0a01")[0] == 0


def test_a_gpu_that_requires_a_reset_is_not_counted(machine):
    machine.load({"state": "needs-reset"})
    assert machine.add() == PASSES  # on the next one
    machine.load(*[{"state": "needs-reset"}] * 4)
    assert machine.add() == (1, f"{START}\n", failed(100))


def test_gpu_lost_while_a_program_runs(machine, tmp_path):
    """ctypes stands for a program that runs for long."""
    script = tmp_path / "program.py"
    script.write_text(
        "import ctypes, sys\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "context, memory = ctypes.c_void_p(), ctypes.c_ulonglong()\n"
        "assert cuda.cuInit(0) == 0\n"
        "assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "error = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(8))\n"
        "print(error, cuda.cuCtxSynchronize())\n"
    )
    with subprocess.Popen(
        ["python3", script],
        env={**os.environ, "LD_LIBRARY_PATH": str(machine.libraries)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdout.readline() == "ready\n"
        machine.load({"state": "lost"})
        output, _ = program.communicate("\n", timeout=30)
    assert output == "719 719\n"


@pytest.mark.parametrize(
    ("image", "cc", "passes"),
    [
        pytest.param(VECTORADD_IMAGE, "3.7", False, id="12.5-too-old"),
        pytest.param(VECTORADD_IMAGE, "8.9", True, id="12.5-of-the-same-major-number"),
        pytest.param(VECTORADD_IMAGE, "10.0", True, id="12.5-through-ptx"),
        pytest.param(OLD_VECTORADD_IMAGE, "3.7", True, id="11.7"),
        pytest.param(OLD_VECTORADD_IMAGE, "9.0", True, id="11.7-through-ptx"),
        pytest.param(OLD_VECTORADD_IMAGE, "3.2", False, id="11.7-too-old"),
    ],
)
def test_architectures(machine, image, cc, passes):
    machine.load(cc=cc)
    words = SAYS["launch_failed"] % WORDS[209]
    expected = (0, "") if passes else (1, f"{words}\n")
    status, _, errors = machine.add(image=image)
    assert (status, errors) == expected


@pytest.mark.parametrize(
    ("image", "cc", "errors"),
    [
        pytest.param(VECTORADD_IMAGE, "7.0", failed(35), id="older-major-version"),
        pytest.param(OLD_VECTORADD_IMAGE, "7.0", "", id="same-major-version"),
        pytest.param(
            OLD_VECTORADD_IMAGE, "9.0", SAYS["launch_failed"] % WORDS[222] + "\n", id="newer-ptx"
        ),
    ],
)
def test_old_driver(old_driver, image, cc, errors):
    """A driver of 470 has CUDA 11.4."""
    old_driver.load(cc=cc)
    status, _, found = old_driver.add(image=image)
    assert (status, found) == (int(bool(errors)), errors)


def rows(output):
    lines = output.splitlines()
    matrix = lines.index(RECORD["nvbandwidth"]["stdout"]["matrix"])
    end = next(n for n, line in enumerate(lines) if line.startswith("SUM "))
    assert lines[end - 1] == ""
    return [line.split() for line in lines[matrix + 1 : end - 1]]


def test_exchange_between_gpus_of_one_cpu(machine):
    status, output, errors = machine.exchange()
    assert (status, errors) == (0, "")
    assert rows(output) == [
        ["0", "1", "2", "3"],
        ["0", "N/A", "276.25", "N/A", "N/A"],
        ["1", "276.25", "N/A", "N/A", "N/A"],
        ["2", "N/A", "N/A", "N/A", "276.25"],
        ["3", "N/A", "N/A", "276.25", "N/A"],
    ]
    assert f"SUM {RECORD['nvbandwidth']['test']} 1105.00\n" in output


def test_exchange_through_nvswitches(machine):
    machine.load(*[{"more": " trained=1"}] * 4)
    status, output, _ = machine.exchange()
    assert status == 0
    assert sum(row.count("N/A") for row in rows(output)) == 4  # the diagonal


@pytest.mark.parametrize(
    ("gpus", "visible"),
    [([{"more": " peer=none"}] * 4, None), ([], "0"), ([], "0,2")],
    ids=["no-access", "one-gpu", "two-gpus-of-two-cpus"],
)
def test_exchange_is_waived_where_no_two_gpus_reach_each_other(machine, gpus, visible):
    machine.load(*gpus)
    status, output, errors = machine.exchange(visible)
    assert (status, errors) == (0, "")
    assert RECORD["nvbandwidth"]["stdout"]["waived"] + "\n" in output
    assert "SUM " not in output


def test_exchange_arrives_with_wrong_values(machine):
    machine.load({"more": " peer=broken"})
    status, output, errors = machine.exchange()
    assert status == 1
    assert "Invalid value when checking the pattern at 0x" in output
    assert errors.startswith("ASSERT in expression h_errorFlag == 0 on ")


def test_exchange_without_uvm(machine):
    (machine.dev / "nvidia-uvm").unlink()
    status, _, errors = machine.exchange()
    assert status == 1
    assert errors.startswith(f"[CUDA_ERROR_UNKNOWN] {WORDS[999]} in expression cuInit(0) on ")


def test_exchange_of_what_nobody_knows(machine):
    status, output, _ = machine.run(NVBANDWIDTH_IMAGE, "-t", "frobnicate")
    assert status == 0  # as the real one
    assert "ERROR: Testcase frobnicate not found!" in output


def test_library_and_programs_load_on_the_oldest_node(machine):
    files = [machine.libraries / "libcuda.so.1", *machine.programs.values()]
    command = ["objdump", "-T", *files]
    symbols = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    versions = {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols)}
    assert max(versions) <= (2, 35)  # Ubuntu 22.04


def test_every_recorded_row_has_a_source():
    sources = set(RECORD["sources"])
    facts = [*RECORD["errors"], *RECORD["images"], *RECORD["behaviours"]]
    facts += [RECORD["vectoradd"], RECORD["nvbandwidth"]]
    assert {fact["source"] for fact in facts} <= sources
    assert {fact["confidence"] for fact in facts} <= {"seen", "one source", "inferred"}


def test_images_are_those_of_the_record():
    assert {VECTORADD_IMAGE, OLD_VECTORADD_IMAGE, NVBANDWIDTH_IMAGE} == set(cuda_programs.images())
    assert Path("/", cuda_programs.images()[VECTORADD_IMAGE]["path"]).name == "vectorAdd"
