# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import resource
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
MEMORY = 64 << 20  # bytes that each program in the container may use
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


# Its standard error is not empty if the shell does not know something.
SHELLS = ("dash", "bash", "busybox sh")
ENDLESS = "exec yes 'the same words again and again'"
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:83:00.0"


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


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class Pod:
    """A container in which the script runs, with programs in the place of NVIDIA's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self,
        listed: str,
        behaviour: str = "",
        code: int = 0,
        program: str = "vectorAdd",
        shell: str = "sh",
    ) -> tuple[int, str]:
        """Return the exit code and the termination message."""
        (self.folder / "listing").write_text(listed)
        (self.folder / "behaviour").write_text(behaviour)
        for name, text in (("nvidia-smi", NVIDIA_SMI), (program, VECTOR_ADD)):
            path = self.folder / name
            path.write_text(text.format(folder=self.folder, code=code))
            path.chmod(0o755)
        _shell, option, script = smoke_output.command("compute")
        script = script.replace(f"timeout -k 5 {smoke_output.PROGRAM_S}", "timeout -k 1 1")
        return self.start([*shell.split(), option, script])

    def exchange(self, shell: str, *arguments: str, limit_s: int = 300) -> tuple[int, str]:
        _shell, option, script, *words = smoke_output.command("exchange", arguments, limit_s)
        script = script.replace(f"timeout -k 5 {limit_s - 60}", "timeout -k 1 1")
        assert "timeout -k 1 1" in script
        return self.start([*shell.split(), option, script, *words])

    def start(self, made: list[str]) -> tuple[int, str]:
        """Run a command with as much memory as is plenty."""
        message = self.folder / "message"
        message.write_text("")
        ended = subprocess.run(
            [word.replace("/dev/termination-log", str(message)) for word in made],
            env={"PATH": f"{self.folder}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=limit_memory,
        )
        assert ended.stderr == ""
        return ended.returncode, message.read_text()


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_each_gpu_computes(pod: Pod, shell: str) -> None:
    code, message = pod.run(listing(4), shell=shell)
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


@pytest.mark.parametrize(("words", "status"), [(LOST, 15), (INFOROM, 14)])
def test_what_nvidia_smi_reports_beside_gpus_that_compute_is_kept(
    pod: Pod, words: str, status: int
) -> None:
    """The script cannot know how many GPUs there must be."""
    code, message = pod.run(f"{listing(2)}{words}\n", code=status)
    found = parse_computed(message)
    assert code == 0
    assert all(result.ok for result in found.results)
    assert found.trouble == f"nvidia-smi exited with code {status}: {words}"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_program_that_prints_without_end_fills_no_memory(pod: Pod, shell: str) -> None:
    code, message = pod.run(
        listing(2), f"case $CUDA_VISIBLE_DEVICES in {gpu(1)}) {ENDLESS};; esac\n", shell=shell
    )
    one, two = parse_computed(message).results
    assert (code, one.ok, two.ok) == (1, True, False)
    assert two.error.startswith("the program was stopped, after 60 s or by the kernel")
    assert two.error.endswith("): the same words again and again")


@pytest.mark.parametrize("shell", SHELLS)
def test_an_exchange_that_prints_without_end_fills_no_disk(pod: Pod, shell: str) -> None:
    code, message = pod.exchange(shell, "yes", "the same words")
    assert len(message) < 64 << 10
    found = parse_exchanged(code, message, 8)
    assert found.state == "failed"
    assert "stopped" in found.message
    assert "the same words" in message


@pytest.mark.parametrize("shell", SHELLS)
def test_an_exchange_keeps_its_exit_code_and_its_last_words(pod: Pod, shell: str) -> None:
    script = "echo first; echo 'exit 0' >&2; printf 'no \\000 end'; exit 7"
    assert pod.exchange(shell, "sh", "-c", script) == (7, "first\nexit 0\nno  end\n")
    assert pod.exchange(shell, "true") == (0, "\n")
    assert pod.exchange(shell, "no-such-program")[0] == 127


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


def matrix(gpus: int, missing: set[tuple[int, int]], cell: str = "276.10") -> str:
    lines = ["memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)"]
    lines.append("  " + "".join(f"{column:>10}" for column in range(gpus)))
    for row in range(gpus):
        cells = (
            "N/A" if row == column or {(row, column), (column, row)} & missing else cell
            for column in range(gpus)
        )
        lines.append(f"{row:>2}" + "".join(f"{one:>10}" for one in cells))
    return "\n".join([*lines, "", "SUM device_to_device_memcpy_read_ce 1.00", ""])


def test_a_gpu_without_access_to_any_other_one_is_named() -> None:
    text = matrix(8, {(gpu, 3) for gpu in range(8) if gpu != 3})
    found = parse_exchanged(0, text, 8, "nvbandwidth")
    assert found == Exchanged("partial", "GPU 3 of the pod has no access to another one", (3,))


def test_pairs_without_access_to_each_other_are_named() -> None:
    """GPUs of different CPUs, without NVSwitches between them."""
    text = matrix(4, {(0, 2), (0, 3), (1, 2), (1, 3)})
    found = parse_exchanged(0, text, 4, "nvbandwidth")
    assert (found.state, found.alone) == ("partial", ())
    assert found.message.endswith("to each other: 0 and 2, 0 and 3, 1 and 2, 1 and 3")
    text = matrix(8, {(one, two) for one in range(4) for two in range(4, 8)})
    assert parse_exchanged(0, text, 8).message.endswith("1 and 7 and 8 more pairs")


@pytest.mark.parametrize("cell", ["nan", "-nan", "inf", "0", "-1.00", "?", "0.00e+00"])
def test_a_cell_that_is_no_bandwidth_is_a_failure(cell: str) -> None:
    found = parse_exchanged(0, matrix(2, set(), cell), 2)
    assert found.state == "failed"
    assert found.message.startswith("no data moved between the GPUs 0 and 1")


@pytest.mark.parametrize(("text", "last"), [("", "nothing"), ("hello\n", "hello")])
@pytest.mark.parametrize("program", ["nvbandwidth", "/opt/nvbandwidth"])
def test_nvbandwidth_without_a_matrix_has_proven_nothing(
    text: str, last: str, program: str
) -> None:
    assert parse_exchanged(0, text, 2, program) == Exchanged(
        "failed", f"the program printed no matrix: {last}"
    )
    assert parse_exchanged(0, text, 2, "all_reduce_perf").state == "ok"
    assert parse_exchanged(0, "Waived: \n", 2, program).state == "nothing"


def test_the_worst_of_several_matrices_counts() -> None:
    well, bad = matrix(4, set()), matrix(4, set(), "0.00")
    assert parse_exchanged(0, f"{well}\n{well}", 4).state == "ok"
    assert parse_exchanged(0, f"{bad}\n{well}", 4).state == "failed"
    # The kubelet has cut the start of the first.
    assert parse_exchanged(0, f"{bad[120:]}\n{well}", 4).state == "ok"
    assert parse_exchanged(0, matrix(3, set()), 4).message == "the result has 3 of 4 GPUs"


def test_the_arguments_of_the_exchange_are_no_part_of_a_script(pod: Pod) -> None:
    assert pod.exchange("sh", "echo", "a b", "$HOME; ls") == (0, "a b $HOME; ls\n\n")
