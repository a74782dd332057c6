# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from metal_gpu.banners import other_system, parse_identification

_RECORD = Path(__file__).parents[2] / "recorded" / "ssh_banners.yml"
_STRINGS = yaml.safe_load(_RECORD.read_text())["strings"]


@pytest.mark.parametrize("row", _STRINGS, ids=lambda row: row["text"])
def test_recorded(row: dict[str, str | None]) -> None:
    assert other_system(str(row["text"])) == row["of"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "SSH-2.0-OpenSSH_9.2p1"),
        (b"SSH-2.0-OpenSSH_9.2p1\n", "SSH-2.0-OpenSSH_9.2p1"),
        (b"Authorized use only\r\nSSH-2.0-x\r\n", "SSH-2.0-x"),
        (b"SSH-2.0-\x1b[31mx\r\n", "SSH-2.0-?[31mx"),
        (b"220 ftp.example ready\r\n", None),
        (b"", None),
    ],
)
def test_identification(said: bytes, expected: str | None) -> None:
    assert parse_identification(said) == expected
