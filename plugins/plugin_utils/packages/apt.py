# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What package operations run on systems with apt. No function does I/O."""

from __future__ import annotations

from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.read import packages
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    APT_CONF,
    INDEX_AGE_S,
    TIME_LIMIT,
    UPDATE_S,
    Call,
    Operation,
    Request,
    Steps,
    command,
    file,
    file_path,
    forget,
    only_source,
    record,
    repository_mode,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.outdated import of_modules
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.rehearsal import (
    before_removal,
    before_removals,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import FILES
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import DEBIAN, SUFFIXES

# An option that only the operation follow_kernel gives to `install`.
KEEP_KERNEL = "keep_kernel"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SIGNED = ("-o", "APT::Get::AllowUnauthenticated=false")
# The same by APT_CONFIG. apt reads that file first, but what is said of one program counts last.
_CONFIGURED: dict[str, Any] = {
    "files": {APT_CONF: 'Binary::apt-get::APT::Get::AllowUnauthenticated "false";'}
}
_WITHOUT_RECOMMENDED = ("apt-get", "-q", *_SIGNED, "--no-install-recommends")
# As ansible.builtin.apt has them: edited configuration files stay.
_UNATTENDED = (
    *("--assume-yes", "-o", "Dpkg::Options::=--force-confdef"),
    *("-o", "Dpkg::Options::=--force-confold"),
)


def _apt(**options: Any) -> Call:
    # No wait for the lock here: the run first names the process that holds it.
    return Call("ansible.builtin.apt", {**options, "lock_timeout": 0})


def _apt_get(request: Request, *options: str) -> Call:
    """Run apt-get itself: the module drops a package of which any matching version is installed."""
    words = (*_WITHOUT_RECOMMENDED, *_UNATTENDED, *options, "install", *request.names)
    return command("DEBIAN_FRONTEND=noninteractive", *words)


def _index(request: Request) -> dict[str, Any]:
    age = 0 if request.is_fresh else INDEX_AGE_S
    return {"update_cache": True, "update_cache_retries": 3, "cache_valid_time": age}


def _install(request: Request) -> Steps:
    if request.options.get(KEEP_KERNEL):
        return Steps(record(request), (_apt_get(request, "--no-remove", *packages.KEEP_KERNEL),))
    if request.options["newest"]:
        options = ("--allow-change-held-packages",) if request.options["change_held"] else ()
        asked = before_removals(request, DEBIAN)
        work = (_apt(**_index(request)), asked, _apt_get(request, *options))
        return Steps(record(request, **_CONFIGURED), work)
    may_remove = bool(request.options["may_remove"])
    # apt permits all removals or none, and modules of another driver. So it first tells what it
    # would do.
    is_asked = may_remove or bool(of_modules(request.names))
    install = _apt(
        name=request.names,
        install_recommends=False,
        **({} if is_asked else _index(request)),
        allow_change_held_packages=request.options["change_held"],
        fail_on_autoremove=not may_remove,
    )
    repository = request.repository
    # The index of a new repository is the only one that the run has read.
    source = {"source": repository["url"]} if repository.get("new") else {}
    recorded = record(request, **_CONFIGURED, **source)
    if not is_asked:
        return Steps(recorded, (install,))
    asked = before_removals(request, DEBIAN)
    return Steps(recorded, (_apt(**_index(request)), asked, install))


def _follow_kernel(request: Request) -> Steps:
    """Only ask: follow.py decides by the answers, and `install` installs."""
    ask = (*_WITHOUT_RECOMMENDED, *packages.KEEP_KERNEL, "--simulate", "install")
    calls = (command(*ask, one, explains=False, changes=False) for one in request.names)
    return Steps(work=tuple(calls))


def _install_file(request: Request) -> Steps:
    # apt reads the index only for the dependencies.
    index = _index(request) if request.is_fresh else {}
    path = file_path(request, SUFFIXES[DEBIAN])
    return file(request, path, _apt(deb=path, install_recommends=False, **index), **_CONFIGURED)


def _remove(request: Request) -> Steps:
    remove = _apt(
        name=request.names,
        state="absent",
        purge=request.options["purge"],
        allow_change_held_packages=True,
    )
    return Steps(work=(before_removal(request, DEBIAN), remove))


def _repository(request: Request) -> Steps:
    repository = request.repository
    # apt refuses sources of one archive with different values.
    own = repository.get("signed_by")
    signed_by = request.key if own is None else own
    options = {
        "name": repository["name"],
        "uris": repository["url"],
        "suites": repository["suite"],
        **({"components": repository["components"]} if repository["components"] else {}),
        **({"signed_by": signed_by} if signed_by else {}),
        "mode": repository_mode(repository["url"]),
    }
    # Only the new source, so that a run reads each source once. A role later reads all of them only
    # if the index is old, or does not have what it installs.
    settings = only_source(FILES[DEBIAN].format(repository["name"]))
    return Steps(
        work=(
            Call("ansible.builtin.deb822_repository", options, explains=False, is_logged=False),
            command(*TIME_LIMIT, str(UPDATE_S), "apt-get", "-q", "update", *settings),
        ),
        undo=_no_repository(request).work if repository["new"] else (),
    )


def _no_repository(request: Request) -> Steps:
    options = {"name": request.repository["name"], "state": "absent"}
    return Steps(work=(Call("ansible.builtin.deb822_repository", options, explains=False),))


def _repair(_request: Request) -> Steps:
    # With su or doas, the PATH is the user's: dpkg refuses one without sbin. apt sets its own.
    dpkg = (PATH, "dpkg", "--configure", "-a", "--force-confdef", "--force-confold")
    return Steps(work=(command("DEBIAN_FRONTEND=noninteractive", *dpkg),))


def _hold(request: Request) -> Steps:
    return Steps(work=(command("apt-mark", "hold", *request.names),))


def _release(request: Request) -> Steps:
    return Steps(work=(command("apt-mark", "unhold", *request.names),))


OPERATIONS: dict[str, Operation] = {
    "repository": _repository,
    "install": _install,
    "follow_kernel": _follow_kernel,
    "install_file": _install_file,
    "hold": _hold,
    "release": _release,
    "remove": _remove,
    "no_repository": _no_repository,
    "forget": forget,
    "repair": _repair,
}
# Without retries and on its own time limit: the operation had both before it failed.
QUESTIONS = (
    ["timeout", "60", "apt-get", "-o", "Acquire::Retries=0", "update"],
    ["apt-cache", "madison"],
)
