# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The wanted NFS mounts, and the units of systemd for them. No function does I/O.

Source: systemd.mount(5), systemd.automount(5), systemd-escape(1), of systemd 252
"""

from __future__ import annotations

import ipaddress
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.probe import nfs_server
from ansible_collections.metal.gpu.plugins.module_utils.probe.components.nfs import FOLDER

VERSIONS = ("3", "4", "4.0", "4.1", "4.2")
_DEFAULT_VERSION = "4.2"
# No blanks, quotes and commas, and no sign that means something in a unit.
_WORD = re.compile(r"[A-Za-z0-9_.:/@+=~\[\]-]+")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_OPTION = re.compile(r"[a-z0-9_]+(?:=[A-Za-z0-9_.:/@+-]+)?")
_KEYS = ("server", "export", "path", "version", "options", "read_only", "squashed")
_OURS = ("vers", "nfsvers", "minorversion", "ro", "rw", "defaults")  # options that follow from keys
_PORTS, _LAST_PORT = ("port", "mountport"), 65535
# Options that can lead to the server in another way than by TCP, and those that do not.
_WAYS = ("proto", "mountproto", "mounthost", "mountaddr", "rdma", "udp", "udp6")
_BY_TCP = ("proto=tcp", "proto=tcp6", "mountproto=tcp", "mountproto=tcp6")


class Mount(NamedTuple):
    """An NFS mount that the variables ask for."""

    server: str
    export: str
    path: str
    version: str
    options: tuple[str, ...]
    read_only: bool = False
    squashed: bool = False  # the server makes root of this host nobody

    @property
    def what(self) -> str:
        server = f"[{self.server}]" if ":" in self.server else self.server
        return f"{server}:{self.export}"

    @property
    def security(self) -> str:
        """The option for a kind of security with which the server cannot be asked."""
        kinds, over = self._option("sec"), self._option("xprtsec")
        if over not in ("", "none"):
            return f"xprtsec={over}"
        return nfs_server.SYS if nfs_server.SYS in (kinds or "sys").split(":") else f"sec={kinds}"

    @property
    def transport(self) -> str:
        """The option for a way to the server by which it cannot be asked."""
        ways = (one for one in self.options if one.partition("=")[0] in _WAYS)
        return next((one for one in ways if one not in _BY_TCP), nfs_server.TCP)

    def port(self, key: str) -> int:
        return int(self._option(key) or 0)

    def _option(self, key: str) -> str:
        """Return the value of an option: the last one, as for a mount."""
        values = (one.partition("=") for one in reversed(self.options))
        return next((value for name, _sign, value in values if name == key), "")

    def is_at(self, source: str) -> bool:
        """Tell whether this is what is mounted from a source."""
        return _normal(source) == _normal(self.what)

    def has_version(self, version: str) -> bool:
        """Tell whether a version of NFS that is mounted is the wanted one. 4 is any of them."""
        return version == self.version or version.startswith(f"{self.version}.")


def _normal(source: str) -> str:
    server, colon, path = source.partition(":/")
    return f"{server}{colon}{posixpath.normpath(f'/{path}').strip('/')}"


def parse(
    items: Sequence[object], options: Sequence[str]
) -> tuple[list[Mount], list[tuple[str, str]]]:
    """Return the mounts of the variables, and what is wrong with others and expected instead."""
    found: list[Mount] = []
    wrong: list[tuple[str, str]] = []
    for number, item in enumerate(items, 1):
        problems = _problems(item, options)
        wrong += [(f"wrong in item {number}", problem) for problem in problems]
        if not problems and isinstance(item, Mapping):
            found.append(_mount(item, options))
    paths = [mount.path for mount in found]
    twice = sorted({path for path in paths if paths.count(path) > 1})
    wrong += [(f"a list with {path} twice", "each path once") for path in twice]
    # systemd mounts the upper one before it starts the automount of the lower one.
    wrong += [
        (f"a list with {path} below {other}", "no path below another")
        for path in paths
        for other in paths
        if is_at_or_below(path, other) and path != other
    ]
    return found, wrong


def is_at_or_below(path: str, other: str) -> bool:
    return f"{path}/".startswith(f"{other}/")


def _mount(item: Mapping[str, object], options: Sequence[str]) -> Mount:
    own = item.get("options")
    return Mount(
        str(item["server"]),
        str(item["export"]),
        str(item["path"]).rstrip("/"),
        str(item.get("version", _DEFAULT_VERSION)),
        tuple(own) if isinstance(own, list) else tuple(options),
        bool(item.get("read_only", False)),
        bool(item.get("squashed", False)),
    )


def _problems(item: object, options: Sequence[str]) -> list[str]:
    if not isinstance(item, Mapping):
        return ["a mapping with server, export and path"]
    found = [f"no key {key}" for key in item if key not in _KEYS]
    for key in ("server", "export", "path"):
        value = item.get(key)
        if not isinstance(value, str) or not _WORD.fullmatch(value):
            found.append(f"{key} as a text without blanks")
    server, path, export = (str(item.get(key, "")) for key in ("server", "path", "export"))
    if _WORD.fullmatch(server) and not _is_server(server):
        found.append("server as a name or an address, without a port, brackets and a path")
    # The standard keeps two slashes at the front, and so does normpath.
    if (
        not path.startswith("/")
        or path.startswith("//")
        or posixpath.normpath(path) != (path.rstrip("/") or "/")
    ):
        found.append("path as an absolute path")
    elif path.strip("/") == "":
        found.append("path below /")
    if not export.startswith("/"):
        found.append("export as an absolute path of the server")
    if item.get("version", _DEFAULT_VERSION) not in VERSIONS:
        found.append(f"version as one of {', '.join(VERSIONS)}, in quotes")
    for key in ("read_only", "squashed"):
        if not isinstance(item.get(key, False), bool):
            found.append(f"{key} as true or false")
    own = item.get("options", list(options))
    if not isinstance(own, list) or not all(
        isinstance(one, str) and _OPTION.fullmatch(one) for one in own
    ):
        found.append("options as a list such as [hard, nconnect=8]")
    else:
        taken = [one for one in own if one.partition("=")[0] in _OURS]
        found += [f"no option {one}: version and read_only decide it" for one in taken]
        ports = [one.partition("=") for one in own if one.partition("=")[0] in _PORTS]
        found += [
            f"{key} as a number up to {_LAST_PORT}"
            for key, _sign, value in ports
            if not value.isdecimal() or int(value) > _LAST_PORT
        ]
    return found


def _is_server(text: str) -> bool:
    try:
        return bool(_NAME.fullmatch(text) or ipaddress.IPv6Address(text))
    except ValueError:
        return False


def name(path: str) -> str:
    """Return the name of the units that mount a path, without their ending."""
    signs = []
    for place, sign in enumerate(path.strip("/")):
        if sign == "/":
            signs.append("-")
        elif re.fullmatch(r"[A-Za-z0-9:_]", sign) or (sign == "." and place):
            signs.append(sign)
        else:
            signs += [rf"\x{byte:02x}" for byte in sign.encode()]
    return "".join(signs)


def places(units: Mapping[str, Sequence[str]], paths: Sequence[str]) -> list[str]:
    """Return where those of the units that have these paths mount something."""
    lines = (line for path in paths for line in units[path])
    return sorted({where for line in lines if (where := line.partition("Where=")[2])})


def files(mount: Mount) -> dict[str, list[str]]:
    """Return the lines of the two units of a mount, by path."""
    access = "ro" if mount.read_only else "rw"
    options = ",".join((f"vers={mount.version}", access, *mount.options))
    title = f"Description=NFS export {mount.what}"
    unit = f"{FOLDER}/{name(mount.path)}"
    return {
        f"{unit}.mount": [
            *("[Unit]", title, "[Mount]", f"What={mount.what}", f"Where={mount.path}"),
            *("Type=nfs", f"Options={options}", "TimeoutSec=30"),
        ],
        # Docker starts containers at boot, which must not get the empty folder. It never unmounts
        # what is idle: a container that has it would lose it.
        f"{unit}.automount": [
            *("[Unit]", title, "Before=docker.service"),
            *("[Automount]", f"Where={mount.path}", "TimeoutIdleSec=0"),
            *("[Install]", "WantedBy=remote-fs.target"),
        ],
    }
