# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a package operation is given, and the modules that it runs, as far as apt and dnf agree.

No function does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.failure import split

_RECORDS = "/var/lib/metal-gpu"
# What apt is told in installations of the roles: no option of ansible.builtin.apt says it.
APT_CONF = f"{_RECORDS}/apt.conf"
_HAS_PASSWORD = re.compile(r"://[^/]*@")


class Call(NamedTuple):
    """One module that runs on the node."""

    module: str
    options: dict[str, Any]
    # Whether the package manager runs, and can explain a failure.
    explains: bool = True
    # Whether a change of the module is a change of the operation.
    changes: bool = True
    # What a failure means, if the package manager has nothing to do with it.
    finding: str = ""
    # What a failure says if there is nothing left to do.
    enough: str = ""
    # Whether the node's log may have the options. Ansible finds only some credentials in them.
    is_logged: bool = True


class Steps(NamedTuple):
    """What an operation runs."""

    first: tuple[Call, ...] = ()  # once
    work: tuple[Call, ...] = ()  # again, after a wait for the lock
    last: tuple[Call, ...] = ()  # once, also after a failure
    undo: tuple[Call, ...] = ()  # once, only after a failure


class Request(NamedTuple):
    """What an operation is given."""

    options: Mapping[str, Any]  # of the module metal.gpu.packages
    key: str = ""  # of the repository, armoured
    held: Collection[str] = ()  # packages that dnf holds
    is_fresh: bool = False  # whether to read the repositories' indexes again

    @property
    def names(self) -> list[str]:
        return self.options["names"] or []

    @property
    def record(self) -> Mapping[str, Any]:
        return self.options["record"] or {}

    @property
    def repository(self) -> Mapping[str, Any]:
        return self.options["repository"] or {}


Operation = Callable[[Request], Steps]


def bare_names(names: list[str], family: str) -> list[str]:
    """Return the names of packages without their versions."""
    return [split(name, family)[0] for name in names]


def repository_mode(url: str) -> str:
    """Return the mode of a repository's file. Only root can read one with a password.

    Package managers of other users skip it with a warning.
    """
    return "0600" if _HAS_PASSWORD.search(url) else "0644"


def private(path: str) -> Call:
    """Make a file that only root can read, before a module writes a password into it."""
    times = dict.fromkeys(("access_time", "modification_time"), "preserve")
    options = {"path": path, "state": "touch", "mode": "0600", **times}
    return Call("ansible.builtin.file", options, explains=False, changes=False)


def note(request: Request, **what: Any) -> Call:
    """Add something to the record of a role."""
    wanted = {"path": request.record["path"], **what}
    options = {"operation": request.options["operation"], "_note": wanted}
    return Call("metal.gpu.packages", options)


def record(request: Request, **more: Any) -> tuple[Call, ...]:
    """Record the packages that the role is about to install.

    Before the installation, so that an interrupted run leaves no unrecorded packages. An entry for
    a package with another version, or for a package that is not installed, does not count.
    """
    packages = request.record.get("packages")
    return (note(request, packages=packages, **more),) if packages else ()


def completed_record(request: Request) -> tuple[Call, ...]:
    """Add to the record what is known only after the installation.

    An entry without a version does not count: if a run is interrupted before this point, teardown
    keeps the package.
    """
    rows = request.record.get("packages", {})
    found = {
        "installed": [name for name, row in rows.items() if row["version"] == ""],
        "created": request.record.get("created", {}),
    }
    return (note(request, **found),) if any(found.values()) else ()


# apt reads its index of packages again if it is older.
INDEX_AGE_S = 3600
# apt has no time limit for all of its work. Seen on Debian 12 (apt 2.6.1), 2026-11-22: with two
# sources on one host, of which one refuses connections, `apt-get update` waits forever.
UPDATE_S = 300
# If not, dnf waits for another process without a time limit, and does not say so in time.
EXIT_ON_LOCK = "--setopt=exit_on_lock=True"
# Only installed packages are in question. An unusable repository must not prevent it.
NO_REPOSITORY = "--disablerepo=*"
NO_WEAK = "--setopt=install_weak_deps=False"
# What `dnf module list MODULE:STREAM` says if no repository has it.
NO_STREAMS = "No matching Modules to list"
# The words before a program with a time limit: the seconds and the program follow. `timeout` of
# coreutils says on stderr that the time was up; failure.py reads that.
TIME_LIMIT = ("timeout", "--verbose", "--kill-after=10")


def command(*argv: str, **more: Any) -> Call:
    """Run a program whose messages have to be in English: failure.py reads them."""
    return Call("ansible.builtin.command", {"argv": ["env", "LC_ALL=C", *argv]}, **more)


def only_source(path: str) -> list[str]:
    """Return the options with which apt reads only one file of sources."""
    only = {
        "Dir::Etc::sourcelist": path,
        "Dir::Etc::sourceparts": "-",
        "APT::Get::List-Cleanup": "false",
        "APT::Update::Error-Mode": "any",
        # An apt.conf of the node may permit all of these, for other sources.
        "Acquire::AllowInsecureRepositories": "false",
        "Acquire::AllowDowngradeToInsecureRepositories": "false",
        "Acquire::AllowWeakRepositories": "false",
    }
    return [word for name, value in only.items() for word in ("-o", f"{name}={value}")]


def absent(path: str, **more: Any) -> Call:
    return Call("ansible.builtin.file", {"path": path, "state": "absent"}, **more)


def forget(request: Request) -> Steps:
    """Delete a record, and the folders of the records if they are empty."""
    # The role that created the folders may have gone before this one, and left them to the other
    # records.
    return Steps(work=(absent(request.record["path"], explains=False), tidied()))


def tidied() -> Call:
    """Delete the folders of the records that are empty. An installation writes APT_CONF again."""
    unneeded = ["(", "-path", APT_CONF, "-o", "-type", "d", "-empty", ")"]
    tidy = ["find", _RECORDS, "-depth", *unneeded, "-delete"]
    return Call(
        "ansible.builtin.command",
        {"argv": tidy, "removes": _RECORDS},
        explains=False,
        changes=False,
    )


def file(request: Request, path: str, install: Call, **more: Any) -> Steps:
    """Install a package that is downloaded, and deleted afterwards."""
    options = {name: request.options[name] for name in ("url", "checksum")}
    fetch = Call(
        "ansible.builtin.get_url", {**options, "dest": path, "mode": "0644"}, explains=False
    )
    return Steps(record(request, **more), (fetch, install), (absent(path, changes=False),))


def file_path(request: Request, suffix: str) -> str:
    """Return where the downloaded package is until its installation.

    It is beside the record, which exists by then: only root can write there, and nobody else uses
    the name. No part of the name comes from the URL.
    """
    return str(PurePosixPath(request.record["path"]).with_suffix(suffix))
