# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What shells get: the script of completion, and what it completes to."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.tests.unit.support import command

SHELLS = {"bash": "complete ", "zsh": "#compdef", "fish": "complete --command"}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_printed(shell):
    found = command.run(
        "--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert found.returncode == 0, found.stderr
    assert SHELLS[shell] in found.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("metal-gpu ", {"explain", "site", "plan", "verify", "teardown", "cluster"}),
        ("metal-gpu ex", {"explain"}),
        ("metal-gpu site --li", {"--limit"}),
        ("metal-gpu cluster ", {"show", "verify"}),
        ("metal-gpu explain GPU_FAU", {"GPU_FAULTY"}),
        ("metal-gpu explain gpu_fau", {"gpu_faulty"}),
        ("metal-gpu explain XID_7", {"XID_79"}),
        ("metal-gpu plan --tags ", {"driver", "kubelet", "verify"}),
        ("metal-gpu teardown --skip-tags driver,en", {"driver,engine"}),
    ],
)
def test_commands_options_and_their_values_are_completed(line, expected):
    words = line.split(" ")
    program = "from metal_gpu.terminal.main import app\napp(prog_name='metal-gpu')"
    found = command.run_program(
        program,
        _METAL_GPU_COMPLETE="complete_bash",
        COMP_WORDS=line,
        COMP_CWORD=str(len(words) - 1),
    )
    assert expected <= {*found.stdout.split()}, found.stdout + found.stderr


def test_without_the_collection_no_code_is_completed():
    program = """
import sys
sys.modules["ansible_collections.metal"] = None
from metal_gpu.terminal.main import app
app(prog_name="metal-gpu")
"""
    found = command.run_program(
        program,
        _METAL_GPU_COMPLETE="complete_bash",
        COMP_WORDS="metal-gpu explain GPU",
        COMP_CWORD="2",
    )
    assert (found.stdout.strip(), found.stderr) == ("", "")


def test_fish_gets_each_word_with_its_description_in_one_line():
    """fish would offer the first word of any other line as well."""
    program = (
        "import sys\nfrom metal_gpu.terminal.main import main\nsys.argv[0] = 'metal-gpu'\nmain()"
    )
    found = command.run_program(
        program,
        _METAL_GPU_COMPLETE="complete_fish",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        _TYPER_COMPLETE_ARGS="metal-gpu ",
        COLUMNS="80",
    )
    lines = [line.split("\t") for line in found.stdout.splitlines()]
    assert {"scan", "doctor"} <= {word for word, _description in lines}


@pytest.mark.parametrize("shell", ["zsh", "bash"])
def test_only_the_script_of_typer_is_finished(shell, tmp_path):
    """A file that the user has written stays as it is."""
    file = tmp_path / ".zfunc" / "_metal-gpu"
    file.parent.mkdir()
    file.write_bytes(b"#compdef metal-gpu\n# \xe9\n_files\n")
    found = command.run_program(
        "import sys\nfrom metal_gpu.terminal.main import main\n"
        f"sys.argv[:] = ['metal-gpu', '--install-completion', '{shell}']\nmain()",
        _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1",
        HOME=str(tmp_path),
    )
    assert found.returncode == 0, found.stderr
    is_typers = b'_metal_gpu_completion metal-gpu\n\n_metal_gpu_completion "$@"\n'
    assert file.read_bytes().endswith(is_typers if shell == "zsh" else b"\xe9\n_files\n")
