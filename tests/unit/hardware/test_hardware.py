# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `make hardware` does as far as a machine without a GPU shows it."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import gpu_models
from metal_hardware import cuda, machine
from metal_hardware.beliefs import Beliefs
from metal_hardware.scrub import Scrubber

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests/hardware/metal_hardware"
UUID = "2f3a9d1e-0b7c-4e55-9a31-7c2d9e8f0a1b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"GPU 0: Tesla T4 (UUID: GPU-{UUID})",
         "GPU 0: Tesla T4 (UUID: GPU-00000000-0000-0000-0000-000000000001)"),
        (f"MIG-{UUID} of GPU-{UUID.upper()}",
         "MIG-00000000-0000-0000-0000-000000000001 of GPU-00000000-0000-0000-0000-000000000001"),
        ("<serial>1560123456789</serial>", "<serial>removed</serial>"),
        ("<gpu_pdi>0x5a1f</gpu_pdi>", "<gpu_pdi>removed</gpu_pdi>"),
        ("        Serial Number        : 156012", "        Serial Number        : removed"),
        ("Linux rack7-node3 6.8.0", "Linux gpu-1 6.8.0"),
        ("inet 10.1.2.3/24 ether 9c:6b:00:1a:2b:3c", "inet 192.0.2.1/24 ether 02:00:00:00:00:00"),
        ("boot id 0123456789abcdef0123456789abcdef", "boot id " + "0" * 32),
        # Versions, addresses on the bus and sizes stay: they are what the records are for.
        ("580.159.04 00000000:18:00.0 81559 MiB", "580.159.04 00000000:18:00.0 81559 MiB"),
    ],
)  # fmt: skip
def test_records_name_no_machine(text: str, expected: str) -> None:
    assert Scrubber("rack7-node3", "localhost")(text) == expected


def test_table_shows_what_does_not_hold_first_and_counts() -> None:
    beliefs = Beliefs()
    beliefs.equal("NVML", "count", 1, 1)
    beliefs.equal("NVML", "name", "T4", "A100")
    beliefs.equal("NVML", "minor", None, None)
    with beliefs.asking("CUDA", "it answers"):
        raise OSError("no library")
    lines = beliefs.table().splitlines()
    assert lines[2] == "  NO  name: A100, and our side has T4"
    assert "  NO  it answers: OSError: no library" in lines
    assert lines[-1] == "beliefs: 1 hold, 2 do not, 1 not shown"


@pytest.mark.parametrize("case", cuda.CASES)
def test_case_without_the_library_says_so(case: str) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert cuda.run(case)["error"] == -1
    else:  # a machine with a driver
        assert "error" in machine.cuda(case)


def test_each_generation_has_capabilities() -> None:
    names = {gpu_models.generation(f"{number:04x}").name for number in range(0x1340, 0x3300)}
    assert names - {"newer"} <= {*machine.CAPABILITIES}


def test_program_of_the_containers_says_that_there_is_no_driver(tmp_path: Path) -> None:
    program = tmp_path / "add"
    ptx = cuda.PTX.replace("\n", "\\n")
    subprocess.run(
        ["gcc", "-Wall", "-Werror", f'-DPTX="{ptx}"', f"-DSIZE={cuda.SIZE}", "-o", program,
         FOLDER / "add.c", "-ldl"], check=True)  # fmt: skip
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["error"] != 0


def test_run_on_a_machine_without_a_gpu_records_and_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tests/hardware/run", "--records", tmp_path / "records"],
        capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    assert "do not, " in done.stdout
    assert json.loads((tmp_path / "records/observed.json").read_text())["nvml"]["devices"] == []
    assert (tmp_path / "records.tar.gz").exists()
