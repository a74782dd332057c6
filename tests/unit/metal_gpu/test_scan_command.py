# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `metal-gpu scan` prints, and its exit codes, without a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.tests.unit.support.command import parsed
from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Machine as SshMachine
from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Server
from metal_gpu.answering import Answer, State
from metal_gpu.hosts import Host
from metal_gpu.nodes import Node
from metal_gpu.reach import Reached
from metal_gpu.scan import Found, Machine, find
from metal_gpu.ssh.settings import Settings
from metal_gpu.targets import Target
from metal_gpu.terminal import exit_codes, scan_inventory
from metal_gpu.terminal import scan as command

_VIRGIN = Path(__file__).parents[1] / "fixtures" / "plans" / "virgin.yml"


def _code(*words: str, **options: Any) -> int:
    with pytest.raises(typer.Exit) as ended:
        command.scan([*words], timeout=5.0, **options)
    return ended.value.exit_code


def _machine(host: str = "gpu-1", **changes: Any) -> Machine:
    target = Target(host, None, None, "argument 1")
    reached = Reached(Host(host, host), Answer(target, 22, State.SSH, "SSH-2.0-x"))
    observed: Any = {**yaml.safe_load(_VIRGIN.read_text()), **changes}
    (machine,) = find([reached], lambda hosts: [Node(hosts[0], observed)])
    return machine


def _refusing(address: str) -> dict[str, Any]:
    refused = finding(
        "LOGIN_REFUSED",
        address,
        machine=address,
        user="admin",
        login=f"admin@{address}",
        error="no key",
    )
    return {"observed": False, "host": address, "address": address, "finding": refused}


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    silent: Machine = {**_machine("gpu-2"), "observed": False, "gpus": [], "problem": "no answer"}
    found = Found([_machine(), silent], ["one machine"], ["x collides"])
    command._show(found, quiet=False, asked=254)
    shown = capsys.readouterr()
    head, line, row, addresses, end = shown.out.splitlines()
    assert head.split()[:3] == ["host", "GPUs", "driver"]
    assert set(line.strip()) <= {"─", " "}
    assert row.split()[:4] == ["gpu-1", "2", "Tesla", "P100-PCIE-16GB"]
    assert "Debian GNU/Linux 12 (bookworm)" in row
    assert addresses == "gpu-1: Tesla P100-PCIE-16GB: 0000:03:00.0, 0000:04:00.0"
    assert end == "254 addresses asked, 1 machine observed, 2 GPUs"
    assert shown.err.splitlines() == ["gpu-2: no answer", "one machine", "x collides"]
    refusing: Any = {**_machine(), **_refusing("10.0.0.1")}
    command._show(Found([_machine(), refusing], [], []), quiet=False, asked=254)
    end = capsys.readouterr().out.splitlines()[-1]
    assert end == "254 addresses asked, 1 machine observed, 2 GPUs; 1 machine refused the login"
    command._show(Found([_machine()], ["one machine"], []), quiet=True, asked=254)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")


@pytest.mark.parametrize(
    ("machines", "collisions", "code"),
    [
        pytest.param([{}], [], exit_codes.OK, id="good"),
        pytest.param([{}], ["x collides"], exit_codes.FOUND, id="collides"),
        pytest.param([], [], exit_codes.NOT_ASKED, id="nobody"),
        pytest.param([{"observed": False}, {}], [], exit_codes.NOT_ASKED, id="named"),
        pytest.param(
            [{"observed": False, "address": "10.0.0.1"}, {}], [], exit_codes.OK, id="switch"
        ),
        pytest.param(
            [{"observed": False, "address": "10.0.0.1", "finding": {"code": "X"}}, {}],
            [],
            exit_codes.NOT_ASKED,
            id="member-with-a-finding",
        ),
        pytest.param([_refusing("10.0.0.1"), {}], [], exit_codes.OK, id="member-refuses"),
        pytest.param([_refusing("gpu-2"), {}], [], exit_codes.OK, id="one-of-a-range-refuses"),
        pytest.param([_refusing("gpu-1"), {}], [], exit_codes.NOT_ASKED, id="named-refuses"),
        pytest.param([_refusing("10.0.0.1")], [], exit_codes.NOT_ASKED, id="only-refusals"),
        pytest.param(
            [{**_refusing("10.0.0.1"), "port": 2222}, {}],
            [],
            exit_codes.NOT_ASKED,
            id="another-port-of-a-member-is-named",
        ),
        pytest.param(
            [{**_refusing("10.0.0.1"), "host": "10.0.0.1, behind a gate"}, {}],
            [],
            exit_codes.NOT_ASKED,
            id="another-host-refuses",
        ),
        pytest.param(
            [{"observed": False, "address": "gpu-2"}, {}],
            [],
            exit_codes.NOT_ASKED,
            id="one-of-a-range-is-silent",
        ),
    ],
)
def test_exit_codes(machines: list[dict[str, Any]], collisions: list[str], code: int) -> None:
    chosen = [
        Target("10.0.0.1", None, None, "argument 1", is_member=True, is_of_many=True),
        Target("gpu-1", None, None, "argument 2"),
        Target("gpu-2", None, None, "argument 3", is_of_many=True),
        Target("10.0.0.1", 2222, None, "argument 4"),
    ]
    found: Any = [{**_machine(), **changes} for changes in machines]
    named = Found(found, ["10.1.0.1 and 10.0.0.1 are the same machine"], collisions)
    assert command._exit_code(named, chosen) == code


def test_a_strict_scan_ends_with_each_refusal() -> None:
    chosen = [
        Target("10.0.0.1", None, None, "argument 1", is_member=True, is_of_many=True),
        Target("gpu-1", None, None, "argument 2"),
    ]
    machines: Any = [{**_machine(), **changes} for changes in (_refusing("10.0.0.1"), {})]
    found = Found(machines, [], [])
    assert command._exit_code(found, chosen) == exit_codes.OK
    assert command._exit_code(found, chosen, strict=True) == exit_codes.NOT_ASKED


def test_command(
    start: Callable[[SshMachine], Server],
    key: object,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """This machine, which has no GPU, through SSH."""
    server = start(SshMachine(keys=[key]))  # type: ignore[list-item]
    place = f"admin@127.0.0.1:{server.port}"
    path = tmp_path / "inventory.yml"
    assert _code(place, accept_new_host_keys=True, write=path, as_json=True) == exit_codes.OK
    document = parsed("scan", capsys.readouterr().out)
    assert document["machines"][0]["observed"]
    assert document["inventory"] is None
    assert not path.exists()
    assert _code(place, "127.0.0.1:1") == exit_codes.NOT_ASKED
    assert "127.0.0.1-1: Connection refused" in capsys.readouterr().err


def test_document_has_the_inventory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, machines = tmp_path / "inventory.yml", [_machine()]
    prepared = scan_inventory.prepared(path, machines, Settings(user="admin"))
    chosen = [Target("gpu-1", None, None, "argument 1")]
    command._print_document(chosen, Found(machines, [], []), prepared)
    inventory = parsed("scan", capsys.readouterr().out)["inventory"]
    assert (inventory["path"], inventory["written"]) == (str(path), True)
    assert "    gpu-1:" in inventory["lines"]


def test_unusable_configuration_of_ssh(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".ssh" / "config").write_text("ConnectTimeout soon\n")
    assert _code("127.0.0.1:1") == exit_codes.USAGE
    assert "/.ssh/config" in capsys.readouterr().err


def test_a_target_that_the_configuration_of_ssh_has_no_valid_key_for(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".ssh" / "config").write_text("Host gpu-1\n IdentityFile /keys/%C\n")
    assert _code("gpu-1", "127.0.0.1:1") == exit_codes.NOT_ASKED
    said = capsys.readouterr().err
    assert "gpu-1: the node cannot be reached: the configuration of ssh cannot be used" in said
    assert "127.0.0.1: Connection refused" in said


def test_unusable_targets(capsys: pytest.CaptureFixture[str]) -> None:
    assert _code("gpu-[x]", "10.0.0.5/24") == exit_codes.USAGE
    assert len(capsys.readouterr().err.splitlines()) == 2
