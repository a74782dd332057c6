# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What would the package manager do? Requests for module_utils/probe/rehearsal.py. No function does
I/O.

In check mode, a planned repository and a planned pin are not on the node yet. The package manager
reads them, its indexes and its caches from a temporary folder, which changes nothing on the node.

Source: apt.conf(5), apt-get(8); dnf.conf(5). Tried with apt 2.6.1 and dnf 4.14.0, 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.probe.rehearsal import (
    FOLDER,
    Program,
    Question,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.packages import KEEP_KERNEL
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    EXIT_ON_LOCK,
    INDEX_AGE_S,
    NO_REPOSITORY,
    NO_STREAMS,
    NO_WEAK,
    TIME_LIMIT,
    UPDATE_S,
    Call,
    Request,
    bare_names,
    only_source,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.outdated import of_modules
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    Repository,
    fields,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.sources import (
    OFFERS,
    OFFERS_FORMAT,
    POLICY,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import DEBIAN, REDHAT

# The answer about the packages that dnf installed for their own sake.
CHOSEN = "chosen"
_ENGLISH = ("env", "LC_ALL=C")
_LIMITED = (*_ENGLISH, *TIME_LIMIT, str(UPDATE_S))

# --- apt ------------------------------------------------------------------------------------------

_APT_CONF = f"""\
Dir::Etc::sourceparts "{FOLDER}/sources";
Dir::Etc::preferencesparts "{FOLDER}/preferences";
Dir::State::lists "{FOLDER}/lists";
Dir::Cache "{FOLDER}/cache";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Update::Post-Invoke-Stats;
"""
_CONFIGURED = ("-q", "-c", f"{FOLDER}/apt.conf")


def _apt(request: Request) -> Question:
    repository, pin = request.repository, request.options["pin"]
    files = {"apt.conf": _APT_CONF}
    cache = [*_ENGLISH, "apt-cache", *_CONFIGURED]
    programs: list[Program] = []
    if repository.get("new"):
        path = f"sources/{repository['name']}.sources"
        files[path] = _sources_text(repository, request.key)
        only = only_source(f"{FOLDER}/{path}")
        programs.append({"argv": [*_LIMITED, "apt-get", *_CONFIGURED, *only, "update"]})
    for other in request.options["more_repositories"]:
        if other["new"]:
            files[f"sources/{other['name']}.sources"] = _sources_text(other, "")
    update = [*_LIMITED, "apt-get", *_CONFIGURED, "update"]
    programs.append({"argv": update, "if_old": not request.is_fresh})
    if pin:
        files[f"preferences/{PurePosixPath(pin['path']).name}"] = pin["block"]
    programs.append({"argv": _simulation(request, *_CONFIGURED)})
    return {
        "folders": ["lists/partial", "cache/archives/partial"],
        "files": files,
        "links": [
            ("sources", "/etc/apt/sources.list.d"),
            ("preferences", "/etc/apt/preferences.d"),
            ("lists", "/var/lib/apt/lists"),
        ],
        "old": {
            "files": ["/var/lib/apt/periodic/update-success-stamp", "/var/lib/apt/lists"],
            "seconds": INDEX_AGE_S,
        },
        "programs": programs,
        "answers": {"versions": [*cache, "madison", *_bare(request, DEBIAN)]},
        "tells": {
            POLICY: [*cache, "policy", *bare_names(request.names, DEBIAN)],
            **_about_modules(request, *_CONFIGURED),
            **{following(one): _alone(one) for one in request.options["following"]},
        },
    }


def _about_modules(request: Request, *options: str) -> dict[str, list[str]]:
    """Return what to ask about Ubuntu's signed modules: see outdated.of_another_driver."""
    names = of_modules(request.names)
    return {"modules": [*_ENGLISH, "apt-cache", *options, "show", *names]} if names else {}


def following(package: str) -> str:
    """Return the name of the answer about what belongs to the next kernel."""
    return f"following {package}"


def _alone(package: str) -> list[str]:
    """Ask as the operation `follow_kernel` does. What is planned before it makes no difference."""
    weak = "--no-install-recommends"
    argv = (*_CONFIGURED, *KEEP_KERNEL, "--simulate", "--assume-yes", weak, "install", package)
    return [*_ENGLISH, "apt-get", *argv]


def _simulation(request: Request, *options: str) -> list[str]:
    held = ["--allow-change-held-packages"] if request.options["change_held"] else []
    weak = "--no-install-recommends"
    return [
        *(*_ENGLISH, "apt-get", *options, "--simulate", "--assume-yes", weak, *held, "install"),
        *names(request),
    ]


def _sources_text(repository: Mapping[str, Any], key: str) -> str:
    """Return the source as deb822_repository writes it."""
    lines = [f"{name}: {value}" for name, value in _fields(repository, for_rpm=False) if value]
    own = repository.get("signed_by")
    if signed_by := key if own is None else own:
        first, *more = signed_by.strip().splitlines()
        lines.append(f"Signed-By: {first}" if not more else "Signed-By:")
        lines += [f" {line.strip() or '.'}" for line in ((first, *more) if more else ())]
    return "\n".join(lines) + "\n"


# --- dnf ------------------------------------------------------------------------------------------

_OWN_FOLDERS = (
    EXIT_ON_LOCK,
    f"--setopt=reposdir={FOLDER}/repos",
    f"--setopt=cachedir={FOLDER}/cache",
    f"--setopt=logdir={FOLDER}",
    f"--setopt=persistdir={FOLDER}/history",  # any answer writes there
)


def _dnf(request: Request) -> Question:
    repository, stream = request.repository, request.options["stream"]
    files: dict[str, str] = {}
    programs: list[Program] = []
    options = [*_OWN_FOLDERS]
    if repository.get("new"):
        name = repository["name"]
        files["key"] = request.key
        files[f"repos/{name}.repo"] = _repo_text(repository)
        # dnf asks before it takes the key of the metadata.
        read = [*_ENGLISH, "dnf", "--assumeyes", *options, f"--repo={name}", "makecache"]
        programs.append({"argv": read})
    if stream:
        listing: Program = {
            "argv": [*_ENGLISH, "dnf", "--quiet", *options, "module", "list", stream]
        }
        if not repository:  # the node's own sources may have no streams
            listing["success"] = NO_STREAMS
        programs.append(listing)
        # The stream is not enabled yet, and dnf has no other place for that. The name of an admin's
        # repository is not known.
        name = repository["name"] if repository.get("new") else "*"
        options.append(f"--setopt={name}.module_hotfixes=1")
    programs.append(_declined(request, *options))
    asked = ["dnf", *options, "list", "--showduplicates", *_bare(request, REDHAT)]
    return {
        "files": files,
        "copies": [("cache", "/var/cache/dnf"), ("history", "/var/lib/dnf")],
        "links": [("repos", "/etc/yum.repos.d")],
        "programs": programs,
        "answers": {"versions": [*_ENGLISH, *asked]},
        **_offers(request, *options),
    }


def _offers(request: Request, *options: str) -> Question:
    """Ask which repositories have the packages, unless they are those of the system itself."""
    if request.options["repository"] is None:
        return {}
    query = ("repoquery", "--queryformat", OFFERS_FORMAT, *bare_names(request.names, REDHAT))
    return {"tells": {OFFERS: [*_ENGLISH, "dnf", "--quiet", *options, *query]}}


def _declined(request: Request, *options: str) -> Program:
    """Return the program that shows the transaction, and declines it."""
    changed = bare_names(request.names, REDHAT) if request.options["change_held"] else []
    refresh = ["--refresh"] if request.is_fresh else []
    erasing = ["--allowerasing"] if request.options["may_remove"] else []
    unlocked = ["--disableplugin=versionlock"] if {*changed}.intersection(request.held) else []
    argv = [
        *(*_ENGLISH, "dnf", "--assumeno", *options, NO_WEAK, *refresh, *erasing, *unlocked),
        *("install", *names(request)),
    ]
    return {"argv": argv, "success": "Operation aborted"}


def _repo_text(repository: Mapping[str, Any]) -> str:
    lines = [f"[{repository['name']}]", f"name={repository['name']}"]
    found = {**dict(_fields(repository, for_rpm=True)), "gpgkey": f"file://{FOLDER}/key"}
    lines += [f"{name}={value}" for name, value in found.items()]
    return "\n".join(lines) + "\n"


# --- both -----------------------------------------------------------------------------------------


def _fields(repository: Mapping[str, Any], *, for_rpm: bool) -> list[tuple[str, str]]:
    known = {name: repository[name] for name in Repository._fields if name in repository}
    return [*fields(Repository(**known), for_rpm).items()]


def names(request: Request) -> list[str]:
    """Return the packages of the operation, and those that earlier steps of the plan install."""
    return [*request.options["earlier"], *request.names]


def _bare(request: Request, family: str) -> list[str]:
    return bare_names(names(request), family)


def before_removal(request: Request, family: str) -> Call:
    """Ask what a removal would take along."""
    if family == DEBIAN:
        simulate = ("--simulate", "--assume-yes", "--allow-change-held-packages", "remove")
        argv = [*_ENGLISH, "apt-get", "-q", *simulate, *request.names]
        return _call(request, {"programs": [{"argv": argv}]})
    dnf = [*_ENGLISH, "dnf", EXIT_ON_LOCK, NO_REPOSITORY]
    argv = [*dnf, "--assumeno", "remove", *request.names]
    chosen = [*dnf, "--quiet", "repoquery", "--userinstalled", "--queryformat=%{name}"]
    programs: list[Program] = [{"argv": argv, "success": "Operation aborted"}]
    return _call(request, {"programs": programs, "tells": {CHOSEN: chosen}})


def in_check_mode(request: Request, family: str) -> Call:
    """Ask about an operation while its earlier steps are only planned."""
    if request.options["operation"] == "remove":
        return before_removal(request, family)
    return _call(request, _apt(request) if family == DEBIAN else _dnf(request))


def before_removals(request: Request, family: str) -> Call:
    """Ask about an installation that may remove packages, with the node's own files."""
    # What came before is done: earlier packages are there, and no hold is in the way.
    alone = Request({**request.options, "earlier": []}, is_fresh=request.is_fresh)
    if family == DEBIAN:
        tells = _about_modules(alone)
        programs: list[Program] = [{"argv": _simulation(alone)}]
        return _call(request, {"programs": programs, **({"tells": tells} if tells else {})})
    programs = [_declined(alone, EXIT_ON_LOCK)]
    return _call(request, {"programs": programs, **_offers(alone, EXIT_ON_LOCK)})


def is_one(call: Call) -> bool:
    """Whether a call asks, and changes nothing."""
    return "_rehearse" in call.options


def _call(request: Request, wanted: Question) -> Call:
    return Call(
        "metal.gpu.packages",
        {"operation": request.options["operation"], "_rehearse": wanted},
        changes=False,
        is_logged=False,
    )
