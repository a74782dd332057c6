# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The laboratory itself: up twice, two at once, up after a crash, and no trace after down."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from metal_lab.processes import Process, is_alive

PROJECT = Path(__file__).resolve().parents[3]
DESCRIPTION = {"nodes": [{"name": "gpu-1", "os": "debian12", "machine": "t4x1"}]}
NAME = "molecule-crash"
FOLDER = PROJECT / ".lab" / NAME


def lab(*words: str) -> str:
    command = [PROJECT / "tests/lab/lab", words[0], f"--name={NAME}", *words[1:]]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def docker(label: str, *words: str) -> list[str]:
    """Return the Docker objects with a label."""
    command = ["docker", *words, "--quiet", f"--filter=label={label}"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


@pytest.fixture
def description(tmp_path: Path) -> Path:
    path = tmp_path / "lab.yml"
    path.write_text(yaml.safe_dump(DESCRIPTION))
    return path


@pytest.fixture
def crashed(description: Path) -> Iterator[None]:
    """A second laboratory whose start was killed half way."""
    command = [PROJECT / "tests/lab/lab", "up", f"--name={NAME}", description]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starting:
        assert starting.stdout
        for line in starting.stdout:
            if line.startswith("booting"):
                starting.send_signal(signal.SIGKILL)
    yield
    lab("down")


def test_up_clears_a_crashed_laboratory_and_down_leaves_nothing(crashed, description, laboratory):
    left = set(json.loads((FOLDER / "lab.json").read_text())["processes"])
    assert "kube-apiserver" in left

    assert "is up:" in lab("up", str(description))
    processes = json.loads((FOLDER / "lab.json").read_text())["processes"].values()
    label = json.loads(lab("facts"))["label"]
    assert docker(label, "ps", "--all")
    assert "is up already" in lab("up", str(description))
    assert laboratory.objects("nodes")["items"], "the other laboratory has lost its API server"

    lab("down")
    assert not FOLDER.exists()
    assert [docker(label, "ps", "--all"), docker(label, "network", "ls")] == [[], []]
    assert [process for process in processes if is_alive(Process(*process))] == []
