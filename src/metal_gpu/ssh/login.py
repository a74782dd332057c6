# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Log in to a machine with the keys and the password that there are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
from paramiko.pkey import PublicBlob

from metal_gpu.ssh.targets import Target


class LoginRefused(Exception):
    """The machine accepts none of the keys and passwords; the message says what was tried."""


def log_in(
    transport: paramiko.Transport, target: Target, password: str | None, *, use_agent: bool
) -> None:
    """Log in. Keys that are named come first, then those of the agent, then the password.

    Raises LoginRefused, and what paramiko raises if the connection breaks.
    """
    tried: list[str] = []
    accepted: list[str] = []
    agent = paramiko.Agent() if use_agent else None
    try:
        for name, key in _keys(target, agent, tried):
            tried.append(name)
            if _try_key(transport, target.user, key, accepted):
                return
        if password is not None:
            tried.append("the password")
            if _try_password(transport, target.user, password, accepted):
                return
    except paramiko.AuthenticationException as error:
        raise LoginRefused(f"{error}; tried: {', '.join(tried)}") from error
    finally:
        if agent:
            agent.close()
    if not tried:
        raise LoginRefused("no key and no password to offer")
    ways = f"; it accepts {', '.join(dict.fromkeys(accepted))}" if accepted else ""
    raise LoginRefused(f"refused: {', '.join(tried)}{ways}")


def _keys(
    target: Target, agent: paramiko.Agent | None, tried: list[str]
) -> Iterator[tuple[str, paramiko.PKey]]:
    """Yield the keys to offer, each once, with a name. Keys that cannot be read go to `tried`."""
    in_agent = {bytes(key.asbytes()): key for key in (agent.get_keys() if agent else ())}
    for path in target.key_files:
        public = _public_blob(path)
        if public in in_agent:
            yield f"the key {path} of the agent", in_agent.pop(public)
        elif key := _load(path, tried, is_named=True):
            yield f"the key {path}", key
    if not target.identities_only:
        for key in in_agent.values():
            yield f"the agent's key {key.fingerprint}", key
    if not target.key_files:
        for path in target.default_keys:
            if _public_blob(path) not in in_agent and (key := _load(path, tried, is_named=False)):
                yield f"the key {path}", key


def _public_blob(path: Path) -> bytes | None:
    """Return the public key beside a private one, or of a file that has only a public key."""
    public = path if path.suffix == ".pub" else path.with_name(f"{path.name}.pub")
    try:
        return bytes(PublicBlob.from_file(str(public)).key_blob)
    except (OSError, ValueError, IndexError):
        return None


def _load(path: Path, tried: list[str], *, is_named: bool) -> paramiko.PKey | None:
    """Return a private key with its certificate. Why it cannot be used goes to `tried`."""
    if not path.is_file():
        if is_named:
            tried.append(f"no file {path}")
        return None
    status = path.stat()
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        # Source: OpenSSH 9.2, authfile.c, sshkey_perm_ok
        tried.append(f"the key {path} is left out, as others may use it (`chmod 600 {path}`)")
        return None
    try:
        return paramiko.PKey.from_path(path)
    except (paramiko.PasswordRequiredException, TypeError):  # that of cryptography
        tried.append(f"the key {path} needs a passphrase (`ssh-add` loads it)")
    except Exception as error:  # its kinds differ by format
        reason = "it is a public key" if path.suffix == ".pub" else str(error) or type(error)
        tried.append(f"the key {path} cannot be read ({reason})")
    return None


def _try_key(
    transport: paramiko.Transport, user: str, key: paramiko.PKey, accepted: list[str]
) -> bool:
    return _try(transport, lambda: transport.auth_publickey(user, key), accepted)


def _try_password(
    transport: paramiko.Transport, user: str, password: str, accepted: list[str]
) -> bool:
    return _try(transport, lambda: transport.auth_password(user, password), accepted)


def _try(
    transport: paramiko.Transport, attempt: Callable[[], list[str]], accepted: list[str]
) -> bool:
    """Tell whether the machine lets the user in. `accepted` gets what it takes after that."""
    try:
        left = attempt()
    except paramiko.BadAuthenticationType as error:
        accepted[:] = error.allowed_types
        return False
    except paramiko.AuthenticationException:
        if not transport.is_active():
            raise
        return False
    return _is_in(transport, left, accepted)


def _is_in(transport: paramiko.Transport, left: list[str], accepted: list[str]) -> bool:
    """Tell whether that was enough. A machine can ask for a key and then for a password."""
    accepted[:] = left or accepted
    return transport.is_authenticated()
