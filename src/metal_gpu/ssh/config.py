# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What OpenSSH would use for a host, as `ssh -G` prints it.

ssh reads its files itself, with Include, Match, names that become canonical, and defaults.

Source: ssh(1), -G; run with OpenSSH 9.2
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

_LIMIT_S = 30.0  # for the programs of `Match exec`, and for name servers


class ConfigInvalid(Exception):
    """The configuration of ssh cannot be used; the message says why."""


def ask(address: str, options: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the values of each keyword, which is in lower case. Raises ConfigInvalid, and OSError.

    ProxyJump, ProxyCommand and IdentityFile can have tokens such as %h.
    """
    # With a command, as Ansible calls it: so `Match sessiontype exec` holds.
    line = ["ssh", "-G", "-o", "RemoteCommand=none", *options, "--", address, "sh"]
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=False
        )
    except FileNotFoundError as error:
        raise ConfigInvalid(
            "this computer has no program ssh. Install it: the package openssh-client on Debian "
            "and Ubuntu, openssh-clients on Red Hat's systems"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ConfigInvalid(
            f"`ssh -G {address}` does not end within {_LIMIT_S:.0f} s. A program of `Match exec` "
            "or a name server does not answer"
        ) from error
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").split("\n")
        raise ConfigInvalid("; ".join(filter(None, map(str.strip, words))))
    values: dict[str, tuple[str, ...]] = {}
    for text in os.fsdecode(done.stdout).splitlines():
        keyword, _blank, value = text.partition(" ")
        values[keyword] = (*values.get(keyword, ()), value)
    return values
