# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The keys that sign the mirror."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KEY_NAME = "metal-lab"


@contextmanager
def gpg_of(home: Path) -> Iterator[Callable[..., str]]:
    """Yield a function that runs gpg in this home. Stop gpg's agent afterwards.

    The agent stops a moment later: a new gpg process in the same home can still meet it.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = ["--batch", "--yes", "--quiet", "--pinentry-mode=loopback", "--passphrase="]

    def gpg(*arguments: str | Path) -> str:
        command = ["gpg", "--no-permission-warning", f"--homedir={home}", *options, *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

    try:
        yield gpg
    finally:
        subprocess.run(["gpgconf", f"--homedir={home}", "--kill", "gpg-agent"], check=True)


def only_fingerprint(gpg: Callable[..., str]) -> str:
    """Return the fingerprint of the home's only key. The first call creates it."""
    if not gpg("--list-secret-keys", "--with-colons"):
        gpg("--quick-generate-key", KEY_NAME, "ed25519", "sign", "never")
    listing = gpg("--list-secret-keys", "--with-colons")
    return next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))
