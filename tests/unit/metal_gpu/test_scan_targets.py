# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from metal_gpu.targets import TargetsInvalid, parse


def _problems(*words: str, limit: int = 4096) -> tuple[str, ...]:
    with pytest.raises(TargetsInvalid) as caught:
        parse(words, limit)
    return caught.value.problems


@pytest.mark.parametrize(
    ("word", "hosts"),
    [
        pytest.param("gpu-1", ["gpu-1"], id="name"),
        pytest.param("gpu-1.rack.example.", ["gpu-1.rack.example."], id="long-name"),
        pytest.param("10.0.0.7", ["10.0.0.7"], id="address"),
        pytest.param("10.0.0.0/30", ["10.0.0.1", "10.0.0.2"], id="network"),
        pytest.param("10.0.0.0/31", ["10.0.0.0", "10.0.0.1"], id="pair"),
        pytest.param("10.0.0.4/32", ["10.0.0.4"], id="one"),
        pytest.param("host-[1-3]", ["host-1", "host-2", "host-3"], id="range"),
        pytest.param("host-[08-10]", ["host-08", "host-09", "host-10"], id="zeros"),
        pytest.param("r[1,3]-n[1-2].x", ["r1-n1.x", "r1-n2.x", "r3-n1.x", "r3-n2.x"], id="two"),
        pytest.param("10.0.0.[9-10]", ["10.0.0.9", "10.0.0.10"], id="addresses"),
        pytest.param("2001:db8::7", ["2001:db8::7"], id="ipv6"),
        pytest.param("[2001:db8::7]", ["2001:db8::7"], id="ipv6-brackets"),
        pytest.param("[2001:db8::]/126", [f"2001:db8::{n}" for n in "123"], id="ipv6-network"),
        pytest.param("2001:db8::/127", ["2001:db8::", "2001:db8::1"], id="ipv6-pair"),
    ],
)
def test_hosts(word: str, hosts: list[str]) -> None:
    assert [target.host for target in parse([word])] == hosts


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("admin@gpu-1:2222", ("gpu-1", 2222, "admin")),
        ("gpu-[1-1]:2222", ("gpu-1", 2222, None)),
        ("admin@[2001:db8::7]:2222", ("2001:db8::7", 2222, "admin")),
        ("admin@2001:db8::7", ("2001:db8::7", None, "admin")),
        ("root@10.0.0.4/32:22", ("10.0.0.4", 22, "root")),
    ],
)
def test_user_and_port(word: str, expected: tuple[str, int | None, str | None]) -> None:
    (target,) = parse([word])
    assert (target.host, target.port, target.user) == expected


def test_sizes_are_those_of_the_networks() -> None:
    assert len(parse(["10.0.0.0/24"])) == 254
    assert len(parse(["[2001:db8::]/120"])) == 255


def test_only_addresses_of_networks_may_not_exist() -> None:
    targets = parse(["10.0.0.0/30", "10.0.0.2", "host-[1-2]"])
    assert [(one.host, one.is_member) for one in targets] == [
        ("10.0.0.1", True),
        ("10.0.0.2", False),
        ("host-1", False),
        ("host-2", False),
    ]


def test_single_hosts_are_the_users_own() -> None:
    targets = parse(["10.0.0.0/30", "10.0.0.2", "host-[1-2]", "host-2", "10.0.0.[8-9]", "gpu-1"])
    assert [one.host for one in targets if one.is_of_many] == [
        "10.0.0.1",
        "host-1",
        "10.0.0.8",
        "10.0.0.9",
    ]


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("# rack 1\ngpu-[1-2]  admin@gpu-3 # new\n\n10.0.0.9\n")
    targets = parse([f"@{path}"])
    assert [one.host for one in targets] == ["gpu-1", "gpu-2", "gpu-3", "10.0.0.9"]
    assert targets[3].place == f"{path}, line 4"


def test_twice_is_once() -> None:
    targets = parse(["gpu-1", "GPU-1", "admin@gpu-1", "gpu-1:2222"])
    assert [(one.host, one.port, one.user) for one in targets] == [
        ("gpu-1", None, "admin"),
        ("gpu-1", 2222, None),
    ]


def test_names_that_collide() -> None:
    (problem,) = _problems("admin@gpu-1", "root@Gpu-1")
    assert problem == (
        "argument 2: Gpu-1 is named with the user root, and with the user admin in argument 1. "
        "Name it once"
    )


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("10.0.0.5/24", "Name the network, 10.0.0.0/24, or the address without /24"),
        ("10.0.0.0/33", "10.0.0.0/33 is not a network such as 10.0.0.0/24"),
        ("10.0.0.1-20", "a range as 10.0.0.[1-9]"),
        ("10.0.0.300", "10.0.0.300 is not an address"),
        ("gpu-1:0", "the port '0'"),
        ("gpu-1:ssh", "the port 'ssh'"),
        ("gpu-1:99999", "the port '99999'"),
        ("gpu-[1-40", "a bracket without the other one"),
        ("gpu-[1:40]", "a range is like [1-40]"),
        ("gpu-[9-1]", "ends before it starts"),
        ("gpu-[]", "a range is like"),
        ("gpu_1!", "gpu_1! is not a host name"),
        ("-oProxyCommand=true", "is not a host name"),
        ("", " is not a host name"),
        ("a b@gpu-1", "no valid user name"),
        ("2001:db8:::7", "is neither an address nor a name"),
        ("x" * 64, "is not a host name"),
    ],
)
def test_bad_word(word: str, text: str) -> None:
    (problem,) = _problems(word)
    assert text in problem
    assert problem.startswith("argument 1: ")


def test_too_many_addresses_are_refused_before_they_are_listed() -> None:
    (problem,) = _problems("10.0.0.0/8")
    assert "10.0.0.0/8 has 16777214 addresses" in problem
    assert "--max-addresses 16777214" in problem
    (problem,) = _problems("host-[1-999999999]")
    assert "999999999 of at most 4096" in problem
    (problem,) = _problems("[2001:db8::]/64")
    assert "18446744073709551615 addresses" in problem


def test_the_limit_counts_all_words() -> None:
    (problem,) = _problems("10.0.0.0/30", "10.0.1.0/30", limit=3)
    assert "argument 2: 10.0.1.0/30 has 2 addresses; with those before it, that is 4" in problem
    assert len(parse(["10.0.0.0/30", "10.0.1.0/30"], limit=4)) == 4


def test_everything_is_reported_at_once(tmp_path: Path) -> None:
    good, binary, empty = tmp_path / "hosts.txt", tmp_path / "binary", tmp_path / "empty"
    good.write_text("gpu-1\ngpu-[x]\n@other.txt\n")
    binary.write_bytes(b"gpu-1\n\xff\xfe\n")
    empty.write_text("# nothing\n")
    missing = tmp_path / "missing"
    problems = _problems(f"@{good}", f"@{binary}", f"@{empty}", f"@{missing}", f"@{tmp_path}", "!")
    assert [problem.partition(" ")[0] for problem in problems] == [
        f"{good},",
        f"{good},",
        *["argument"] * 5,
    ]
    assert problems[0].startswith(f"{good}, line 2: gpu-[x]")
    assert problems[1] == f"{good}, line 3: @other.txt names another file. Name it as an argument"
    assert f"{binary}, line 2: the text is not UTF-8" in problems[2]
    assert f"{empty} has no targets" in problems[3]
    assert f"cannot read {missing}: No such file or directory" in problems[4]
    assert f"cannot read {tmp_path}: Is a directory" in problems[5]
