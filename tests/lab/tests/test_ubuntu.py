# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-ins of Ubuntu's packages fit together, and agree with the rows of recorded/packages."""

from __future__ import annotations

import hashlib
import re
import urllib.error
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from metal_lab import debs, groups, mirror, ubuntu, ubuntu_base
from metal_lab.debs import Package
from metal_lab.description import Description, Node
from metal_lab.parts import PARTS

NODES = (Node("gpu-1", "ubuntu2404", "t4x4"), Node("gpu-2", "ubuntu2204", "t4x1"))
DESCRIPTION = Description(NODES, tuple(PARTS), ("580.178.04",))
ROWS: list[dict[str, Any]] = [
    row
    for path in (ubuntu.RECORDED / "packages").glob("*.yml")
    for row in yaml.safe_load(path.read_text()).get("rows", [])
]
SEEN = ("seen", "one source")
# What the laboratory makes up, or has under another name than the record.
UNRECORDED = {
    "nvidia-driver-pinning-580.178.04": "named like those of other versions",
    "nvidia-driver-pinning-580.999.99": "an update that does not exist",
    "dkms": "recorded in another version, for ubuntu2204",
    "nvidia-kernel-source-580": "recorded for ubuntu2204",
}


def everything() -> Iterator[tuple[str, Package]]:
    for group in ubuntu.groups(DESCRIPTION, Path):
        for package in group.packages:
            yield group.pool, package


def archive(name: str = ubuntu.ARCHIVE) -> dict[str, Package]:
    return {package.name: package for pool, package in everything() if pool.startswith(f"{name}/")}


def rows(what: str, repository: str) -> Iterator[dict[str, Any]]:
    for row in ROWS:
        names = row.get("repositories") or [row["repository"]]
        if row["what"] == what and repository in names and row["confidence"] in SEEN:
            yield row


def values(row: dict[str, Any]) -> list[str]:
    return [*map(str, row["value"])] if isinstance(row["value"], list) else [str(row["value"])]


def test_nodes_of_other_systems_need_none_of_it() -> None:
    other = Description((Node("gpu-1", "debian12", "t4x1"),), tuple(PARTS), ("580.178.04",))
    assert list(ubuntu.groups(other, Path)) == []


def test_pools_are_published() -> None:
    published = {
        pool
        for repository in mirror.repositories("0" * 40)
        if "ubuntu" in repository.name
        for pool in repository.pools.values()
    }
    used = {pool for pool, _package in everything()} - {*map(ubuntu.installed, ubuntu.RECORDS)}
    assert used <= published
    programs: defaultdict[str, Path] = defaultdict(lambda: debs.EMPTY)
    of_docker = {
        group.pool
        for group in groups.groups(DESCRIPTION, programs, Path, "6.8.0")
        if group.pool.startswith("docker/")
    }
    assert of_docker == {"docker/jammy", "docker/noble"}


def test_names_of_groups_and_files_differ() -> None:
    found = [group.name for group in ubuntu.groups(DESCRIPTION, Path)]
    assert len(found) == len(set(found))
    files = [(pool, one.name, one.version) for pool, one in everything()]
    assert len(files) == len(set(files))


@pytest.mark.parametrize("name", [ubuntu.ARCHIVE, ubuntu.EARLIER])
def test_relations_to_each_other_can_be_satisfied(name: str) -> None:
    """Each dependency on a package of the driver is there, or is recorded as gone."""
    there = archive(name)
    provided = {one.partition(" ")[0] for package in there.values() for one in package.provides}
    for package in there.values():
        for relation in package.depends:
            names = [one.split()[0] for one in relation.split("|")]
            if not re.search("nvidia|linux-(image|modules|headers|objects|signatures)", names[0]):
                continue
            assert any(one in there or one in provided for one in names), (package.name, relation)


def test_kernel_of_the_nodes_is_that_of_the_meta_packages() -> None:
    there = archive()
    assert there["linux-image-generic"].depends == (f"linux-image-{ubuntu.release()}",)
    assert f"linux-modules-nvidia-580-server-open-{ubuntu.release()}" in there
    installed = {one.name for pool, one in everything() if pool == ubuntu.installed(ubuntu.NOBLE)}
    assert installed == {
        "linux-image-generic",
        f"linux-image-{ubuntu.release()}",
        f"linux-modules-{ubuntu.release()}",
    }


def test_modules_of_the_earlier_kernel_are_for_the_earlier_driver() -> None:
    """The open package says so. The proprietary one accepts any newer driver."""
    kernel = "6.8.0-138-generic"
    there = archive()
    upper = "nvidia-kernel-common-580-server (<= 580.173.02-1)"
    lower = "nvidia-kernel-common-580-server (>= 580.173.02)"
    opened = there[f"linux-modules-nvidia-580-server-open-{kernel}"]
    linked = there[f"linux-modules-nvidia-580-server-{kernel}"]
    assert {upper, lower} <= {*opened.depends}
    assert lower in linked.depends
    assert upper not in linked.depends
    assert archive(ubuntu.EARLIER)["nvidia-utils-580-server"].version.startswith("580.173.02-")


@pytest.mark.parametrize("name", sorted(archive()))
def test_version_in_the_archive_is_recorded(name: str) -> None:
    package = archive()[name]
    of_name = [row for row in rows("package", "ubuntu-24.04") if name in values(row)]
    keys = {row["of"] for row in of_name if "of" in row} | {name}
    versions = {
        version
        for row in rows("version", "ubuntu-24.04")
        if row["package"] in keys
        for version in values(row)
    }
    assert not versions or package.version in versions
    gone = [one for row in rows("no package", "ubuntu-24.04") for one in values(row)]
    assert not any(fnmatchcase(name, pattern) for pattern in gone)


def test_every_recorded_package_of_the_driver_is_in_the_archive() -> None:
    recorded = {one for row in rows("package", "ubuntu-24.04") for one in values(row)}
    # python3-debian is a part of each node, and patterns are no names.
    assert {one for one in recorded if "*" not in one} - {*archive()} <= {
        "python3-debian",
        "linux-modules-nvidia-580-server-open-gcp",
        # Of nodes with NVLink 5, which the laboratory does not have.
        "infiniband-diags",
        "pciutils",
    }


def test_recorded_relations_are_those_of_the_packages() -> None:
    there = archive()
    for what in ("depends", "provides"):
        for row in rows(what, "ubuntu-24.04"):
            package = there.get(row["package"])
            for value in values(row) if package else []:
                if "*" in value:  # the modules of hardware, which the laboratory leaves out
                    continue
                # Ranges are words in the rows: "NAME from 1 to 1-1".
                name = value.split()[0]
                found = " ".join(getattr(package, what))
                assert name in found, (row["package"], value)


@pytest.mark.parametrize(
    "name", sorted({one.name for pool, one in everything() if pool == ubuntu.NVIDIA})
)
def test_name_and_version_in_nvidias_repository_are_recorded(name: str) -> None:
    recorded = {one for row in rows("package", "ubuntu2404") for one in values(row)}
    assert name in recorded or name in UNRECORDED
    versions = {one for row in rows("version", "ubuntu2404") for one in values(row)}
    found = {one.version for pool, one in everything() if (pool, one.name) == (ubuntu.NVIDIA, name)}
    made_up = {version for version in found if version.startswith("580.999.99-")}
    assert found - made_up <= versions or name in UNRECORDED


def test_unit_of_the_daemon_is_the_recorded_one() -> None:
    (start,) = {
        one
        for row in rows("unit", "ubuntu-24.04")
        if row["package"] == "nvidia-compute-utils-*"
        for one in values(row)
    }
    unit = ubuntu.record()["unit"]
    text = debs.texts(archive()[unit["package"]])[unit["path"]]
    assert unit["start"] == start
    assert f"ExecStart={start}\n" in text
    assert "StopWhenUnneeded=true\n" in text
    assert "[Install]" not in text  # so it is static


def test_linked_modules_ask_debconf_and_open_ones_do_not() -> None:
    there, kernel = archive(), ubuntu.release()
    linked = debs.control_files(there[f"linux-modules-nvidia-580-server-{kernel}"])
    opened = debs.control_files(there[f"linux-modules-nvidia-580-server-open-{kernel}"])
    assert "Template: linux/nvidia/latelink\n" in linked["templates"]
    assert "templates" not in opened
    for files in (linked, opened):
        assert f"dpkg-trigger --no-await linux-update-{kernel}\n" in files["postinst"]
    image = debs.control_files(there[f"linux-image-{kernel}"])
    assert image["triggers"] == f"interest linux-update-{kernel}\n"


def test_configuration_file_is_one_for_dpkg() -> None:
    files = debs.control_files(archive()["libnvidia-compute-580-server"])
    assert files["conffiles"] == "/etc/OpenCL/vendors/nvidia.icd\n"


def test_modules_are_signed_where_ubuntu_has_them() -> None:
    kernel = ubuntu.release()
    package = archive()[f"linux-modules-nvidia-580-server-open-{kernel}"]
    path = f"/lib/modules/{kernel}/kernel/nvidia-580srv-open/nvidia.ko"
    assert debs.texts(package)[path] == ("version=580.178.04\nflavour=open\nsigner=distribution\n")


def test_sources_of_a_node_are_those_of_an_installation() -> None:
    found = ubuntu.sources(ubuntu.NOBLE, "http://m", "/k.asc")
    assert found.pop("/etc/apt/sources.list").startswith("# ")
    assert found["/etc/apt/sources.list.d/ubuntu.sources"] == (
        "Types: deb\n"
        "URIs: http://m/ubuntu/\n"
        "Suites: noble noble-updates\n"
        "Components: main restricted universe multiverse\n"
        "Signed-By: /k.asc\n"
        "\n"
        "Types: deb\n"
        "URIs: http://m/ubuntu/\n"
        "Suites: noble-security\n"
        "Components: main restricted universe multiverse\n"
        "Signed-By: /k.asc\n"
    )
    of_jammy = ubuntu.sources("ubuntu2204", "http://m", "/k.asc")
    line = of_jammy["/etc/apt/sources.list"].splitlines()[1]
    assert line.startswith("deb [signed-by=/k.asc] http://m/ubuntu-jammy/ jammy-updates main ")


def test_archive_that_cannot_be_reached_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ubuntu_base.VARIABLE, f"{(tmp_path / 'none').as_uri()}/")
    with pytest.raises(
        SystemExit, match=r"cannot read Ubuntu's archive, .*/none/pool/.*"
    ) as caught:
        ubuntu_base.options(ubuntu.NOBLE, tmp_path)
    assert "Set METAL_LAB_UBUNTU_MIRROR" in str(caught.value)
    assert isinstance(caught.value.__cause__, urllib.error.URLError)


def test_another_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / ubuntu.record()["keyring"]["path"]
    package.parent.mkdir(parents=True)
    package.write_bytes(b"something else")
    monkeypatch.setenv(ubuntu_base.VARIABLE, tmp_path.as_uri())
    checksum = ubuntu.record()["keyring"]["sha256"]
    assert hashlib.sha256(b"something else").hexdigest() != checksum
    with pytest.raises(SystemExit, match=f"is not the package with the checksum {checksum}"):
        ubuntu_base.options(ubuntu.NOBLE, tmp_path)
