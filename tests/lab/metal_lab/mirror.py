# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A signed mirror over HTTP with the layout of the upstream repositories.

Here are the repositories for apt, and those for dnf in rpm_mirror.

`publish` turns the packages of `metal_lab.packages` into repositories. mirror_server serves them.

Source: https://wiki.debian.org/DebianRepository/Format
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from metal_lab import debian_driver, records, rpm_mirror, ubuntu
from metal_lab.keys import KEY_NAME, gpg_of, only_fingerprint
from metal_lab.versions import CRI_DOCKERD, CRIO_MINOR, KUBERNETES_MINOR

# Pools that upstream publishes as plain files, with their paths below the mirror's address.
FILES = {"cri-dockerd": f"Mirantis/cri-dockerd/releases/download/v{CRI_DOCKERD}"}

EMPTY = "nothing"  # a pool
# The index of a repository about which the records say nothing.
ALL_FILES = ("InRelease", "Release", "Release.gpg", "Packages", "Packages.gz")
_PACKAGES: Mapping[str, Callable[[bytes], bytes]] = {
    "Packages": bytes,
    "Packages.gz": partial(gzip.compress, mtime=0),
    "Packages.xz": lzma.compress,
}

# The pool of the .run files, and NVIDIA's folder of them, which has one for each version.
RUN_FILES, RUN_FILES_PLACE = "run-files", "tesla"


class Repository(NamedTuple):
    """Where one pool is published. Paths are relative to the address of the mirror."""

    name: str  # for people; the suites of one repository share it
    pool: str
    path: str
    key: str  # upstream's path of its key; NVIDIA names the file after the key
    suite: str = ""  # empty: a flat repository, without suites and components
    components: tuple[str, ...] = ("stable",)  # with several, each has a pool POOL/COMPONENT
    origin: str = KEY_NAME
    of: str = ""  # the vendor's repository in the records

    @property
    def files(self) -> tuple[str, ...]:
        """Return the files of the index, of those that apt knows."""
        rows = records.about((self.of,), "index")
        return tuple(name for row in rows for name in records.values(row)) or ALL_FILES

    @property
    def folder(self) -> str:
        """Return the folder of Release, relative to `path`."""
        return f"dists/{self.suite}" if self.suite else "."

    @property
    def pools(self) -> dict[str, str]:
        """Return the pool of each component; that of a flat repository is empty."""
        if not self.suite or len(self.components) == 1:
            return {self.components[0] if self.suite else "": self.pool}
        return {component: f"{self.pool}/{component}" for component in self.components}

    def source(self, address: str, keyring: str) -> str:
        """Return the line for apt; the keyring is a path on the node, `.asc` where armoured."""
        where = f"{self.suite} {' '.join(self.components)}" if self.suite else "/"
        return f"deb [arch=amd64 signed-by={keyring}] {address}/{self.path}/ {where}"


def repositories(fingerprint: str) -> tuple[Repository, ...]:
    """Return the repositories of a mirror that is signed with this key."""
    nvidia_key = f"{fingerprint[-8:]}.pub"
    stream = f"repositories/isv:/cri-o:/stable:/v{CRIO_MINOR}/deb"
    core = f"kubernetes/core:/stable:/v{KUBERNETES_MINOR}/deb"
    return (
        *(
            Repository("docker", f"docker/{suite}", "docker", "docker/gpg", suite)
            for suite in ("bookworm", "trixie", "jammy", "noble")
        ),
        *(
            Repository(
                *(f"nvidia-{os}", pool, f"nvidia/{os}/x86_64"),
                f"nvidia/{os}/x86_64/{nvidia_key}",
                of=os,
            )
            for pool, systems in (
                ("nvidia", ("debian12", "debian13")),
                (ubuntu.NVIDIA, ubuntu.RECORDS),
            )
            for os in systems
        ),
        Repository(
            "toolkit", "toolkit", "toolkit/stable/deb/amd64", "toolkit/gpgkey", of="toolkit-deb"
        ),
        Repository("kubernetes", "kubernetes", core, f"{core}/Release.key"),
        Repository("cri-o", "cri-o", stream, f"{stream}/Release.key"),
        Repository("debian", "debian", "debian", "debian/gpg"),
        *(
            Repository(name, pool, path, "debian/gpg", suite, debian_driver.COMPONENTS)
            for name, pool, path, suite in (
                (debian_driver.POOL, debian_driver.POOL, "debian", "trixie"),
                (debian_driver.POOL, EMPTY, "debian", "trixie-updates"),
                (f"{debian_driver.POOL}-security", EMPTY, "debian-security", "trixie-security"),
            )
        ),
        *(
            Repository(archive, pool, archive, f"{archive}/gpg", suite, components, origin)
            for archive, system in ubuntu.archives()
            for suite, pool, components, origin in ubuntu.suites(archive, system)
        ),
    )


# Repositories that nobody must trust, although their keys can be fetched. The first offers an
# expired copy of its key. The second is signed with a key that it does not offer. Both are empty.
EXPIRED = Repository("expired", EMPTY, "untrusted/expired", "untrusted/expired/gpgkey")
STRANGER = Repository("stranger", EMPTY, "untrusted/stranger", "untrusted/stranger/gpgkey")


class Published(NamedTuple):
    """A mirror that can be served."""

    fingerprint: str
    repositories: tuple[Repository, ...]


# ---------------------------------------------------------------------------------------------
# Index files


def stanza(control: str, filename: str, content: bytes) -> str:
    """Return the entry of one package: its control file, path, size and checksum."""
    return (
        f"{control.rstrip()}\n"
        f"Filename: {filename}\n"
        f"Size: {len(content)}\n"
        f"SHA256: {hashlib.sha256(content).hexdigest()}\n"
    )


def release(repository: Repository, indices: Mapping[str, bytes], date: datetime) -> str:
    """Return the text of Release, which names every index file with its checksum."""
    fields = {
        "Origin": repository.origin,
        "Label": repository.path.partition("/")[0],
        "Suite": repository.suite,
        # noble-updates is a suite of noble.
        "Codename": repository.suite.partition("-")[0],
        "Date": format_datetime(date, usegmt=True),
        "Architectures": "amd64",
        "Components": " ".join(repository.components) if repository.suite else "",
    }
    lines = [f"{name}: {value}" for name, value in fields.items() if value]
    lines.append("SHA256:")
    lines += [
        f" {hashlib.sha256(content).hexdigest()} {len(content)} {path}"
        for path, content in indices.items()
    ]
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------------------------------------
# Publishing


def fingerprint(gpg_home: Path) -> str:
    """Return the fingerprint of the mirror's key. The first call creates it."""
    with gpg_of(gpg_home) as gpg:
        return only_fingerprint(gpg)


def _link_or_copy(source: Path, target: Path) -> None:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or no support for links
        shutil.copyfile(source, target)


Pools = Mapping[str, Sequence[Path]]  # folders of packages, keyed by pool


def _debs(pools: Pools, pool: str) -> list[Path]:
    return _found(pools, pool, "*.deb")


def _found(pools: Pools, pool: str, pattern: str) -> list[Path]:
    found = (file for folder in pools.get(pool, ()) for file in folder.glob(pattern))
    return sorted(found, key=lambda file: file.name)


def _publish(pools: Pools, repository: Repository, out: Path, date: datetime) -> Path:
    """Write one repository with an unsigned Release file. Return the path of that file."""
    root = out / repository.path
    index = root / repository.folder
    indices: dict[str, bytes] = {}
    for component, pool in repository.pools.items():
        # Paths of indices are relative to Release, paths of packages to the repository.
        debs = index / "pool" / component / "amd64" if component else root
        packages = Path(component, "binary-amd64/Packages" if component else "Packages")
        debs.mkdir(parents=True, exist_ok=True)
        (index / packages).parent.mkdir(parents=True, exist_ok=True)
        text = "\n".join(_stanzas(_debs(pools, pool), debs, root)).encode()
        indices |= {
            str(packages.with_name(name)): pack(text)
            for name, pack in _PACKAGES.items()
            if name in repository.files
        }
    for path, content in indices.items():
        (index / path).write_bytes(content)
    (index / "Release").write_text(release(repository, indices, date))
    return index / "Release"


def _stanzas(found: Sequence[Path], debs: Path, root: Path) -> Iterator[str]:
    """Put packages into a folder of the mirror, and yield their entries."""
    for source in found:
        target = debs / source.name
        _link_or_copy(source, target)
        control = subprocess.run(
            ["dpkg-deb", "--field", source], stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        yield stanza(control, str(target.relative_to(root)), source.read_bytes())


def _sign(gpg: Callable[..., str], unsigned: Path, files: Collection[str] = ALL_FILES) -> None:
    gpg("--clearsign", f"--output={unsigned.with_name('InRelease')}", unsigned)
    gpg("--armor", "--detach-sign", f"--output={unsigned}.gpg", unsigned)
    for name in {*ALL_FILES[:3]} - {*files}:
        unsigned.with_name(name).unlink()


def _publish_untrusted(out: Path, date: datetime, trusted_key: str) -> None:
    """Publish EXPIRED and STRANGER, both signed with a key that was made in 2020 for one day."""
    with TemporaryDirectory(prefix="gpg-") as name, gpg_of(Path(name)) as gpg:
        old = "--faked-system-time=20200101T000000!"
        gpg(old, "--quick-generate-key", f"{KEY_NAME}, of old", "ed25519", "sign", "1d")
        expired_key = gpg(old, "--armor", "--export")
        gpg("--quick-set-expire", only_fingerprint(gpg), "0")
        for repository, key in ((EXPIRED, expired_key), (STRANGER, trusted_key)):
            _sign(gpg, _publish({}, repository, out, date))
            (out / repository.key).write_text(key)


def publish(pools: Pools, out: Path, gpg_home: Path) -> Published:
    """Publish all repositories below `out`, signed with the key in gpg_home.

    A pool that is missing is an empty repository. Packages are hard links where the file system
    supports them.
    """
    date = datetime.now(UTC)
    with gpg_of(gpg_home) as gpg:
        key = only_fingerprint(gpg)
        published = Published(key, repositories(key))
        for repository in published.repositories:
            unsigned = _publish(pools, repository, out, date)
            _sign(gpg, unsigned, repository.files)
            (out / repository.key).write_text(gpg("--armor", "--export", key))
        rpm_mirror.publish(pools, out, gpg_home, key, gpg)
        _publish_untrusted(out, date, gpg("--armor", "--export", key))
    for held, place in FILES.items():
        (out / place).mkdir(parents=True)
        for deb in _debs(pools, held):
            # GitHub replaces `~` in the names of files.
            _link_or_copy(deb, out / place / deb.name.replace("~", "."))
    for run in _found(pools, RUN_FILES, "*.run"):
        folder = out / RUN_FILES_PLACE / run.stem.rpartition("-")[2]
        folder.mkdir(parents=True, exist_ok=True)
        _link_or_copy(run, folder / run.name)
    return published
