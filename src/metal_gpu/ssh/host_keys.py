# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is it the right machine? Its key has to be in known_hosts before anything is sent to it.

StrictHostKeyChecking and "UserKnownHostsFile /dev/null" of ~/.ssh/config do not count: whoever
disabled the check there did so for the typing of one person, and not for commands that go to
hundreds of machines with a password.
"""

from __future__ import annotations

from collections.abc import Sequence

import paramiko

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from metal_gpu.hosts import Host
from metal_gpu.ssh import known_hosts
from metal_gpu.ssh.known_hosts import Entry
from metal_gpu.ssh.settings import Settings, Unreachable
from metal_gpu.ssh.targets import Target

# The algorithms by which a machine proves that it has a key of this kind.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
# Names as in the files of sshd: /etc/ssh/ssh_host_NAME_key.pub.
_NAMES = {"ssh-rsa": "rsa", "ssh-ed25519": "ed25519"}
# Names and keys that this run has accepted for addresses of a network, which nobody has named.
_unproven: set[tuple[str, bytes]] = set()


def known(target: Target) -> list[Entry]:
    """Return what known_hosts has for a machine. Raises OSError."""
    entries = known_hosts.read(target.known_hosts)
    return known_hosts.find(entries, target.known_as)


def prefer(transport: paramiko.Transport, entries: Sequence[Entry]) -> None:
    """Ask first for a key of a known kind: a machine has several, and offers one."""
    options = transport.get_security_options()
    kinds = [one.kind for one in entries if not one.marker]
    first = [name for kind in kinds for name in _ALGORITHMS.get(kind, (kind,))]
    offered = options.key_types
    wanted = [name for name in dict.fromkeys(first) if name in offered]
    options.key_types = (*wanted, *(name for name in offered if name not in wanted))


def check(
    host: Host, target: Target, settings: Settings, entries: Sequence[Entry], key: paramiko.PKey
) -> bool:
    """Tell whether the machine may get passwords, if known_hosts has its key.

    With the permission in the settings, a key is added for a machine that has none. Where nobody
    has named the machine, that can be any server, so it gets no password in this run.

    Raises Unreachable and OSError.
    """
    blob, kind = key.asbytes(), key.get_name()
    same = [one for one in entries if one.blob == blob]
    # As for ssh, an entry without a port permits its key at any port, and forbids no other one: a
    # forwarded port leads to another machine.
    name = target.known_as[0]
    is_proven = (name, blob) not in _unproven
    others = [one for one in entries if not one.marker and one.matches(name)]
    revoked = next((one for one in same if one.marker == "@revoked"), None)
    if same and not revoked:
        return is_proven
    if revoked or others:
        entry = revoked or next((one for one in others if one.kind == kind), others[0])
        expected = "that it is revoked" if revoked else f"the {entry.kind} key {entry.fingerprint}"
        raise _refused(
            "HOST_KEY_CHANGED",
            host,
            target,
            kind,
            blob,
            file=entry.file,
            expected=f"{expected} in line {entry.line}",
        )
    if not settings.accept_new_host_keys:
        file = target.new_keys
        # The finding starts with the name of the host.
        machine = {"machine": "the machine"} if name == host.name else {}
        raise _refused(
            "HOST_KEY_UNKNOWN", host, target, kind, blob, file=file, name=_name(kind), **machine
        )
    known_hosts.add(target.new_keys, name, kind, blob, hashed=target.hash_known_hosts)
    if not host.named:
        _unproven.add((name, blob))
    return host.named


def _refused(
    code: str, host: Host, target: Target, kind: str, blob: bytes, **more: object
) -> Unreachable:
    found = finding(
        code,
        host.name,
        **{"machine": target.known_as[0], **more},
        kind=kind,
        fingerprint=known_hosts.fingerprint(blob),
    )
    return Unreachable(found)


def _name(kind: str) -> str:
    return _NAMES.get(kind, "ecdsa")
