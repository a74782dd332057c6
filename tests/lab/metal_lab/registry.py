# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The registry of a laboratory: a real one, which serves upstream's images to the nodes.

It listens on this machine's address for the nodes, with a certificate of an authority of its own,
and requires a login. registry_content fills its storage, registry_faults breaks it.

Source: https://distribution.github.io/distribution/about/configuration/
"""

from __future__ import annotations

import ctypes
import json
import secrets
import shutil
import socket
import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from metal_lab import parts, pki, processes
from metal_lab.state import State

NAME = parts.REGISTRY  # no node has this name: see `lab fault`
DELAY = "registry-delay"  # the process in front of a slow registry

# Clients that know no mirrors ask upstream's host by its name, at this port.
PORT = 443
# Where they ask for images of this host.
DOCKER_HUB = {"docker.io": "registry-1.docker.io"}
USER = "metal-lab"
# Every password ends like this. Whoever quotes it wrongly in a file or a command cannot log in.
AWKWARD = " a\"b'c\\d$e#f:g%h"

# The certificates that the registry can show: see Settings.
SERVER, EXPIRED, STRANGER = "server", "expired", "stranger"
CLIENT = "client"


@dataclass(frozen=True)
class Settings:
    """How the registry behaves. Faults change it."""

    certificate: str = SERVER  # EXPIRED, or STRANGER: that of an unknown authority
    needs_client_certificate: bool = False
    needs_login: bool = True
    delay_s: float = 0  # how much later arrives what a client sends


def configuration(
    storage: Path, address: str, net: str = "tcp", *, tls: Any = None, htpasswd: Path | None = None
) -> str:
    """Return the configuration file. Without `tls` and `htpasswd`: no encryption and no login."""
    content: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(storage)}, "delete": {"enabled": True}},
        "http": {"addr": address, "net": net, "relativeurls": True, "secret": "metal-lab"},
    }
    if tls:
        content["http"]["tls"] = tls
    if htpasswd:
        content["auth"] = {"htpasswd": {"realm": "metal-lab", "path": str(htpasswd)}}
    return yaml.safe_dump(content, sort_keys=False)


def command(program: Path, config: Path) -> list[str | Path]:
    """Return the command. The registry obeys variables of its environment, so it gets no others."""
    return ["env", "-i", "OTEL_TRACES_EXPORTER=none", program / "registry", "serve", config]


def bcrypt(password: str) -> str:
    """Return the only kind of hash that the registry accepts in its htpasswd file."""
    library = ctypes.CDLL("libcrypt.so.1")
    library.crypt.restype = library.crypt_gensalt.restype = ctypes.c_char_p
    salt = library.crypt_gensalt(b"$2b$", ctypes.c_ulong(5), None, 0)
    hashed: bytes = library.crypt(password.encode(), salt)
    return hashed.decode()


def folder(state: State) -> Path:
    return state.folder / NAME


def storage(state: State) -> Path:
    return folder(state) / "storage"


def images(state: State) -> Mapping[str, Mapping[str, str]]:
    """Return what registry_content knows about each image, by upstream's name."""
    content: Mapping[str, Mapping[str, str]] = json.loads(
        (Path(state.registry_content) / "images.json").read_text()
    )
    return content


def hosts(state: State) -> list[str]:
    """Return upstream's registries that have the images."""
    return sorted({name.partition("/")[0] for name in images(state)})


def names(state: State) -> list[str]:
    """Return the names at which clients look for these registries."""
    return [DOCKER_HUB.get(host, host) for host in hosts(state)]


def facts(state: State) -> dict[str, Any]:
    """Return what a client needs. Empty if the laboratory has no registry."""
    if not state.registry:
        return {}
    place = folder(state)
    return {
        "address": state.gateway,
        "url": f"https://{state.gateway}",
        "hosts": hosts(state),
        "ca": (place / "ca.crt").read_text(),
        "username": USER,
        "password": (place / "password").read_text(),
        "client_certificate": (place / f"{CLIENT}.crt").read_text(),
        "client_key": (place / f"{CLIENT}.key").read_text(),
        "digests": {name: known["digest"] for name, known in images(state).items()},
        "log": str(state.folder / "logs" / f"{NAME}.log"),
    }


def run(state: State, program: Path, content: Path) -> None:
    """Start the registry of a new laboratory."""
    state.registry, state.registry_content = str(program), str(content)
    place = folder(state)
    place.mkdir(parents=True, exist_ok=True)
    _write_secret(place / "password", secrets.token_urlsafe(12) + AWKWARD)
    _write_certificates(place, [state.gateway, *names(state)])
    restore(state)


def restore(state: State) -> None:
    """Let the registry behave as in a new laboratory, with the same password."""
    shutil.rmtree(storage(state), ignore_errors=True)
    shutil.copytree(state.registry_content, storage(state))
    set_password(state, (folder(state) / "password").read_text())
    apply(state, Settings())


def set_password(state: State, password: str) -> None:
    """Change the password that the registry accepts. It reads the file at each request."""
    _write_secret(folder(state) / "htpasswd", f"{USER}:{bcrypt(password)}\n")


def settings(state: State) -> Settings:
    return Settings(**json.loads((folder(state) / "settings.json").read_text()))


def apply(state: State, wanted: Settings) -> None:
    """Start the registry again with other settings."""
    stop(state)
    place = folder(state)
    (place / "settings.json").write_text(json.dumps(asdict(wanted)))
    tls: dict[str, Any] = {
        "certificate": str(place / f"{wanted.certificate}.crt"),
        "key": str(place / f"{wanted.certificate}.key"),
    }
    if wanted.needs_client_certificate:
        tls["clientcas"] = [str(place / "ca.crt")]
    address = state.loopback if wanted.delay_s else state.gateway
    config = place / "config.yml"
    htpasswd = place / "htpasswd" if wanted.needs_login else None
    config.write_text(
        configuration(storage(state), f"{address}:{PORT}", tls=tls, htpasswd=htpasswd)
    )
    shown = (place / f"{wanted.certificate}.crt").read_text()
    ready = partial(_shows, address, shown)
    _start(state, NAME, command(Path(state.registry), config), ready)
    if wanted.delay_s:
        delay = [sys.executable, "-m", "metal_lab.delay", state.gateway, address]
        ready = partial(listens, state.gateway, PORT)
        _start(state, DELAY, [*delay, str(PORT), str(wanted.delay_s)], ready)


def _start(state: State, name: str, words: Sequence[str | Path], ready: Callable[[], bool]) -> None:
    log = state.folder / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    state.processes[name] = processes.start(words, log)
    state.save()
    processes.wait_until(ready, name, state.processes[name], log)


def stop(state: State) -> None:
    """Stop the registry. `is_up` tells, because the laboratory still expects the process."""
    processes.stop([state.processes[name] for name in (DELAY, NAME) if name in state.processes])
    state.processes.pop(DELAY, None)
    state.save()


def _shows(address: str, certificate: str) -> bool:
    """Return whether our registry answers, and not a program that took its port before."""
    try:
        found = ssl.get_server_certificate((address, PORT), timeout=2)
    except OSError:
        return False
    return found.split() == certificate.split()


def listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def _write_certificates(place: Path, names: Sequence[str]) -> None:
    """Write all certificates at once, so that no authority has to survive."""
    authority, stranger = pki.Authority("metal-lab registry"), pki.Authority("somebody")
    (place / "ca.crt").write_bytes(authority.certificate)
    pki.write_pair(place, SERVER, authority.issue(NAME, hosts=names))
    pki.write_pair(place, EXPIRED, authority.issue(NAME, hosts=names, expired=True))
    pki.write_pair(place, STRANGER, stranger.issue(NAME, hosts=names))
    pki.write_pair(place, CLIENT, authority.issue("node"))


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
