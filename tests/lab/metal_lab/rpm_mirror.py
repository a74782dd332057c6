# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The mirror's repositories for dnf: signed packages, signed metadata, and module streams.

The records have the vendors' addresses and the streams. recorded/redhat.yml has which repositories
there are, and what a new node has.

Source: https://docs.fedoraproject.org/en-US/modularity/ (the documents modulemd and
modulemd-defaults); dnf.conf(5).
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import yaml

from metal_lab import records
from metal_lab.keys import gpg_of, only_fingerprint
from metal_lab.rpm_packages import DRIVER, RECORDED, SYSTEMS

# Where the mirror has what a vendor has below an address.
_PLACES = {
    "https://developer.download.nvidia.com/compute/cuda/repos/": "nvidia/",
    "https://download.docker.com/linux/": "docker/",
    "https://nvidia.github.io/libnvidia-container/": "toolkit/",
}
_MODULE = "nvidia-driver"

_GPG = "/usr/bin/gpg"
_QUERY = "%{NAME}-%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}.%{ARCH}\\n"


class Repository(NamedTuple):
    """Where one pool is published. Paths are relative to the address of the mirror."""

    name: str  # of its pool, too
    path: str
    key: str
    of: str = ""  # the vendor's repository in the records
    file: str = ""  # in /etc/yum.repos.d of a new node; empty if a new node does not have it
    section: str = ""  # of this file

    @property
    def of_node(self) -> bool:
        """Whether a new node has the repository."""
        return bool(self.file)

    def is_of(self, system: str) -> bool:
        """Whether a new node of a system has the repository."""
        return self.of_node and self.name.endswith(SYSTEMS[system]["dist"].removeprefix("el"))

    @property
    def key_file(self) -> str:
        """Return where a new node has the key, relative to its root."""
        return f"etc/pki/rpm-gpg/{Path(self.key).name}"

    def source(self, address: str) -> str:
        """Return the repository's section in its file. dnf checks the packages."""
        return (
            f"[{self.section}]\n"
            f"name={self.section} of the laboratory\n"
            f"baseurl={address}/{self.path}/\n"
            "enabled=1\n"
            "gpgcheck=1\n"
            f"gpgkey=file:///{self.key_file}\n"
        )


def repositories(fingerprint: str) -> tuple[Repository, ...]:
    """Return the repositories of a mirror that is signed with this key."""
    return tuple(
        _of_vendor(row["name"], row["of"], fingerprint) if "of" in row else Repository(**row)
        for row in RECORDED["repositories"]
    )


def _of_vendor(name: str, of: str, fingerprint: str) -> Repository:
    """Return the repository of a vendor, with the paths of the vendor's addresses."""
    path, key = _place(records.only(of, "address")), _place(records.only(of, "key"))
    if key.endswith(".pub"):  # NVIDIA names the file after the key
        key = f"{key.rpartition('/')[0]}/{fingerprint[-8:]}.pub"
    return Repository(name, path.rstrip("/"), key, of)


def _place(address: str) -> str:
    for start, place in _PLACES.items():
        if address.startswith(start):
            return address.replace(start, place)
    raise LookupError(f"the mirror has no folder for {address}")


def publish(
    pools: Mapping[str, Sequence[Path]],
    out: Path,
    gpg_home: Path,
    fingerprint: str,
    gpg: Callable[..., str],
) -> None:
    """Publish the repositories that have packages below `out`, signed with the key in gpg_home.

    The distribution has a key of its own, so that a node does not know the vendors' key before.
    """
    with TemporaryDirectory(prefix="gpg-") as name, gpg_of(Path(name)) as gpg_of_distribution:
        own = only_fingerprint(gpg_of_distribution)
        for repository in repositories(fingerprint):
            if repository.of_node:
                _publish(repository, pools, out, Path(name), own, gpg_of_distribution)
            else:
                _publish(repository, pools, out, gpg_home, fingerprint, gpg)


def _publish(
    repository: Repository,
    pools: Mapping[str, Sequence[Path]],
    out: Path,
    gpg_home: Path,
    fingerprint: str,
    gpg: Callable[..., str],
) -> None:
    rpms = [rpm for folder in pools.get(repository.name, ()) for rpm in folder.glob("*.rpm")]
    if not rpms:
        return
    folder = out / repository.path
    folder.mkdir(parents=True)
    # Not links: the signature is in the package.
    copies = [Path(shutil.copy(rpm, folder / rpm.name)) for rpm in sorted(rpms)]
    _sign(copies, gpg_home, fingerprint)
    subprocess.run(["createrepo_c", "--quiet", "--no-database", folder], check=True)
    if repository.of and (streams := modules(_nevras(copies), repository.of)):
        _add_modules(folder, streams)
    index = folder / "repodata/repomd.xml"
    gpg("--armor", "--detach-sign", f"--output={index}.asc", index)
    (out / repository.key).parent.mkdir(parents=True, exist_ok=True)
    (out / repository.key).write_text(gpg("--armor", "--export", fingerprint))


def _sign(rpms: Iterable[Path], gpg_home: Path, fingerprint: str) -> None:
    macros = {"__gpg": _GPG, "_gpg_path": gpg_home, "_gpg_name": fingerprint}
    options = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    subprocess.run(["rpmsign", *options, "--addsign", *rpms], check=True, capture_output=True)


def _nevras(rpms: Iterable[Path]) -> list[str]:
    """Return the packages as the artifacts of a module name them."""
    command = ["rpm", "--query", "--package", f"--queryformat={_QUERY}", *map(str, rpms)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return result.stdout.splitlines()


def _add_modules(folder: Path, documents: Sequence[Mapping[str, Any]]) -> None:
    file = folder / "modules.yaml"
    file.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    subprocess.run(
        ["modifyrepo_c", "--mdtype=modules", file, folder / "repodata"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    file.unlink()


def modules(nevras: Iterable[str], repository: str) -> list[dict[str, Any]]:
    """Return the documents about the streams of the driver; none without a driver or streams.

    Each branch has a stream for each package with the kernel module, with all versions of the
    branch. Each of these packages has a stream with the newest branch.
    """
    forms, newest = _by_package(repository, "stream form"), _by_package(repository, "newest stream")
    packages = [one for one in nevras if one.split("-3:")[0] in DRIVER]
    versions = sorted({_version(one) for one in packages}, key=_numbers)
    documents = []
    for branch, version in {_branch(version): version for version in versions}.items():
        for kernel_package, form in forms.items():
            others = {*forms} - {kernel_package}
            artifacts = sorted(
                one
                for one in packages
                if _branch(_version(one)) == branch and one.split("-3:")[0] not in others
            )
            names = [form.replace("BRANCH", branch)]
            if version == versions[-1]:
                names.append(newest[kernel_package])
            documents += [_stream(repository, name, version, artifacts) for name in names]
    return [*documents, _defaults(repository)] if documents else []


def _by_package(repository: str, what: str) -> dict[str, str]:
    return {row["package"]: row["value"] for row in records.about((repository,), what)}


def _version(nevra: str) -> str:
    return nevra.rpartition("-")[0].rpartition(":")[2]


def _branch(version: str) -> str:
    return version.partition(".")[0]


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def _stream(repository: str, stream: str, version: str, artifacts: Sequence[str]) -> dict[str, Any]:
    platform = records.only(repository, "stream platform")
    roots = [one.split("-3:")[0] for one in artifacts if one.startswith(("nvidia-driver", "kmod-"))]
    return {
        "document": "modulemd",
        "version": 2,
        "data": {
            "name": _MODULE,
            "stream": stream,
            "version": int("".join(f"{number:04}" for number in _numbers(version))),
            "context": "metallab",
            "arch": "x86_64",
            "summary": f"NVIDIA driver, stream {stream}",
            "description": "Made by metal-lab, for its own nodes.",
            "license": {"module": ["GPL-3.0-or-later"]},
            "dependencies": [{"requires": {"platform": [platform]}}],
            "profiles": {"default": {"rpms": roots}},
            "artifacts": {"rpms": list(artifacts)},
        },
    }


def _defaults(repository: str) -> dict[str, Any]:
    stream = records.only(repository, "default stream")
    return {
        "document": "modulemd-defaults",
        "version": 1,
        "data": {"module": _MODULE, "stream": stream, "profiles": {stream: ["default"]}},
    }
