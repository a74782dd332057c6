# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which repositories does the package manager call unusable, and why? No function does I/O.

The texts are those of apt 2.4 to 3.0 and dnf 4, in the locale C.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
    without_credentials,
)

_NOT_SIGNED = "is not signed"
# Untrusted repositories, as gpgv (apt up to 2.6), sqv (apt 3), rpm and signing_key.py report them.
_UNTRUSTED = (
    re.compile(
        r"(?:GPG error|OpenPGP signature verification failed): (?P<place>\S+)\s+"
        r"(?:[^\s:]+ )?[^\s:]+: (?P<why>.*(?:\n[ \t]+(?:because: |Not? ).*)*)"
    ),
    # A consequence of an error about the key, so it counts only without one.
    re.compile(rf"The repository '(?P<place>\S+)[^']*' (?P<why>{_NOT_SIGNED})"),
    re.compile(r"(?P<place>\S+) (?P<why>is the key [0-9A-F]+), expected "),
    re.compile(
        r"(?P<place>\S+) (?P<why>is the key [0-9A-F]+, which .*|is not a trustworthy key: .*)"
    ),
    re.compile(
        r"Failed to download metadata for repo '(?P<place>[^']+)': (?P<why>.*GPG signature.*)"
    ),
)
# dnf names a package with a wrong signature, or the title of its repository, in front of this.
# Only packages of the operation's repository are new to the node.
# Source: gpgsigcheck of dnf/cli/cli.py, and dnf/base.py, in dnf 4.14
_WRONGLY_SIGNED = "GPG check FAILED"
_SIGNATURE = re.compile(
    r"Public key for \S+ is not installed|Package \S+ is not signed|Problem opening package \S+"
    r"|The GPG keys listed for .*"
)
_UNREACHABLE = (
    re.compile(r"Release file for (?P<place>\S+) (?P<why>is (?:not valid yet|expired) \([^)]*\))"),
    re.compile(r"Failed to fetch (?P<place>\S+)\s+(?P<why>.*)"),
    re.compile(r"The repository '(?P<place>\S+)[^']*' (?P<why>does not have a Release file)"),
    re.compile(r"cannot fetch the signing key (?P<place>\S+): (?P<why>.*)"),
    re.compile(r"(?P<why>Curl error \(\d+\):.*?) for (?P<place>\S+)"),
    re.compile(r"\[MIRROR\] \S+: (?P<why>Status code: \d+) for (?P<place>\S+)"),
    re.compile(
        r"\[MIRROR\] (?P<place>\S+): (?P<why>Downloading successful, but checksum doesn't match)"
    ),
    re.compile(r"Failed to download metadata for repo '(?P<place>[^']+)': (?P<why>.*)"),
)
# dnf's reasons for an index that it cannot use, and what follows from them. The first one counts.
_INDEX_OF_DNF = re.compile(
    r"Errors during downloading metadata for repository '(?P<place>[^']+)':\n"
    r" +- (?P<why>.*)(?:\n +- .*)*"
    r"(?:\n(?:Error: )?Failed to download metadata for repo '(?P=place)': .*)?"
)
_ADDRESS = re.compile(r" for \S+/(?P<file>[^\s/]+)")
# A program with a time limit (calls.py), which reads only the repository of the operation.
_STALLED = re.compile(r"timeout: sending signal TERM to command \W(?P<program>[\w-]+)")
_STATUS = re.compile(r"[1-5]\d\d ")  # of HTTP
# Reasons that have findings of their own.
_KEY_TOO_WEAK = re.compile(
    r"(?P<first>.*?)[\s:]*(?:\n|\s{2}).*(?P<last>SHA1 is not considered secure.*)", re.S
)
_OF_CLOCK = re.compile(
    r"is not valid yet|is expired \(invalid since|not yet valid|uses expired certificate"
    r"|certificate has expired|[Nn]ot live until"
)
_OUT_OF_STEP = re.compile(r"unexpected size|Hash Sum mismatch|checksum doesn't match")
_PACKAGE = re.compile(r"\.(?:deb|rpm)$")
_NOT_GONE = re.compile(r"(?:Status code: )?(?!404)[1-5]\d\d\b")
# A file of the index, which another one names by its checksum.
_OF_INDEX = re.compile(r"Status code: 404 for [0-9a-f]{32,}-")
_KEY = re.compile(r"\b[0-9A-F]{40,64}\b|\b[0-9A-F]{16}\b")


def unusable_repositories(
    host: str, text: str, repository: Mapping[str, Any]
) -> dict[str, dict[str, str]]:
    """Return a finding for each repository or key that a text calls unusable, by its place."""
    pinned = repository.get("fingerprint") or "none"
    unreachable = {
        match["place"]: _ADDRESS.sub(r" for \g<file>", match["why"]).strip()
        for match in _INDEX_OF_DNF.finditer(text)
    }
    unreachable |= _places(_UNREACHABLE, _INDEX_OF_DNF.sub("", text))
    if repository and (stalled := _STALLED.search(text)):
        unreachable.setdefault(
            root_of(repository["url"]), f"{stalled['program']} did not end in time"
        )
    distrusted = _places(_UNTRUSTED, text)
    if repository and _WRONGLY_SIGNED in text:
        why = "; ".join(dict.fromkeys(_SIGNATURE.findall(text))) or _WRONGLY_SIGNED
        distrusted.setdefault(root_of(repository["url"]), why)
    untrusted = {
        url: _untrusted(host, url, why, pinned)
        for url, why in distrusted.items()
        # apt also reports a mirror that answers 401 as not signed.
        if why != _NOT_SIGNED or not _STATUS.match(unreachable.get(url, ""))
    }
    return untrusted | {
        url: finding(_code(why), host, url=url, error=why)
        for url, why in unreachable.items()
        if url not in untrusted
    }


def _code(why: str) -> str:
    if _OF_CLOCK.search(why):
        return "REPOSITORY_CLOCK"
    is_gone = _PACKAGE.search(why) and not _NOT_GONE.match(why)
    is_incomplete = _OUT_OF_STEP.search(why) or is_gone or _OF_INDEX.match(why)
    return "REPOSITORY_INCOMPLETE" if is_incomplete else "REPOSITORY_UNREACHABLE"


def _untrusted(host: str, url: str, why: str, pinned: str) -> dict[str, str]:
    keys = ", ".join(dict.fromkeys(_KEY.findall(why))) or "not named"
    if weak := _KEY_TOO_WEAK.match(why):
        error = f"{weak['first']}: {weak['last']}"
        return finding("REPOSITORY_KEY_WEAK", host, url=url, error=error, key=keys)
    why = " ".join(why.split())
    if _OF_CLOCK.search(why):
        return finding("REPOSITORY_CLOCK", host, url=url, error=why)
    return finding("REPOSITORY_UNTRUSTED", host, url=url, error=why, key=keys, pinned=pinned)


def _places(patterns: Iterable[re.Pattern[str]], text: str) -> dict[str, str]:
    """Return the errors, keyed by repository; the first error of a repository counts."""
    found: dict[str, str] = {}
    for pattern in patterns:
        for match in pattern.finditer(text):
            why = match["why"].strip()
            place = root_of(match["place"])
            # The index names a package's file that is not there.
            if _PACKAGE.search(match["place"]):
                why = f"{why} {match['place'].rpartition('/')[2]}"
                if place == match["place"]:  # dnf names only the file
                    place = f"of {place}"
            found.setdefault(place, why)
    return found


def root_of(place: str) -> str:
    """Return the URL of the repository that contains an address."""
    files = r"(?:\./)?(?:(?:In)?Release(?:\.gpg)?|Packages(?:\.\w+)?)"
    package = r"(?:pool/.*|(?:\./)?[^/]+\.(?:deb|rpm))"
    root = re.sub(rf"/(?:dists/.*|{files}|repodata/.*|{package}|)$", "", place)
    return without_credentials(root)
