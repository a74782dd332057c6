# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from metal_gpu.answering import Answer, State
from metal_gpu.reach import Reached, reach
from metal_gpu.ssh.settings import Settings
from metal_gpu.ssh.targets import ConfigInvalid
from metal_gpu.targets import parse


def _reach(*words: str, **settings: str) -> list[Reached]:
    return reach(parse(words), Settings(**settings))  # type: ignore[arg-type]


def test_address_and_port_of_the_configuration(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host gpu-1\n  HostName 127.0.0.1\n  Port 1\n")
    (one,) = _reach("gpu-1")
    assert (one.host.name, one.host.address, one.host.port) == ("gpu-1", "gpu-1", None)
    assert (one.answer.port, one.answer.state) == (1, State.REFUSED)
    assert one.answer.target.host == "gpu-1"


def test_a_machine_behind_a_jump_host_is_not_asked(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host gpu-*\n  ProxyJump bastion\n")
    first, second = _reach("gpu-1.invalid", "127.0.0.1:1")
    assert (first.answer.state, first.answer.identification) == (State.SSH, None)
    assert second.answer.state is State.REFUSED
    (one,) = _reach("127.0.0.1:1", jump="bastion")
    assert one.answer.state is State.SSH


def test_a_host_with_two_ports_has_two_names() -> None:
    names = [one.host.name for one in _reach("127.0.0.1:1", "127.0.0.1:2", "127.0.0.2:1")]
    assert names == ["127.0.0.1-1", "127.0.0.1-2", "127.0.0.2"]


def test_who_was_named() -> None:
    """An address of a network or a range can be somebody else's."""
    words = ["127.0.0.1:1", "127.0.0.[2-3]:1", "127.0.0.4/31:1"]
    named = {one.host.address: one.host.named for one in _reach(*words)}
    assert named == {f"127.0.0.{number}": number == 1 for number in range(1, 6)}


def test_a_configuration_that_cannot_be_read(home: Path) -> None:
    (home / ".ssh" / "config").write_text("ConnectTimeout soon\n")
    with pytest.raises(ConfigInvalid, match=r"config:? line 1: "):
        _reach("127.0.0.1:1")


def test_a_target_that_cannot_be_used_does_not_end_the_others(home: Path) -> None:
    (home / ".ssh" / "config").write_text("Host gpu-1\n  IdentityFile /keys/%C\n")
    heard: list[Answer] = []
    first, second = reach(parse(["gpu-1", "127.0.0.1:1"]), Settings(), heard=heard.append)
    assert first.answer.state is State.NOT_ASKED
    assert "only ssh knows %C" in str(first.answer.error)
    assert second.answer.state is State.REFUSED
    assert len(heard) == 2


@pytest.mark.parametrize("text", ["IdentityFile ~no-such-user/key\n", "UserKnownHostsFile 'a\n"])
def test_values_that_are_not_valid(home: Path, text: str) -> None:
    (home / ".ssh" / "config").write_text(text)
    with pytest.raises(ConfigInvalid):
        _reach("127.0.0.1:1")


def test_programs_of_match_exec_run_at_the_same_time(home: Path) -> None:
    """Each waits for the other."""
    program = home / "program"
    program.write_text(
        f"cd {home}; touch $1.here; until [ -e one.here ] && [ -e two.here ]; do sleep 0.05; done\n"
    )
    (home / ".ssh" / "config").write_text(
        f'Match exec "sh {program} %n"\n HostName 127.0.0.1\n Port 1\n'
    )
    assert [one.answer.port for one in _reach("one", "two")] == [1, 1]
