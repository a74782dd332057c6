# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu scan` as a program, against servers on addresses of 127.0.0.0/8."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ansible_collections.metal.gpu.tests.unit.support import command
from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Machine, Server
from metal_gpu.terminal import exit_codes

_ROOT = Path(__file__).parents[3]
_SCHEMA = json.loads((_ROOT / "src" / "metal_gpu" / "schemas" / "scan.json").read_text())

Scan = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def scan(home: Path) -> Scan:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT / '.ansible' / 'collections'}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
    }

    def run(
        *words: str | int | Path, answers: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "metal_gpu", "scan", "--timeout", "5", *map(str, words)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            input=answers,
        )

    return run


@contextmanager
def _says(words: bytes, address: str = "127.0.0.1") -> Iterator[int]:
    """Run a server that says these words to whoever connects."""
    listener = socket.create_server((address, 0))

    def serve() -> None:
        while True:
            try:
                connection, _peer = listener.accept()
            except OSError:
                return
            connection.sendall(words)
            connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_all_unusable_arguments_at_once(scan: Scan, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("127.0.0.1\n127.0.0.5/8\n")
    done = scan(f"@{hosts}", "gpu-[x]", "10.0.0.0/8")
    assert done.returncode == exit_codes.USAGE
    assert f"{hosts}, line 2: 127.0.0.5/8 is an address inside a network" in done.stderr
    assert "argument 2: gpu-[x]" in done.stderr
    assert "--max-addresses 16777215" in done.stderr
    assert done.stdout == ""


def test_a_machine_is_observed(
    scan: Scan, start: Callable[[Machine], Server], key: Any, home: Path
) -> None:
    """This machine, through a real SSH connection."""
    server = start(Machine(keys=[key]))
    identity = next(path for path in home.rglob("*") if path.suffix == ".pub").with_suffix("")
    options = ("--user", "admin", "--identity", identity, "--accept-new-host-keys")
    with _says(b"SSH-2.0-OpenSSH_for_Windows_9.5\r\n") as windows, _says(b"220 ftp\r\n") as ftp:
        others = (f"127.0.0.1:{windows}", f"127.0.0.1:{ftp}", "127.0.0.1:1")
        done = scan("--json", *options, f"127.0.0.1:{server.port}", *others)
    assert done.returncode == exit_codes.NOT_ASKED, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, _SCHEMA)
    seen, *rest = document["machines"]
    assert seen["observed"], seen
    assert seen["hostname"] == socket.gethostname()
    assert seen["kernel"] == os.uname().release
    assert seen["ssh"].startswith("SSH-2.0-paramiko")
    assert [one["problem"] for one in rest] == [
        "not a Linux machine, but Windows: SSH-2.0-OpenSSH_for_Windows_9.5",
        "no SSH server: it said '220 ftp'",
        "Connection refused",
    ]
    assert done.stderr == ""


def test_a_login_that_is_refused_has_its_remedy(
    scan: Scan, start: Callable[[Machine], Server]
) -> None:
    server = start(Machine(password="secret"))
    done = scan("--user", "admin", "--accept-new-host-keys", f"127.0.0.1:{server.port}")
    assert done.returncode == exit_codes.NOT_ASKED
    place = f"[127.0.0.1]:{server.port}"
    assert f"\n127.0.0.1: {place} does not let admin log in: " in f"\n{done.stderr}"
    assert "remedy: " in done.stderr


def test_a_machine_of_a_network_may_refuse_the_login(
    scan: Scan, start: Callable[[Machine], Server], key: Any
) -> None:
    """It can be somebody else's. `scan && site` goes on with those that let the user in."""
    good, other = start(Machine(keys=[key])), start(Machine(password="secret"))
    ours = f"127.0.0.1:{good.port}"
    words = ("--user", "admin", "--accept-new-host-keys", "--port", other.port, ours)
    done = scan(*words, "127.0.0.1/32")
    assert done.returncode == exit_codes.OK, done.stderr
    assert "does not let admin log in" in done.stderr
    assert "1 machine observed, 0 GPUs; 1 machine refused the login" in done.stdout
    assert scan(*words, "127.0.0.1/32", "--strict").returncode == exit_codes.NOT_ASKED
    assert scan(*words, "127.0.0.1").returncode == exit_codes.NOT_ASKED


def test_a_switch_in_a_network_is_no_problem_and_no_machine(scan: Scan) -> None:
    with _says(b"SSH-2.0-Cisco-1.25\r\n") as port:
        done = scan("--port", str(port), "127.0.0.0/30")
    assert done.returncode == exit_codes.NOT_ASKED  # nothing was observed
    assert "127.0.0.1: not a Linux machine, but a network device of Cisco" in done.stderr
    assert "127.0.0.2" not in done.stdout + done.stderr
    assert "2 addresses asked, 0 machines observed, 0 GPUs" in done.stdout


def test_an_inventory_is_checked_before_the_scan(scan: Scan, tmp_path: Path) -> None:
    path = tmp_path / "inventory.yml"
    path.write_text("gpu_nodes: [gpu-1\n")
    done = scan("127.0.0.1:1", "--write", path)
    assert done.returncode == exit_codes.USAGE
    assert str(path) in done.stderr
    assert "127.0.0.1: " not in done.stderr


def test_quiet(scan: Scan) -> None:
    done = scan("--quiet", "127.0.0.1:1")
    assert done.stdout == ""
    assert done.stderr == "127.0.0.1: Connection refused\n"


# Two machines of the laboratory, and one with a long name and two models.
_MACHINES = [
    ("gpu-1", ["Tesla P100-PCIE-16GB"] * 4, "Debian GNU/Linux 12 (bookworm)", "580.178.04"),
    ("gpu-2", ["Tesla T4"], "Debian GNU/Linux 13 (trixie)", None),
    ("gpu-3.rack-7.example.com", ["NVIDIA H100 80GB HBM3", "Tesla T4"], "Ubuntu 24.04.2 LTS", None),
]
_TABLE = """
from metal_gpu.scan import Found
from metal_gpu.terminal import scan
usual = {{"observed": True, "problem": None, "finding": None, "kernel": "6.18.44-fc-v782"}}
usual |= {{"engine": "containerd 2.4.2", "kubelet": "1.37.1"}}
machines = [
    usual
    | {{"host": host, "node": host.partition(".")[0], "system": system, "driver": driver}}
    | {{"gpus": [{{"model": model, "address": "0000:03:00.0"}} for model in models]}}
    for host, models, system, driver in {machines!r}
]
scan._show(Found(machines, [], []), quiet=False, asked=len(machines))
"""


def test_table_on_80_columns() -> None:
    """No word is cut, and what is missing is named."""
    lines, code = command.on_terminal("-c", _TABLE.format(machines=_MACHINES))
    assert code == 0, lines
    assert max(map(len, lines)) <= command.COLUMNS
    assert lines[0].split() == ["host", "GPUs", "driver", "cluster", "node"]
    assert lines[2].split() == ["gpu-1", "4", "Tesla", "P100-PCIE-16GB", "580.178.04", "gpu-1"]
    assert lines[4].split()[:6] == [
        "gpu-3.rack-7.example.com",
        "1",
        "NVIDIA",
        "H100",
        "80GB",
        "HBM3,",
    ]
    assert lines[5].split() == ["1", "Tesla", "T4"]
    assert lines[6] == "no room in 80 columns for: system, kernel, engine, kubelet"
    short, _code = command.on_terminal("-c", _TABLE.format(machines=_MACHINES[:2]))
    assert short[0].split() == ["host", "GPUs", "driver", "kubelet", "cluster", "node"]
    assert short[2].split()[:5] == ["gpu-1", "4", "Tesla", "P100-PCIE-16GB", "580.178.04"]


def test_scan_on_80_columns(start: Callable[[Machine], Server], key: Any, home: Path) -> None:
    """This machine, and one that does not answer."""
    port = start(Machine(keys=[key])).port
    identity = str(next(path for path in home.rglob("*") if path.suffix == ".pub").with_suffix(""))
    login = ("--user", "admin", "--identity", identity, "--accept-new-host-keys")
    words = (*login, f"127.0.0.1:{port}", "127.0.0.1:1")
    lines, code = command.on_terminal("-m", "metal_gpu", "scan", *words, HOME=str(home))
    assert code == exit_codes.NOT_ASKED
    assert max(map(len, lines)) <= command.COLUMNS
    assert any(line.split()[:1] == [socket.gethostname()] for line in lines)
    assert lines[-1].endswith(": Connection refused")
