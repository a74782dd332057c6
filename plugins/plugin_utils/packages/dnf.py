# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What package operations run on systems with dnf 4. No function does I/O."""

from __future__ import annotations

from typing import Any

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    Call,
    Operation,
    Request,
    Steps,
    absent,
    bare_names,
    command,
    file,
    file_path,
    forget,
    record,
    repository_mode,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import MANAGED
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    METADATA,
    PACKAGES,
    REDHAT,
)

VERSIONLOCK = "python3-dnf-plugin-versionlock"


def _dnf(**options: Any) -> Call:
    return Call("ansible.builtin.dnf", {**options, "lock_timeout": 0})


def _install(request: Request) -> Steps:
    # A versionlock names the installed version and excludes every other one.
    bare = bare_names(request.names, REDHAT)
    release = _unlock(request, bare) if request.options["change_held"] else ()
    install = _dnf(
        name=request.names,
        install_weak_deps=False,
        # If not, dnf reads what it does not have, and what has expired.
        update_cache=request.is_fresh,
        allowerasing=request.options["replace"],
    )
    return Steps(record(request), (*release, install))


def _install_file(request: Request) -> Steps:
    # The package has no signature. get_url has checked its checksum.
    index = {"update_cache": True} if request.is_fresh else {}
    install = _dnf(
        name=[file_path(request)], disable_gpg_check=True, install_weak_deps=False, **index
    )
    return file(request, install)


def _hold(request: Request) -> Steps:
    lock = command("dnf", "versionlock", "add", *request.names)
    # Without its plugin, dnf has no holds.
    return Steps(work=(_dnf(name=[VERSIONLOCK]), lock))


def _unlock(request: Request, names: list[str]) -> tuple[Call, ...]:
    # dnf exits with 1 if no package was held.
    unlock = command("dnf", "versionlock", "delete", *names, may_exit=(1,))
    return (unlock,) if request.has_versionlock else ()


def _remove(request: Request) -> Steps:
    remove = _dnf(name=request.names, state="absent")
    # A remaining versionlock would exclude all other versions of these packages.
    return Steps(work=(remove, *_unlock(request, request.names)))


def _repository(request: Request) -> Steps:
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


def _no_repository(request: Request) -> Steps:
    repository = request.repository
    options = {"name": repository["name"], "state": "absent"}
    return Steps(
        work=(
            Call("ansible.builtin.yum_repository", options, explains=False),
            absent(repository["key_file"], explains=False),
        )
    )


def _stream(request: Request) -> Steps:
    # Not ansible.builtin.dnf, which would install a profile of the stream.
    enable = ("dnf", "--assumeyes", "module", "enable", request.options["stream"])
    return Steps(work=(command(*enable),))


def _release(request: Request) -> Steps:
    return Steps(work=_unlock(request, request.names))


OPERATIONS: dict[str, Operation] = {
    "repository": _repository,
    "stream": _stream,
    "install": _install,
    "install_file": _install_file,
    "hold": _hold,
    "release": _release,
    "remove": _remove,
    "no_repository": _no_repository,
    "forget": forget,
}
QUESTIONS = (["dnf", "makecache"], ["dnf", "list", "--showduplicates"])
