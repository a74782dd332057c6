# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import signing

KEY = "/var/lib/dkms/mok.pub"


@pytest.mark.parametrize(
    ("printed", "state"),
    [
        (f"{KEY} is already enrolled\n", "enrolled"),
        (f"{KEY} is already in db\n", "enrolled"),
        (f"{KEY} is already in the built-in trusted keyring\n", "enrolled"),
        (f"{KEY} is already in the enrollment request\n", "requested"),
        (f"{KEY} is not enrolled\n", "missing"),
        ("EFI variables are not supported on this system\n", "unknown"),
        (f"{KEY} is blocked in dbx\n", "unknown"),
        ("", "unknown"),
    ],
)
def test_what_mokutil_says(printed: str, state: str) -> None:
    """Its exit code is 1 for an enrolled key and for a requested one: see the records."""
    assert signing.parse_state(printed) == state


@pytest.mark.parametrize(
    ("texts", "path"),
    [
        ([], None),
        (["# mok_certificate=/x\n"], None),
        (['mok_certificate="/a"\n', "mok_certificate=/b\n"], "/b"),
    ],
)
def test_the_certificate_of_the_settings(texts: list[str], path: str | None) -> None:
    assert signing.parse_certificate(texts) == path
