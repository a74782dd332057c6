# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.cluster import smoke_output
from ansible_collections.metal.gpu.plugins.module_utils.cluster.smoke_output import (
    Exchanged,
    Result,
    parse_computed,
    parse_exchanged,
)

LIMIT = 4096  # bytes of a termination message
NVIDIA_SMI = "#!/bin/sh\ncat {folder}/listing; exit {code}\n"
VECTOR_ADD = r"""#!/bin/sh
echo "[Vector addition of 50000 elements]"
echo "Copy input data from the host memory to the CUDA device"
. {folder}/behaviour
echo "CUDA kernel launch with 196 blocks of 256 threads"
echo "Test PASSED"
echo Done
"""
LOST = "Unable to determine the device handle for GPU2: 0000:83:00.0: Unknown Error"


def gpu(number: int) -> str:
    return f"GPU-{number:08d}-0000-0000-0000-000000000000"


def listing(count: int) -> str:
    return "".join(f"GPU {n}: Tesla P100-PCIE-16GB (UUID: {gpu(n)})\n" for n in range(count))


MIG = """\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)
  MIG 3g.20gb     Device  0: (UUID: MIG-1)
  MIG 3g.20gb     Device  1: (UUID: MIG-2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)
"""


class Pod:
    """A container in which the script runs, with programs in the place of NVIDIA's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self, listed: str, behaviour: str = "", code: int = 0, program: str = "vectorAdd"
    ) -> tuple[int, str]:
        """Return the exit code and the termination message."""
        (self.folder / "listing").write_text(listed)
        (self.folder / "behaviour").write_text(behaviour)
        for name, text in (("nvidia-smi", NVIDIA_SMI), (program, VECTOR_ADD)):
            path = self.folder / name
            path.write_text(text.format(folder=self.folder, code=code))
            path.chmod(0o755)
        message = self.folder / "message"
        message.write_text("")
        shell, option, script = smoke_output.command("compute")
        script = script.replace("/dev/termination-log", str(message))
        script = script.replace(f"timeout -k 5 {smoke_output.PROGRAM_S}", "timeout -k 1 1")
        ended = subprocess.run(
            [shell, option, script],
            env={"PATH": f"{self.folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.stderr == ""
        return ended.returncode, message.read_text()


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_each_gpu_computes(pod: Pod) -> None:
    code, message = pod.run(listing(4))
    assert code == 0
    found = parse_computed(message)
    assert found.results == tuple(Result(gpu(number), ok=True) for number in range(4))
    assert (found.trouble, found.has_program) == ("", True)


def test_one_gpu_that_fails_or_hangs_hides_no_other(pod: Pod) -> None:
    words = "Failed to launch vectorAdd kernel (error code unspecified launch failure)!"
    code, message = pod.run(
        listing(4),
        f"case $CUDA_VISIBLE_DEVICES in\n"
        f"{gpu(1)}) echo '{words}' >&2; exit 1 ;;\n"
        f"{gpu(2)}) exec sleep 60 ;;\nesac\n",
    )
    assert code == 1
    one, two, three, four = parse_computed(message).results
    assert (one.ok, two.ok, three.ok, four.ok) == (True, False, False, True)
    assert two.error == words
    assert three.error.startswith("the program was stopped, after 60 s or by the kernel")


def test_the_words_of_sixteen_gpus_have_room(pod: Pod) -> None:
    words = "x" * 300
    _code, message = pod.run(listing(16), f"echo {words} >&2; exit 1\n")
    assert len(message) < LIMIT
    results = parse_computed(message).results
    assert len(results) == 16
    assert all(len(result.error) > 120 for result in results)


def test_a_program_that_ends_well_without_passing_has_not_computed(pod: Pod) -> None:
    code, message = pod.run(listing(1), "exit 0\n")
    (result,) = parse_computed(message).results
    assert (code, result.ok, result.error) == (1, False, "the program exited with code 0")


def test_instances_of_mig_compute_in_the_place_of_their_gpu(pod: Pod) -> None:
    code, message = pod.run(MIG)
    assert code == 0
    uuids = [result.uuid for result in parse_computed(message).results]
    assert uuids == ["MIG-1", "MIG-2", "GPU-b"]


def test_what_nvidia_smi_reports_beside_the_gpus_is_trouble(pod: Pod) -> None:
    code, message = pod.run(f"{listing(2)}{LOST}\n", code=15)
    found = parse_computed(message)
    assert code == 1
    assert all(result.ok for result in found.results)
    assert found.trouble == f"nvidia-smi exited with code 15: {LOST}"


def test_no_gpu(pod: Pod) -> None:
    code, message = pod.run("No devices were found\n", code=6)
    found = parse_computed(message)
    assert (code, found.results) == (1, ())
    assert found.trouble == "nvidia-smi exited with code 6: No devices were found"


def test_an_image_without_the_program(pod: Pod) -> None:
    code, message = pod.run(listing(2), program="deviceQuery")
    found = parse_computed(message)
    assert (code, found.has_program) == (1, False)
    assert [result.error for result in found.results] == ["the program did not run"] * 2


@pytest.mark.parametrize(
    ("message", "errors", "trouble"),
    [
        pytest.param("", [], "", id="nothing"),
        pytest.param("GPU-a\nGPU-b\n1 ok\n", ["", "the program gave no result"], "", id="cut"),
        pytest.param("GPU-a\n2 ok\n", ["the program gave no result"], "2 ok", id="stranger"),
        pytest.param("GPU-a\n1 ok\n1 1 x\n", [""], "1 1 x", id="twice"),
        pytest.param("GPU-a\n1 ok\n\x00\n", [""], "\x00", id="garbage"),
        pytest.param("GPU-a\n1 137\n", [None], "", id="killed"),
    ],
)
def test_messages_that_are_not_whole(message: str, errors: list[str], trouble: str) -> None:
    found = parse_computed(message)
    assert found.trouble == trouble
    for result, error in zip(found.results, errors, strict=True):
        assert result.ok is (error == "")
        assert error is None or result.error == error


MATRIX = """\
nvbandwidth Version: v0.7
Running device_to_device_memcpy_read_ce.
memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0       {a}    {b}
 1    276.33       {a}

SUM device_to_device_memcpy_read_ce 552.40
"""
FAILED = (
    "[CUDA_ERROR_SYSTEM_NOT_READY] system not yet initialized in expression cuInit(0) in main()"
)


@pytest.mark.parametrize(
    ("code", "text", "state", "words"),
    [
        pytest.param(0, MATRIX.format(a="0.00", b="276.07"), "ok", "", id="diagonal of zeros"),
        pytest.param(0, MATRIX.format(a=" N/A", b="276.07"), "ok", "", id="diagonal without"),
        pytest.param(0, MATRIX.format(a=" N/A", b="   N/A"), "ok", "", id="one way only"),
        pytest.param(0, MATRIX.format(a="0.00", b="  0.00"), "failed", "0 and 1", id="nothing"),
        pytest.param(0, "Waived: \n", "nothing", "no GPU of the node has access", id="waived"),
        pytest.param(1, f"CUDA\n{FAILED}\nbye\n", "failed", "SYSTEM_NOT_READY", id="error"),
        pytest.param(1, "", "failed", "exit code 1", id="silent"),
        pytest.param(0, "ERROR: Testcase x not found!\n", "failed", "not found", id="no test"),
        pytest.param(0, "# Avg bus bandwidth : 120.1\n", "ok", "", id="another program"),
        pytest.param(
            0, MATRIX.format(a="0.00", b="276.07").replace("\n 1 ", "\n x "), "failed",
            "the result has 1 of 2 GPUs", id="a row is missing",
        ),
    ],
)  # fmt: skip
def test_exchange(code: int, text: str, state: str, words: str) -> None:
    found = parse_exchanged(code, text, gpus=2)
    assert found.state == state
    assert words in found.message


def test_a_matrix_without_any_access_proves_nothing() -> None:
    text = MATRIX.format(a="N/A", b="N/A").replace("276.33", "N/A")
    assert parse_exchanged(0, text, 2) == Exchanged(
        "nothing", "no GPU of the node has access to another one"
    )


def test_the_arguments_of_the_exchange_are_no_part_of_a_script() -> None:
    made = smoke_output.command("exchange", ["echo", "a b", "$HOME; ls"])
    made[2] = made[2].replace(">/dev/termination-log", "")
    ended = subprocess.run(made, stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "a b $HOME; ls\n"
