# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why did the package manager fail? From its words to findings. No function does I/O.

The texts are those of apt 2.4 to 3.0 and dnf 4, in the locale C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.package_sources import without_credentials
from ansible_collections.metal.gpu.plugins.plugin_utils.plan_packages import is_version
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import files_with

_NOT_SIGNED = "is not signed"
# Who is not trusted, in the words of gpgv (apt up to 2.6), sqv (apt 3), rpm and our own look-up.
_UNTRUSTED = (
    re.compile(
        r"(?:GPG error|OpenPGP signature verification failed): (?P<place>\S+)\s+\S+: (?P<why>.*)"
    ),
    # Follows from what was said about its key, so only where nothing was.
    re.compile(rf"The repository '(?P<place>\S+)[^']*' (?P<why>{_NOT_SIGNED})"),
    re.compile(r"(?P<place>\S+) (?P<why>is the key [0-9A-F]+), expected was"),
    re.compile(r"(?P<place>\S+) (?P<why>is the key [0-9A-F]+, which .*|is no key to trust: .*)"),
    re.compile(
        r"Failed to download metadata for repo '(?P<place>[^']+)': (?P<why>.*GPG signature.*)"
    ),
    re.compile(r"Failed to validate GPG signature for (?P<place>\S+?): (?P<why>.*)"),
)
_UNREACHABLE = (
    re.compile(r"Failed to fetch (?P<place>\S+)\s+(?P<why>.*)"),
    re.compile(r"The repository '(?P<place>\S+)[^']*' (?P<why>does not have a Release file)"),
    re.compile(r"cannot fetch the signing key (?P<place>\S+): (?P<why>.*)"),
    re.compile(r"(?P<why>Curl error \(\d+\):.*?) for (?P<place>\S+)"),
    re.compile(r"Failed to download metadata for repo '(?P<place>[^']+)': (?P<why>.*)"),
)
_STATUS = re.compile(r"[1-5]\d\d ")  # of HTTP
_CONFLICTING = re.compile(
    r"Conflicting values set for option (?P<option>\S+) "
    r"regarding source (?P<place>\S+) (?P<suite>\S+):"
)
_KEY = re.compile(r"\b[0-9A-F]{40,64}\b|\b[0-9A-F]{16}\b")
_LOCKED = re.compile(
    r"[Cc]ould not get lock|[Uu]nable to (?:acquire|lock)|Failed to lock"
    r"|locked by (?:another|\S+) process|lockfile is held by another process"
)
_HELD_BY = re.compile(r"(?:held by process|with pid) (?P<pid>\d+)(?: \((?P<command>[^)]+)\))?")
_INTERRUPTED = re.compile(r"dpkg was interrupted")
# dpkg and DKMS say what has failed on stdout, and apt only "returned an error code" on stderr.
_UNCONFIGURED = re.compile(
    r"^ *(dpkg: error processing (?:package|archive) .*?:?"
    r"|.* script subprocess returned error .*"
    r"|Error! .*"
    r"|Consult \S+make\.log\b.*)$",
    re.MULTILINE,
)
_NEAREST = 4


def explain(
    said: str,
    answers: Mapping[str, str],
    node: Mapping[str, Any],
    desired: Mapping[str, Any],
    printed: str = "",
) -> list[dict[str, str]]:
    """Return what is wrong, the cause before its consequences; never empty.

    `said` is what the module or the key's look-up failed with, empty where waiting for a lock had
    no end; `printed` is what the package manager printed on the way. `answers` has what it said
    when it was asked afterwards: `update` about its repositories, `versions` about the packages.
    `desired` has host, names (as the package manager takes them), lock_timeout, and the repository
    that serves them, empty where the packages are the system's.

    The last one is REPOSITORY_REMOVED where the repository is new and the cause: with it, every
    other run of the package manager would fail, too.
    """
    host = desired["host"]
    # What is said about repositories alone is in lines; the module joins everything to one.
    text = f"{answers.get('update', '')}\n{said}"
    lock = node["package_manager"]["lock"]
    if _LOCKED.search(said) or (lock and not said):
        return [_locked(host, lock, said, desired["lock_timeout"])]
    if node["package_manager"]["interrupted"] or _INTERRUPTED.search(text):
        return [finding("DPKG_INTERRUPTED", host)]
    repository = desired["repository"]
    unreachable = _places(_UNREACHABLE, text)
    untrusted = {
        url: why
        for url, why in _places(_UNTRUSTED, text).items()
        # What nobody could fetch is not signed, either: apt says so of a mirror that answers 401.
        if why != _NOT_SIGNED or not _STATUS.match(unreachable.get(url, ""))
    }
    pinned = repository.get("fingerprint") or "none of ours"
    # With these, apt says nothing about any other.
    conflicting = {_repository(match["place"]): match for match in _CONFLICTING.finditer(text)}
    found = (
        [_twice(host, node, url, match) for url, match in conflicting.items()]
        or [_untrusted(host, url, why, pinned) for url, why in untrusted.items()]
        or [
            finding("REPOSITORY_UNREACHABLE", host, url=url, error=why)
            for url, why in unreachable.items()
        ]
        or _missing(host, answers.get("versions", ""), desired["names"], node["os"]["family"])
        or _unconfigured(host, f"{printed}\n{said}")
        or [finding("PACKAGES_FAILED", host, error=_last_words(said))]
    )
    places = conflicting or untrusted or unreachable
    if repository.get("new") and {_repository(repository["url"]), repository["name"]} & {*places}:
        found.append(finding("REPOSITORY_REMOVED", host, name=repository["name"]))
    return found


def _locked(host: str, lock: Mapping[str, Any] | None, said: str, seconds: int) -> dict[str, str]:
    named = _HELD_BY.search(said)
    if lock:
        pid, command = lock["pid"], lock["command"]
    else:
        pid, command = (named["pid"], named["command"]) if named else ("unknown", "")
    return finding(
        "PACKAGE_MANAGER_LOCKED", host, command=command or "a process", pid=pid, seconds=seconds
    )


def _twice(host: str, node: Mapping[str, Any], url: str, said: re.Match[str]) -> dict[str, str]:
    files = ", ".join(files_with(node, url, said["suite"])) or "files unknown"
    return finding(
        "REPOSITORY_TWICE", host, url=url, suite=said["suite"], option=said["option"], files=files
    )


def _untrusted(host: str, url: str, why: str, pinned: str) -> dict[str, str]:
    keys = ", ".join(dict.fromkeys(_KEY.findall(why))) or "not named"
    return finding("REPOSITORY_UNTRUSTED", host, url=url, error=why, key=keys, pinned=pinned)


def _places(patterns: Iterable[re.Pattern[str]], text: str) -> dict[str, str]:
    """Return why, keyed by repository; the first reason that is given for one counts."""
    found: dict[str, str] = {}
    for pattern in patterns:
        for match in pattern.finditer(text):
            found.setdefault(_repository(match["place"]), match["why"].strip())
    return found


def _missing(host: str, text: str, names: Iterable[str], family: str) -> list[dict[str, str]]:
    """Return a finding for all packages that want one version and have the same ones."""
    known = parse_madison(text) if family == "debian" else parse_dnf_list(text)
    missing: dict[tuple[str, str], list[str]] = {}
    for name, version in (split(argument, family) for argument in names):
        versions = known.get(name, [])
        if not any(is_version(one, version) for one in versions):
            found = ", ".join(nearest(version, versions)) or "no version of it"
            missing.setdefault((version or "any", found), []).append(name)
    return [
        finding(
            "PACKAGE_VERSION_MISSING",
            host,
            package=", ".join(packages),
            version=version,
            found=found,
        )
        for (version, found), packages in missing.items()
    ]


def _unconfigured(host: str, text: str) -> list[dict[str, str]]:
    """Return a finding where dpkg has begun with a package and could not finish."""
    lines = dict.fromkeys(line.strip().rstrip(":.") for line in _UNCONFIGURED.findall(text))
    return [finding("PACKAGES_UNCONFIGURED", host, error="; ".join(lines))] if lines else []


def split(argument: str, family: str) -> tuple[str, str]:
    """Split what the package manager takes into name and version; the version may be empty."""
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
    """Return the versions that have most of their beginning in common with the wanted one."""
    ranked = sorted(versions, key=lambda one: -len(_common(_parts(one), _parts(version))))
    return ranked[:_NEAREST]


def _common(one: list[str], other: list[str]) -> list[str]:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]


def _parts(version: str) -> list[str]:
    return re.findall(r"\d+|[^\d]+", version)


def _repository(place: str) -> str:
    """Return the repository that an address in it belongs to."""
    root = re.sub(r"/(?:dists/.*|(?:In)?Release(?:\.gpg)?|repodata/.*|)$", "", place)
    return without_credentials(root)


def _last_words(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "Error"))]
    return (errors or lines or ["it said nothing"])[-1]
