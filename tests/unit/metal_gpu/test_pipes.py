# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A reader that ends before the command does, as `head` does, and a disk that is full."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.support import command, small_collection
from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Machine, Server
from metal_gpu.terminal import exit_codes

_INCOMPLETE = "error: the output is not complete: No space left on device\n"
# Port 1 of this machine refuses each connection.
_NOBODY = "127.0.0.1:1"


@contextmanager
def _broken() -> Iterator[int]:
    """Return a pipe whose reader has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


@contextmanager
def _full() -> Iterator[int]:
    """Return a file on a full disk."""
    with Path("/dev/full").open("wb") as file:
        yield file.fileno()


def _unread(
    *words: str,
    streams: str = "out",
    module: str = "metal_gpu",
    place: Callable[[], AbstractContextManager[int]] = _broken,
    **options: Any,
) -> Any:
    """Run a command that nobody reads. Return what it says otherwise, and its exit code."""
    with place() as pipe:
        done = subprocess.run(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.DEVNULL,
            stdout=pipe if "out" in streams else subprocess.PIPE,
            stderr=pipe if "err" in streams else subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
            **{"env": command.environment(), **options},
        )
    return f"{done.stdout or ''}{done.stderr or ''}", done.returncode


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "doctor --help",
        f"doctor {_NOBODY}",
        f"doctor {_NOBODY} --json",
        f"scan {_NOBODY}",
        f"scan {_NOBODY} --json",
        "top localhost --json",  # would go on for ever
        "explain XID_79",
        "explain XID_79 --json",
    ],
)
def test_a_command_that_only_reads_ends(words: str) -> None:
    said, code = _unread(*words.split())
    assert code == exit_codes.UNREAD
    assert "Traceback" not in said
    assert "Exception" not in said


@pytest.mark.parametrize("words", [f"doctor {_NOBODY}", f"scan {_NOBODY} --json", "explain x"])
def test_a_command_whose_messages_nobody_reads_ends(words: str) -> None:
    """As with `2>&1 | head`."""
    assert _unread(*words.split(), streams="out err") == ("", exit_codes.UNREAD)


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "words", ["--help", "explain XID_79", "explain XID_79 --json", f"doctor {_NOBODY} --json"]
)
def test_a_full_disk_is_one_line_and_no_finding(words: str, unbuffered: str) -> None:
    environment = command.environment(PYTHONUNBUFFERED=unbuffered)
    done = _unread(*words.split(), place=_full, env=environment)
    assert done == (_INCOMPLETE, exit_codes.UNWRITTEN)
    done = _unread(*words.split(), place=_full, streams="out err", env=environment)
    assert done == ("", exit_codes.UNWRITTEN)


def test_the_plugin_of_kubectl_ends() -> None:
    said, code = _unread("--help", module="metal_gpu.terminal.kubectl")
    assert (said, code) == ("", exit_codes.UNREAD)


def test_the_first_line_is_enough() -> None:
    """What follows does not fit a pipe."""
    process = subprocess.Popen(
        [sys.executable, "-m", "metal_gpu", "doctor", *map("127.0.0.1:{}".format, range(1, 200))],
        env=command.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline()
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    assert process.wait() == exit_codes.UNREAD


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["lines", "json"])
def test_a_scan_that_writes_an_inventory_goes_on(
    options: tuple[str, ...],
    start: Callable[[Machine], Server],
    key: Any,
    home: Path,
    tmp_path: Path,
) -> None:
    """This machine has no GPU, and that is the last thing that the command says."""
    place = f"admin@127.0.0.1:{start(Machine(keys=[key])).port}"
    environment = command.environment(HOME=str(home))
    words = ["scan", place, "--accept-new-host-keys", *options]
    assert _unread(*words, env=environment)[1] == exit_codes.UNREAD
    file = tmp_path / "inventory.yml"
    said, code = _unread(*words, "--write", str(file), env=environment)
    assert f"{file}: not changed" in said
    assert code == exit_codes.OK


@pytest.mark.parametrize(
    ("option", "host", "expected", "last"),
    [
        ("--plain", {}, 0, "metal_gpu_outcome: ok"),
        ("--json", {"fails": True}, 2, "failed: gpu-1"),
    ],
)
@pytest.mark.parametrize(("place", "errors"), [(_broken, 0), (_full, 1)], ids=["unread", "full"])
def test_a_playbook_goes_on(
    place: Any,
    errors: int,
    option: str,
    host: dict[str, object],
    expected: int,
    last: str,
    tmp_path: Path,
) -> None:
    """Nodes are not left halfway, and the exit code is that of ansible-playbook."""
    environment = command.environment(**small_collection.plant(tmp_path, {"gpu-1": host}))
    beside = str(Path(sys.executable).parent)
    environment["PATH"] = os.pathsep.join([beside, os.environ["PATH"]])
    said, code = _unread("small", option, cwd=tmp_path, env=environment, place=place)
    assert code == expected, said
    assert said.count(_INCOMPLETE) == errors
    assert "Traceback" not in said
    (log,) = (tmp_path / "state" / "metal-gpu" / "logs").iterdir()
    assert log.read_text().splitlines()[-1] == last
