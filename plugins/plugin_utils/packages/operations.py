# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which modules does a package operation run, and with which arguments?

An operation is a row of `_OPERATIONS` for each family of distributions. tests/unit/golden/packages
has the result for every system. No function does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.failure import split
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import FILES, MANAGED
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    DEBIAN,
    METADATA,
    PACKAGES,
    REDHAT,
)

VERSIONLOCK = "python3-dnf-plugin-versionlock"
_ACTOR = "metal.gpu.packages"  # of the records
_RECORDS = "/var/lib/metal-gpu"
# apt reads its index of packages again if it is older.
_INDEX_AGE_S = 3600
_HAS_PASSWORD = re.compile(r"://[^/]*@")


class OperationUnknown(ValueError):
    """The package manager of this family has no such operation."""


class Call(NamedTuple):
    """One module that runs on the node."""

    module: str
    options: dict[str, Any]
    # The exit codes of a command, besides 0, that are neither a failure nor a change.
    may_exit: tuple[int, ...] = ()
    # Whether the package manager can explain a failure.
    explains: bool = True
    # Whether a change of the module is a change of the operation.
    changes: bool = True


class Steps(NamedTuple):
    """What an operation runs."""

    first: tuple[Call, ...] = ()  # once
    work: tuple[Call, ...] = ()  # again, after a wait for the lock
    last: tuple[Call, ...] = ()  # once, also after a failure


class Request(NamedTuple):
    """What an operation is given."""

    options: Mapping[str, Any]  # of the module metal.gpu.packages
    key: str = ""  # of the repository, armoured
    has_versionlock: bool = False
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


def steps(operation: str, family: str, request: Request) -> Steps:
    """Return the modules that carry out an operation. Raises OperationUnknown."""
    do = _OPERATIONS[family].get(operation)
    if do is None:
        raise OperationUnknown(f"no operation {operation} on systems of the family {family}")
    return do(request)


def questions(family: str, names: list[str]) -> dict[str, Call]:
    """Return what to ask the package manager after a failure: do the repositories answer, and
    which versions do they have?
    """
    update, versions = _QUESTIONS[family]
    bare = bare_names(names, family)
    asked = {"update": update, **({"versions": [*versions, *bare]} if bare else {})}
    return {
        about: _command("env", "LC_ALL=C", *argv, changes=False) for about, argv in asked.items()
    }


def bare_names(names: list[str], family: str) -> list[str]:
    """Return the names of packages without their versions."""
    return [split(name, family)[0] for name in names]


def unversioned(record: Mapping[str, Any]) -> list[str]:
    """Return the packages of which any version was asked for."""
    return [name for name, row in record.get("packages", {}).items() if row["version"] == ""]


def note_versions(record: Mapping[str, Any], installed: Mapping[str, Any]) -> tuple[Call, ...]:
    """Return how to record the installed versions of the packages without a version.

    An entry without a version does not count: if a run is interrupted before this point, teardown
    keeps the package.
    """
    versions = {
        name: {"version": installed[name]["version"]}
        for name in unversioned(record)
        if name in installed
    }
    return (_note(record["path"], versions),) if versions else ()


def repository_mode(url: str) -> str:
    """Return the mode of a repository's file. Only root can read one with a password.

    Package managers of other users skip it with a warning.
    """
    return "0600" if _HAS_PASSWORD.search(url) else "0644"


def _note(path: str, packages: Mapping[str, Any]) -> Call:
    options = {"path": path, "actor": _ACTOR, "merge": dict(packages)}
    return Call("metal.gpu.config_document", options)


def _record(request: Request) -> tuple[Call, ...]:
    """Record the packages that the role is about to install.

    Before the installation, so that an interrupted run leaves no unrecorded packages. An entry for
    a package with another version, or for a package that is not installed, does not count.
    """
    record = request.record
    return (_note(record["path"], record["packages"]),) if record.get("packages") else ()


def _command(*argv: str, **more: Any) -> Call:
    return Call("ansible.builtin.command", {"argv": [*argv]}, **more)


def _absent(path: str, **more: Any) -> Call:
    return Call("ansible.builtin.file", {"path": path, "state": "absent"}, **more)


def _apt(**options: Any) -> Call:
    # No wait for the lock here: the run first names the process that holds it.
    return Call("ansible.builtin.apt", {**options, "lock_timeout": 0})


def _dnf(**options: Any) -> Call:
    return Call("ansible.builtin.dnf", {**options, "lock_timeout": 0})


# --- apt and dnf ---------------------------------------------------------------------------------


def _forget(request: Request) -> Steps:
    path = request.record["path"]
    history = {"path": path, "actor": _ACTOR, "state": "absent"}
    # The role that created the folders may have gone before this one, and left them to the other
    # records.
    tidy = ["find", _RECORDS, "-depth", "-type", "d", "-empty", "-delete"]
    return Steps(
        work=(
            Call("metal.gpu.config_document", history, explains=False),
            # The remaining entries are about packages that are removed or that no longer belong to
            # the role.
            _absent(path, explains=False),
            Call(
                "ansible.builtin.command",
                {"argv": tidy, "removes": _RECORDS},
                explains=False,
                changes=False,
            ),
        )
    )


def _file(request: Request, install: Call) -> Steps:
    path = _file_path(request)
    options = {name: request.options[name] for name in ("url", "checksum")}
    fetch = Call(
        "ansible.builtin.get_url", {**options, "dest": path, "mode": "0644"}, explains=False
    )
    return Steps(_record(request), (fetch, install), (_absent(path, changes=False),))


def _file_path(request: Request) -> str:
    """Return where the downloaded package is until its installation. Only root can write there."""
    return f"/root/{request.options['url'].rpartition('/')[2]}"


# --- apt -----------------------------------------------------------------------------------------


def _apt_index(request: Request) -> dict[str, Any]:
    age = 0 if request.is_fresh else _INDEX_AGE_S
    return {"update_cache": True, "update_cache_retries": 3, "cache_valid_time": age}


def _apt_install(request: Request) -> Steps:
    install = _apt(
        name=request.names,
        install_recommends=False,
        **_apt_index(request),
        allow_change_held_packages=request.options["change_held"],
    )
    return Steps(_record(request), (install,))


def _apt_install_file(request: Request) -> Steps:
    # apt reads the index only for the dependencies.
    index = _apt_index(request) if request.is_fresh else {}
    return _file(request, _apt(deb=_file_path(request), install_recommends=False, **index))


def _apt_remove(request: Request) -> Steps:
    remove = _apt(
        name=request.names,
        state="absent",
        purge=request.options["purge"],
        allow_change_held_packages=True,
    )
    return Steps(work=(remove,))


def _apt_repository(request: Request) -> Steps:
    repository = request.repository
    options = {
        "name": repository["name"],
        "uris": repository["url"],
        "suites": repository["suite"],
        **({"components": repository["components"]} if repository["components"] else {}),
        "signed_by": request.key,
        "mode": repository_mode(repository["url"]),
    }
    # Only the new source, so that a run reads each source once. A role later reads all of them only
    # if the index is old, or does not have what it installs.
    only = {
        "Dir::Etc::sourcelist": FILES[DEBIAN].format(repository["name"]),
        "Dir::Etc::sourceparts": "-",
        "APT::Get::List-Cleanup": "false",
        "APT::Update::Error-Mode": "any",
    }
    settings = [word for name, value in only.items() for word in ("-o", f"{name}={value}")]
    return Steps(
        work=(
            Call("ansible.builtin.deb822_repository", options),
            _command("env", "LC_ALL=C", "apt-get", "-q", "update", *settings),
        )
    )


def _apt_no_repository(request: Request) -> Steps:
    options = {"name": request.repository["name"], "state": "absent"}
    return Steps(work=(Call("ansible.builtin.deb822_repository", options, explains=False),))


def _apt_repair(_request: Request) -> Steps:
    dpkg = ("dpkg", "--configure", "-a", "--force-confdef", "--force-confold")
    return Steps(work=(_command("env", "DEBIAN_FRONTEND=noninteractive", *dpkg),))


# --- dnf -----------------------------------------------------------------------------------------


def _dnf_install(request: Request) -> Steps:
    # A versionlock names the installed version and excludes every other one.
    bare = bare_names(request.names, REDHAT)
    release = _dnf_unlock(request, bare) if request.options["change_held"] else ()
    install = _dnf(
        name=request.names,
        install_weak_deps=False,
        # If not, dnf reads what it does not have, and what has expired.
        update_cache=request.is_fresh,
        allowerasing=request.options["replace"],
    )
    return Steps(_record(request), (*release, install))


def _dnf_install_file(request: Request) -> Steps:
    # The package has no signature. get_url has checked its checksum.
    index = {"update_cache": True} if request.is_fresh else {}
    install = _dnf(
        name=[_file_path(request)], disable_gpg_check=True, install_weak_deps=False, **index
    )
    return _file(request, install)


def _dnf_hold(request: Request) -> Steps:
    lock = _command("dnf", "versionlock", "add", *request.names)
    # Without its plugin, dnf has no holds.
    return Steps(work=(_dnf(name=[VERSIONLOCK]), lock))


def _dnf_unlock(request: Request, names: list[str]) -> tuple[Call, ...]:
    # dnf exits with 1 if no package was held.
    unlock = _command("dnf", "versionlock", "delete", *names, may_exit=(1,))
    return (unlock,) if request.has_versionlock else ()


def _dnf_remove(request: Request) -> Steps:
    remove = _dnf(name=request.names, state="absent")
    # A remaining versionlock would exclude all other versions of these packages.
    return Steps(work=(remove, *_dnf_unlock(request, request.names)))


def _dnf_repository(request: Request) -> Steps:
    repository = request.repository
    key_file = repository["key_file"]
    # dnf reads the pinned key from the node, so a later change at the key's URL has no effect.
    key = {"content": request.key, "dest": key_file, "mode": "0644"}
    options = {
        "name": repository["name"],
        "description": f"{repository['name']}{MANAGED}",
        "baseurl": repository["url"],
        "gpgcheck": repository["signs"] == PACKAGES,
        "repo_gpgcheck": repository["signs"] == METADATA,
        "gpgkey": f"file://{key_file}",
        "mode": repository_mode(repository["url"]),
    }
    return Steps(
        work=(Call("ansible.builtin.copy", key), Call("ansible.builtin.yum_repository", options))
    )


def _dnf_no_repository(request: Request) -> Steps:
    repository = request.repository
    options = {"name": repository["name"], "state": "absent"}
    return Steps(
        work=(
            Call("ansible.builtin.yum_repository", options, explains=False),
            _absent(repository["key_file"], explains=False),
        )
    )


def _dnf_stream(request: Request) -> Steps:
    # Not ansible.builtin.dnf, which would install a profile of the stream.
    enable = ("dnf", "--assumeyes", "module", "enable", request.options["stream"])
    return Steps(work=(_command(*enable),))


_OPERATIONS: dict[str, dict[str, Callable[[Request], Steps]]] = {
    DEBIAN: {
        "repository": _apt_repository,
        "install": _apt_install,
        "install_file": _apt_install_file,
        "hold": lambda request: Steps(work=(_command("apt-mark", "hold", *request.names),)),
        "release": lambda request: Steps(work=(_command("apt-mark", "unhold", *request.names),)),
        "remove": _apt_remove,
        "no_repository": _apt_no_repository,
        "forget": _forget,
        "repair": _apt_repair,
    },
    REDHAT: {
        "repository": _dnf_repository,
        "stream": _dnf_stream,
        "install": _dnf_install,
        "install_file": _dnf_install_file,
        "hold": _dnf_hold,
        "release": lambda request: Steps(work=_dnf_unlock(request, request.names)),
        "remove": _dnf_remove,
        "no_repository": _dnf_no_repository,
        "forget": _forget,
    },
}
_QUESTIONS: dict[str, tuple[list[str], list[str]]] = {
    DEBIAN: (["apt-get", "update"], ["apt-cache", "madison"]),
    REDHAT: (["dnf", "makecache"], ["dnf", "list", "--showduplicates"]),
}
