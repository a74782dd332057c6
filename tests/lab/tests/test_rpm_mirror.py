# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import subprocess
from pathlib import Path

import pytest

from metal_lab import mirror, rpm_mirror
from metal_lab.description import REDHAT
from metal_lab.rpms import Rpm

FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"


@pytest.mark.parametrize(
    ("name", "path", "key"),
    [
        ("nvidia-rhel9", "nvidia/rhel9/x86_64", "nvidia/rhel9/x86_64/01234567.pub"),
        ("docker-centos9", "docker/centos/9/x86_64/stable", "docker/centos/gpg"),
        ("toolkit-rpm", "toolkit/stable/rpm/x86_64", "toolkit/gpgkey"),
    ],
)
def test_repositories_lie_where_upstream_has_them(name: str, path: str, key: str) -> None:
    (found,) = (one for one in rpm_mirror.repositories(FINGERPRINT) if one.name == name)
    assert (found.path, found.key, found.of_node) == (path, key, False)


@pytest.mark.parametrize("system", REDHAT)
def test_node_has_the_distribution_and_epel(system: str) -> None:
    sources = {
        one.file: one.source("http://m")
        for one in rpm_mirror.repositories(FINGERPRINT)
        if one.is_of(system)
    }
    assert set(sources) == {"rocky", "rocky-appstream", "epel"}
    release = system.removeprefix("rocky")
    assert sources["epel"] == (
        f"[epel]\nname=epel of the laboratory\nbaseurl=http://m/epel/{release}/Everything/x86_64/\n"
        f"enabled=1\ngpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-EPEL-{release}\n"
    )


def nevra(name: str, version: str, arch: str = "x86_64") -> str:
    return f"{name}-3:{version}-1.el9.{arch}"


OLD, UPDATE, NEW = VERSIONS = ("580.178.04", "580.999.01", "595.71.05")
OPEN = {version: nevra("kmod-nvidia-open-dkms", version, "noarch") for version in VERSIONS}
DKMS = {version: nevra("kmod-nvidia-latest-dkms", version, "noarch") for version in VERSIONS}
CUDA = {version: nevra("nvidia-driver-cuda", version) for version in VERSIONS}


def test_each_branch_has_a_stream_for_each_flavour() -> None:
    *streams, defaults = rpm_mirror.modules(
        [*OPEN.values(), *DKMS.values(), *CUDA.values(), "other-0:1-1.noarch"], "rhel9"
    )
    assert {one["data"]["stream"]: one["data"]["artifacts"]["rpms"] for one in streams} == {
        "580-open": [OPEN[OLD], OPEN[UPDATE], CUDA[OLD], CUDA[UPDATE]],
        "580-dkms": [DKMS[OLD], DKMS[UPDATE], CUDA[OLD], CUDA[UPDATE]],
        "595-open": [OPEN[NEW], CUDA[NEW]],
        "595-dkms": [DKMS[NEW], CUDA[NEW]],
        "open-dkms": [OPEN[NEW], CUDA[NEW]],
        "latest-dkms": [DKMS[NEW], CUDA[NEW]],
    }
    assert defaults["data"]["stream"] == "open-dkms"
    assert rpm_mirror.modules(["other-0:1-1.noarch"], "rhel9") == []


def test_repository_without_recorded_streams_has_none() -> None:
    assert rpm_mirror.modules([CUDA[NEW], OPEN[NEW]], "rhel10") == []


def test_packages_and_metadata_are_signed(tmp_path: Path) -> None:
    """The distribution's key is not the vendors' key, which a new node does not know."""
    pool, out, home = tmp_path / "pool", tmp_path / "out", tmp_path / "gpg"
    Rpm("nvidia-driver-cuda", OLD, "driver", epoch=3, release="1.el9").build(pool / "nvidia")
    Rpm("dkms", "3", "builds").build(pool / "epel")
    pools = {"nvidia-rhel9": [pool / "nvidia"], "epel9": [pool / "epel"]}
    fingerprint = mirror.publish(pools, out, home).fingerprint

    root = out / "nvidia/rhel9/x86_64"
    vendor, distribution = root / f"{fingerprint[-8:]}.pub", out / "epel/RPM-GPG-KEY-EPEL-9"
    (driver,) = root.glob("*.rpm")
    (dkms,) = (out / "epel/9/Everything/x86_64").glob("*.rpm")
    for key, rpm, other in ((vendor, driver, dkms), (distribution, dkms, driver)):
        database = tmp_path / key.name
        keys = ["rpmkeys", "--dbpath", str(database)]
        subprocess.run([*keys, "--import", key], check=True)
        subprocess.run([*keys, "--checksig", rpm], check=True, capture_output=True)
        refusal = subprocess.run([*keys, "--checksig", other], check=False, capture_output=True)
        assert b"SIGNATURES NOT OK" in refusal.stdout

    keyring = tmp_path / "key.gpg"
    subprocess.run(["gpg", "--dearmor", "-o", keyring, vendor], check=True)
    index = root / "repodata/repomd.xml"
    command = ["gpgv", "--quiet", "--keyring", keyring, f"{index}.asc", index]
    subprocess.run(command, check=True, capture_output=True)
    (modules,) = (root / "repodata").glob("*modules.yaml.gz")
    assert "stream: 580-open" in gzip.decompress(modules.read_bytes()).decode()
    assert not (out / "docker/centos").exists()  # a pool without packages is not published
