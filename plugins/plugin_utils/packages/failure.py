# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why did the package manager fail? Turns its output into findings. No function does I/O.

The texts are those of apt 2.4 to 3.0 and dnf 4, in the locale C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.dependencies import (
    OF_EPEL,
    lacking,
    of_epel,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.outdated import outdated
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.plan import is_version
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.removals import (
    displaced,
    in_the_way,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import files_with
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import REDHAT
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.unfinished import (
    disk_full,
    unconfigured,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.unusable import (
    root_of,
    unusable_repositories,
)

_CONFLICTING = re.compile(
    r"Conflicting values set for option (?P<option>\S+) "
    r"regarding source (?P<place>\S+) (?P<suite>\S+):"
)
_LOCKED = re.compile(
    r"[Cc]ould not get lock|[Uu]nable to (?:acquire|lock)|Failed to lock"
    r"|locked by (?:another|\S+) process|lockfile is held by another process"
    r"|\w+ already locked by \d+"
)
_HELD_BY = re.compile(
    r"(?:held by process|with pid|already locked by) (?P<pid>\d+)(?: \((?P<command>[^)]+)\))?"
)
# The node's index of packages may be older than its repositories. Nothing is installed yet.
_STALE = re.compile(
    r"[Nn]o (?:available installation candidate|package)\b|Unable to (?:locate|fetch|find)\b"
    r"|Failed to (?:fetch|download)\b|Failed to install some of the|[Dd]epsolve Error"
    r"|Dependency is not satisfiable|Unable to satisfy dependencies"
    r"|nothing provides \S+ .*needed by"
)
# apt prints what is missing on stdout. On stderr, it guesses at held packages.
_UNMET = re.compile(
    r"^(?:The following packages have unmet dependencies|Unsatisfied dependencies):\n"
    r"(?P<which>(?: .*\n?)*)",
    re.MULTILINE,
)
# dnf says on stdout why it has no package.
_DOWNLOAD = re.compile(r"Error downloading packages:")
_INDEX = re.compile(r"Failed to update apt cache")
# A server that may do better in some seconds. A server that does not answer at all is not among
# them: the package managers try that themselves.
_PASSING = re.compile(
    r"\b(?:429|50[0234])  [A-Z]|(?:HTTP Error|Status code:) (?:429|50[0234])\b"
    r"|Hash Sum mismatch|Mirror sync in progress|Connection reset by peer"
    r"|ended the connection too early|closed connection without response"
    r"|[Tt]emporary failure (?:in name resolution|resolving)"
    r"|url(?:open) error (?:_ssl\.c:\d+: )?"
    r"(?:The handshake operation |The read operation )?timed out"
)
_NOBODY = {"pid": "unknown", "command": ""}
_INTERRUPTED = re.compile(r"dpkg was interrupted")
_NEAREST = 4
# The role's variable of the version of a package, the first that fits.
_VARIABLES = {
    "docker-ce": "docker_ce_version",
    "containerd": "containerd_version",
    "cri-o": "crio_version",
    "(lib)?nvidia-container": "nvidia_container_runtime_version",
    ".*nvidia|cuda-": "nvidia_driver_version",
}
_LINES_OF_AN_ERROR = 6


class Explanation(NamedTuple):
    """What a failure means."""

    findings: list[dict[str, str]]
    is_repository: bool = False  # whether the repository of the packages cannot be used


def explain(
    error: str,
    answers: Mapping[str, str],
    node: Node,
    desired: Mapping[str, Any],
    printed: str = "",
) -> Explanation:
    """Return the findings, the cause before its consequences; never empty.

    `error` is the error of the module or of the signing key. `printed` is what the package manager
    printed on stdout. `answers` has its output from queries after the failure: `update` about its
    repositories, `versions` about the packages.
    `desired` has host, names (in the package manager's syntax), lock_timeout, and the repository of
    the packages, empty for packages of the system.

    Repositories of others are the cause only if the error names them, or if the package manager
    does not find what it needs. What they may have then says nothing about the running kernel.
    """
    host = desired["host"]
    # The queries print one message per line; the module joins its messages to one line.
    text = f"{answers.get('update', '')}\n{error}"
    if is_locked(error):
        lock = node["package_manager"]["lock"] or locked_by(error)
        return Explanation([locked(host, lock, desired["lock_timeout"])])
    if full := disk_full(host, f"{printed}\n{error}"):  # dpkg is interrupted by that, too
        return Explanation(full)
    if node["package_manager"]["interrupted"] or _INTERRUPTED.search(text):
        return Explanation([finding("DPKG_INTERRUPTED", host)])
    if started := unconfigured(host, f"{printed}\n{error}", node):
        return Explanation(started)
    if conflicting := in_the_way(error, printed):
        return Explanation([displaced(host, desired["names"], conflicting)])
    if _DOWNLOAD.search(error):
        error = f"{printed}\n{error}"
    repository = desired["repository"]
    unusable = unusable_repositories(host, text, repository)
    others = unusable if is_stale(error, printed) or _INDEX.search(error) else {}
    own = {root_of(repository["url"]), repository["name"]} if repository else {*others}
    suspects = {
        **unusable_repositories(host, error, repository),
        **{place: one for place, one in unusable.items() if place in own},
    }
    # With conflicting options, apt reports no other error.
    twice = {root_of(match["place"]): match for match in _CONFLICTING.finditer(text)}
    found = (
        [_twice(host, node, url, match) for url, match in twice.items()]
        or [*suspects.values()]
        or (_missing(host, answers, _of_ours(node, desired["names"]), node) if others else [])
        or [*others.values()]
        or _of_kernel(host, node, answers, desired["names"], printed)
        or _missing(host, answers, desired["names"], node)
        or lacking(host, error)
        or [failed(host, error, printed)]
    )
    is_own = not own.isdisjoint({*twice, *suspects})
    return Explanation(found, is_repository=bool(repository) and is_own)


def failed(host: str, error: str, printed: str = "") -> dict[str, str]:
    """Return the finding about an error that nothing explains."""
    unmet = _UNMET.search(printed)
    lines = unmet["which"].splitlines() if unmet else []
    said = "; ".join(line.strip() for line in lines) or _last_error(error)
    return finding("PACKAGES_FAILED", host, error=said)


def is_locked(error: str) -> bool:
    """Whether another process holds the package manager's lock."""
    return bool(_LOCKED.search(error))


def is_stale(error: str, printed: str = "") -> bool:
    """Whether the operation may succeed after the indexes of all repositories are read again."""
    return bool(_STALE.search(error) or _UNMET.search(printed))


def is_passing(error: str) -> bool:
    """Whether the operation may succeed some seconds later."""
    return bool(_PASSING.search(error))


def locked_by(error: str) -> dict[str, str]:
    """Return the process that holds the lock, as far as an error names it."""
    named = _HELD_BY.search(error)
    return {"pid": named["pid"], "command": named["command"] or ""} if named else dict(_NOBODY)


def locked(host: str, holder: Mapping[str, Any], seconds: int) -> dict[str, str]:
    """Return the finding about a process that held the lock for the whole time."""
    command = holder["command"] or "a process"
    return finding(
        "PACKAGE_MANAGER_LOCKED", host, command=command, pid=holder["pid"], seconds=seconds
    )


def _twice(host: str, node: Node, url: str, match: re.Match[str]) -> dict[str, str]:
    files = ", ".join(files_with(node, url, match["suite"])) or "files unknown"
    return finding(
        "REPOSITORY_TWICE", host, url=url, suite=match["suite"], option=match["option"], files=files
    )


def _of_ours(node: Node, names: Iterable[str]) -> list[str]:
    """Return the packages that only a repository of ours has: those in a version of ours."""
    release, family = node["kernel"]["release"], node["os"]["family"]
    return [name for name in names if split(name, family)[1] and not (release and release in name)]


def _of_kernel(
    host: str, node: Node, answers: Mapping[str, str], names: Iterable[str], printed: str
) -> list[dict[str, str]]:
    """Return a finding if what is missing belongs to the running kernel, and those of the rest."""
    release = node["kernel"]["release"]
    of_kernel = [name for name in names if release and release in name]
    gone = [name for name in of_kernel if _missing(host, answers, [name], node)]
    unmet = _UNMET.search(printed)
    found = outdated(host, release, of_kernel, gone, unmet["which"] if unmet else "")
    others = [name for name in names if name not in of_kernel]
    return [*found, *_missing(host, answers, others, node)] if found else []


def _missing(
    host: str, answers: Mapping[str, str], names: Iterable[str], node: Node
) -> list[dict[str, str]]:
    """Return one finding for all packages with the same desired and available versions."""
    if "versions" not in answers:
        return []
    text, family = answers["versions"], node["os"]["family"]
    available = parse_madison(text) if family == "debian" else parse_dnf_list(text)
    names = list(names)
    missing: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    epel: list[str] = []
    for argument in names:
        name, version = split(argument, family)
        versions = available.get(name, [])
        if any(is_version(one, version) for one in versions):
            continue
        if family == REDHAT and name in OF_EPEL and not versions:
            epel.append(name)
            continue
        missing.setdefault((version, tuple(nearest(version, versions))), []).append(name)
    return of_epel(host, epel) + [
        finding(
            "PACKAGE_VERSION_MISSING",
            host,
            package=", ".join(packages) + (f" in version {version}" if version else ""),
            found=", ".join(found) or "none",
            setting=_setting(packages[0], found if version else (), names),
        )
        for (version, found), packages in missing.items()
    ]


def _setting(package: str, found: Sequence[str], names: Iterable[str]) -> str:
    """Return how to ask for an available version: with the variable of the role, if it has one."""
    variables = [variable for pattern, variable in _VARIABLES.items() if re.match(pattern, package)]
    if not found or not variables:
        return "if the role has a variable for its version, set that to an available version"
    variable = variables[0]
    if package == "containerd.io" and any(name.startswith("docker-ce") for name in names):
        variable = "docker_ce_containerd_version"
    upstream = re.sub(r"^\d+:|-.*", "", found[0])
    return f"set `{variable}: {upstream}` in inventory.yml"


def split(argument: str, family: str) -> tuple[str, str]:
    """Split an argument of the package manager into name and version, which may be empty."""
    if family == "debian":
        name, _sign, version = argument.partition("=")
        return name, version
    match = re.fullmatch(r"(.+?)-((?:\d+:)?\d[^-]*(?:-[^-]+?)?)(?:\.x86_64)?", argument)
    return (match[1], match[2]) if match else (argument, "")


def parse_madison(text: str) -> dict[str, list[str]]:
    """Parse `apt-cache madison`: versions keyed by package, the newest first."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) == 3 and columns[1] not in versions.setdefault(columns[0], []):
            versions[columns[0]].append(columns[1])
    return versions


def parse_dnf_list(text: str) -> dict[str, list[str]]:
    """Parse `dnf list --showduplicates`: versions keyed by package, the newest first."""
    versions: dict[str, list[str]] = {}
    for line in text.splitlines():
        columns = line.split()
        if len(columns) == 3 and "." in columns[0]:
            versions.setdefault(columns[0].rpartition(".")[0], []).insert(0, columns[1])
    return versions


def nearest(version: str, versions: Iterable[str]) -> list[str]:
    """Return the versions that are nearest to the desired one, as numbers and not as texts.

    The first number that differs decides, so those of the same branch come first. Those that are
    equally near keep their order.
    """
    return sorted(versions, key=lambda one: _distance(one, version))[:_NEAREST]


def _distance(version: str, other: str) -> tuple[int, int]:
    """Return the place of the first number that differs, counted backwards, and by how much."""
    ones, others = (
        [int(one[:99]) for one in re.findall(r"\d+", text)] for text in (version, other)
    )
    pairs = zip(ones, others, strict=False)
    for at, (one, another) in enumerate(pairs):
        if one != another:
            return -at, abs(one - another)
    return -min(len(ones), len(others)), abs(len(ones) - len(others))


def _last_error(text: str) -> str:
    """Return the last error with the lines that belong to it: dnf's reasons are below `Error:`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    starts = [at for at, line in enumerate(lines) if line.startswith(("E:", "Error"))]
    said = lines[starts[-1] :][:_LINES_OF_AN_ERROR] if starts else lines[-1:]
    return "; ".join(said).replace("Error:; ", "").replace(":; ", ": ") or "it printed no error"
