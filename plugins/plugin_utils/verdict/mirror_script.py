# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""How does a mirror get what the hosts fetch? The lines of a shell script; no function does I/O.

An address may have a login, and other users see the arguments of programs. So programs read
addresses from files and from their standard input.

Programs end with 0 without what they could not fetch, and vendors' lists name files that are not
there. So the script fails only for what the hosts install.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.login import of_address
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import METADATA, REDHAT
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.mirror import (
    File,
    Listing,
    Repository,
    is_tagged,
    place_of,
    place_of_image,
)

_FOLDER = "mirror"  # where the commands put files
_START = """\
#!/bin/sh
set -eu
lacks=
lack() { echo "$*" >&2; lacks=1; }
end_if_lacking() { [ -z "$lacks" ] || exit 1; }
# Writes what is at the address of the standard input to FILE.
fetch() { curl --fail --location --create-dirs --output "$1" --config -; }\
"""
_SKOPEO = """\
skopeo copy --help | grep -q -e --preserve-digests || lack "skopeo is older than 1.6."\
"""
_REPOSYNC = """\
dnf reposync --help > /dev/null || lack "dnf has no reposync: install dnf-plugins-core."\
"""
_DNF = """\
# dnf reads the addresses from files that nobody else can read.
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
trap 'exit 1' HUP INT TERM\
"""
_FUNCTIONS_OF_APT = """\
# apt-mirror leaves out this file of a repository without suites, and not all have it: curl ends
# with 22 if the server answers with an error.
fetch_in_release() { fetch "$1/InRelease" || { [ $? -eq 22 ] && rm -f "$1/InRelease"; }; }
# Checks that FOLDER has a signature that apt looks for.
check_signature() {
  [ -s "$1/InRelease" ] || { [ -s "$1/Release" ] && [ -s "$1/Release.gpg" ]; } ||
    lack "$1 has neither InRelease, nor Release with Release.gpg."
}
# Checks the newest package NAME with a VERSION such as "2.4.1-*": PLACE NAME VERSION INDEX...
check_deb() {
  place=$1 name=$2 version=$3
  shift 3
  newest=$(
    awk -v name="$name" '
      BEGIN { RS = ""; FS = "\\n" }
      {
        split("", of)
        for (i = 1; i <= NF; i++) if (split($i, part, ": ") > 1) of[part[1]] = part[2]
        if (of["Package"] == name) print of["Version"], of["SHA256"], of["Filename"]
      }' "$@" |
      while read -r found rest; do
        case $found in ($version) echo "$found $rest" ;; esac
      done | sort -k 1,1V | tail -n 1
  )
  if [ -z "$newest" ]; then
    lack "$place has no package $name=$version."
  else
    echo "${newest#* }" | while read -r sum file; do
      echo "$sum  $place/$file" | sha256sum --check --quiet >&2
    done || lack "$name is damaged or missing: remove its file, and run the script again."
  fi
}\
"""
_CHECK_OF_APT = f"""\
(cd {_FOLDER} && sha256sum --check --quiet ../apt/var/SHA256) >&2 ||
  echo "The vendors' lists name the files above, too. Hosts fail if their packages need one." >&2\
"""
_FUNCTIONS_OF_DNF = """\
# Checks that PLACE has an index, and a package whose file is called PATTERN.
check_rpm() {
  [ -s "$1/repodata/repomd.xml" ] && find "$1" -name "$2" | grep -q . || lack "$1 has no $2."
}\
"""


def commands(listing: Listing, registry: str) -> list[str]:
    """Return the lines of a shell script that fills a mirror, on a machine with the internet."""
    debian = [one for one in listing.repositories if one.family != REDHAT]
    redhat = [one for one in listing.repositories if one.family == REDHAT]
    parts = [
        _START,
        *_programs(listing),
        f"mkdir -p {_FOLDER}",
        *(_from_apt(debian) if debian else ()),
        *(_from_dnf(redhat) if redhat else ()),
        *(line for file in listing.files for line in _from_file(file)),
        *(
            f"skopeo copy --all --preserve-digests {shlex.quote(_source_image(image))}"
            f" {shlex.quote(_image(image, registry))}"
            for image in listing.images
        ),
    ]
    if debian:
        parts.append(_CHECK_OF_APT)
        parts += [line for one in debian for line in _checks_of_apt(one, listing.repositories[one])]
    if redhat:
        parts.append(_FUNCTIONS_OF_DNF)
        parts += [line for one in redhat for line in _checks_of_dnf(one, listing.repositories[one])]
    return [*parts, "end_if_lacking"]


def _programs(listing: Listing) -> Iterator[str]:
    """Yield commands that fail at once if a program is missing, and not after hours."""
    families = {one.family == REDHAT for one in listing.repositories}
    needed = {
        "apt-mirror": False in families,
        "xz": False in families,  # apt-mirror goes on without it
        "dnf": True in families,
        "curl": bool(listing.repositories or listing.files),
        "gpg": any(file.fingerprint for file in listing.files),
        "skopeo": bool(listing.images),
    }
    if names := " ".join(name for name, is_needed in needed.items() if is_needed):
        yield f"for program in {names}; do"
        yield '  command -v "$program" > /dev/null || lack "This machine has no $program."'
        yield "done"
        yield "end_if_lacking"
    if needed["dnf"]:
        yield _REPOSYNC
    if needed["skopeo"]:
        yield _SKOPEO
    yield "end_if_lacking"


def _from_apt(repositories: Iterable[Repository]) -> Iterator[str]:
    yield _FUNCTIONS_OF_APT
    yield "# apt-mirror needs base_path/{mirror,skel,var}; it takes the whole repositories."
    yield f"mkdir -p apt/skel apt/var && ln -sfn ../{_FOLDER} apt/mirror"
    yield "chmod 700 apt  # apt/var has the addresses, which may have passwords"
    yield from _links_of_ports(repositories)
    yield ": > apt-mirror.list; chmod 600 apt-mirror.list"
    yield "cat > apt-mirror.list <<'END'"
    yield "set base_path __BASE__"
    yield "set run_postmirror 0"
    yield from (f"deb-amd64 {' '.join(_apt(one))}" for one in repositories)
    yield "END"
    yield 'sed -i "s|__BASE__|$PWD/apt|" apt-mirror.list'
    yield "apt-mirror apt-mirror.list"
    for one in repositories:
        if _is_flat(one):
            address = f"{_root(one)}/{one.suite}".rstrip("/")
            yield from _reading(f"fetch_in_release {_target(address)}", f"{address}/InRelease")


def _links_of_ports(repositories: Iterable[Repository]) -> Iterator[str]:
    """Yield commands for addresses with a port: wget writes it into the path, apt-mirror does not.

    So apt-mirror finds nothing of what wget fetched.
    """
    found = {urlsplit(one.url) for one in repositories}
    for host, port in sorted({(one.hostname or "", one.port) for one in found if one.port}):
        for folder in ("apt/skel", _FOLDER):
            place = shlex.quote(f"{folder}/{host}")
            yield f"mkdir -p {place} && ln -sfn {shlex.quote(host)} {place}:{port}"


def _apt(one: Repository) -> Iterator[str]:
    yield _root(one) if _is_flat(one) else one.url
    yield one.suite
    if one.components:
        yield one.components


def _checks_of_apt(one: Repository, packages: Iterable[str]) -> Iterator[str]:
    place = f"{_FOLDER}/{place_of(one.url).rstrip('/')}"
    flat = f"{place}/{one.suite}".rstrip("/")
    folder = flat if _is_flat(one) else f"{place}/dists/{one.suite}"
    yield f"check_signature {shlex.quote(folder)}"
    components = [f"/{component}/binary-amd64" for component in one.components.split()] or [""]
    indices = [shlex.quote(f"{folder}{component}/Packages") for component in components]
    for package in packages:
        name, _equals, version = package.partition("=")
        words = " ".join(shlex.quote(word) for word in (place, name, version or "*"))
        yield f"check_deb {words} {' '.join(indices)}"


def _from_dnf(repositories: Iterable[Repository]) -> Iterator[str]:
    yield _DNF
    for one in repositories:
        name = place_of(one.url).strip("/").replace("/", "-")
        target = _target(one.url)
        file = f'"$sources"/{shlex.quote(name)}.repo'
        yield f"(umask 077; cat > {file}) <<'END'"
        address = (f"{option}={value}" for option, value in of_address(one.url).items())
        yield from (f"[{name}]", f"name={name}", *address, "END")
        yield (
            f'dnf reposync --setopt=reposdir="$sources" --repoid={shlex.quote(name)}'
            f" --download-metadata --norepopath --download-path={target} ||"
            f" echo {shlex.quote(f'dnf has not fetched all of {place_of(one.url)}.')} >&2"
        )
        if one.signs == METADATA:
            # reposync only fetches it if dnf itself shall check it.
            signature = "repodata/repomd.xml.asc"
            yield from _reading(f"fetch {target}/{signature}", f"{_root(one)}/{signature}")


def _checks_of_dnf(one: Repository, packages: Iterable[str]) -> Iterator[str]:
    for package in packages:
        # The names of files have no epochs.
        pattern = re.sub(r"-\d+:", "-", package)
        yield f"check_rpm {_target(one.url)} {shlex.quote(f'{pattern}[-.]*.rpm')}"


def _from_file(file: File) -> Iterator[str]:
    target = _target(file.url)
    yield from _reading(f"fetch {target}", file.url)
    if file.sha256:
        yield f"echo {file.sha256}'  '{target} | sha256sum --check"
    if file.fingerprint:
        yield f"gpg --show-keys --with-colons {target} | grep -q '^fpr:.*:{file.fingerprint}:'"


def _reading(command: str, url: str) -> Iterator[str]:
    """Yield a command that reads an address. curl reads strings as JSON writes them."""
    yield f"{command} <<'END'"
    yield f"url = {json.dumps(url, ensure_ascii=False)}"
    yield "END"


def _is_flat(one: Repository) -> bool:
    """Tell whether the suite is a folder, such as / or deb/, and has no components."""
    return one.suite.endswith("/")


def _root(one: Repository) -> str:
    return one.url.rstrip("/")


def _target(url: str) -> str:
    """Return where the mirror has an address, as a word of the shell."""
    return shlex.quote(f"{_FOLDER}/{place_of(url).rstrip('/')}")


def _source_image(name: str) -> str:
    """Return an image as skopeo takes it: it refuses names with tag and digest."""
    bare, at, digest = name.partition("@")
    if at and is_tagged(bare):
        bare = bare.rpartition(":")[0]
    return f"docker://{bare}{at}{digest}"


def _image(name: str, registry: str) -> str:
    """Return where an image goes: below its own name, by its tag, or by its digest."""
    bare, at, digest = place_of_image(name).partition("@")
    if at:
        # skopeo pushes to a tag. A pull by the digest finds it, whatever the tag is.
        bare = bare if is_tagged(bare) else f"{bare}:{digest.partition(':')[2][:12]}"
    return f"docker://{registry}/{bare}"
