# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from metal_lab import debian_driver, debs, mirror, packages
from metal_lab import groups as lab_groups
from metal_lab.debs import Package
from metal_lab.description import Description, Node
from metal_lab.parts import PARTS

NOWHERE = Path("/nowhere")
DEBIAN = yaml.safe_load(debian_driver.RECORD.read_text())
RELEASE = "6.1.0-26-amd64"
OF_DRIVER = ("nvidia", "libnvidia", "libcuda", "firmware-nvidia", "glx-", "update-glx", "dkms")


NODES = (Node("gpu-1", "debian12", "t4x1"), Node("gpu-2", "debian13", "t4x1"))
EVERYTHING = Description(NODES, tuple(PARTS), ("580.178.04", "580.173.02"))


def groups(description: Description) -> list[lab_groups.Group]:
    programs = defaultdict(lambda: NOWHERE)
    silicon = NOWHERE.joinpath
    return list(lab_groups.groups(description, programs, silicon, RELEASE))


def everything() -> Iterator[tuple[str, Package]]:
    for group in groups(EVERYTHING):
        for package in group.packages:
            yield group.pool, package


def find(name: str, version: str = "") -> Package:
    return next(p for _pool, p in everything() if p.name == name and p.version.startswith(version))


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        pytest.param(
            Description(NODES[:1], ("containerd",)),
            ["kubelet", "headers", "containerd-bookworm"],
            id="an engine on one system",
        ),
        pytest.param(
            Description(NODES[1:], ("docker", "cri-dockerd")),
            ["kubelet", "headers", "containerd-trixie", "docker-trixie", "cri-dockerd"],
            id="Docker needs containerd",
        ),
        pytest.param(
            Description(NODES[:1], ("container-toolkit", "device-plugin"), ("590.1.2",)),
            ["kubelet", "headers", "container-toolkit", "driver-590.1.2"],
            id="GPUs",
        ),
    ],
)
def test_only_needed_packages_are_built(description: Description, expected: list[str]) -> None:
    assert [group.name for group in groups(description)] == expected


def test_names_of_groups_differ() -> None:
    names = [group.name for group in groups(EVERYTHING)]
    assert len(names) == len(set(names))


def test_pools_are_published() -> None:
    """A pool that no repository has is a file of a release. test_ubuntu.py has those of Ubuntu."""
    published = {
        pool
        for one in mirror.repositories("0" * 40)
        if "ubuntu" not in one.name and one.suite not in ("jammy", "noble")
        for pool in one.pools.values()
    }
    published = {pool for pool in published if not pool.startswith(mirror.EMPTY)}
    assert {pool for pool, _package in everything()} == published | {*mirror.FILES}


def test_pools_hold_the_packages_of_upstream() -> None:
    held: dict[str, list[str]] = {}
    for pool, package in everything():
        if package.folder != "empty":
            held.setdefault(pool, []).append(f"{package.name}={package.version}")
    of_driver = (
        "cuda-drivers",
        "firmware-nvidia-gsp",
        "libcuda1",
        "libnvidia-ml1",
        "nvidia-driver-cuda",
        "nvidia-fabricmanager",
        "nvidia-kernel-dkms",
        "nvidia-kernel-open-dkms",
        "nvidia-kernel-support",
        "nvidia-modprobe",
        "nvidia-open",
        "nvidia-persistenced",
        "nvidia-smi",
    )
    by_component: dict[str, list[dict[str, str]]] = {}
    for row in DEBIAN["packages"]:
        *component, _name = row["section"].split("/")
        by_component.setdefault((component or ["main"])[0], []).append(row)
    held = {pool: names if "debian" in pool else sorted(names) for pool, names in held.items()}
    assert held == {
        "docker/bookworm": [
            "containerd.io=2.4.2-1~debian.12~bookworm",
            "docker-ce-cli=5:29.8.1-1~debian.12~bookworm",
            "docker-ce=5:29.8.1-1~debian.12~bookworm",
            "docker-compose-plugin=5.1.4-1~debian.12~bookworm",
        ],
        "docker/trixie": [
            "containerd.io=2.4.2-1~debian.13~trixie",
            "docker-ce-cli=5:29.8.1-1~debian.13~trixie",
            "docker-ce=5:29.8.1-1~debian.13~trixie",
            "docker-compose-plugin=5.1.4-1~debian.13~trixie",
        ],
        "cri-dockerd": ["cri-dockerd=0.4.3~3-0~debian-bookworm"],
        "cri-o": ["cri-o=1.36.3-1.1"],
        "nvidia": sorted(
            f"{name}={version}-1"
            for version in ("580.173.02", "580.178.04")
            for name in (*of_driver, f"nvidia-driver-pinning-{version}")
        ),
        "toolkit": [
            "libnvidia-container-tools=1.20.1-1",
            "libnvidia-container1=1.20.1-1",
            "nvidia-container-toolkit-base=1.20.1-1",
            "nvidia-container-toolkit=1.20.1-1",
        ],
        "kubernetes": ["kubelet=1.37.1-1.1"],
        "debian": [
            f"linux-headers-{RELEASE}=1-1",
            *(f"{name}=of the archive" for name in (*packages.NFS_CLIENT, *packages.ROOTLESS)),
        ],
        **{
            f"debian13/{component}": [
                *(f"{row['name']}={row['version']}" for row in rows),
                *([f"linux-headers-{RELEASE}=1-1"] if component == "main" else []),
            ]
            for component, rows in by_component.items()
        },
    }


def test_runtimes_of_crio_are_in_no_folder_of_the_path() -> None:
    """NVIDIA's runtime does not find them there. They can be scripts, see packages.crio."""
    package = find("cri-o")
    files = {**package.binaries, **debs.texts(package)}
    assert {f"/usr/libexec/crio/{name}" for name in ("crun", "runc", "conmon")} <= files.keys()
    assert "/etc/crio/crio.conf" not in files
    assert "conffiles" not in debs.control_files(package)


def test_control_names_only_the_relations_there_are() -> None:
    package = Package("some", "1-1", "does something", depends=("a (= 1)", "b"), conflicts=("c",))
    assert debs.control(package) == (
        "Package: some\n"
        "Version: 1-1\n"
        "Architecture: amd64\n"
        "Maintainer: metal-lab <lab@metal-lab.invalid>\n"
        "Section: utils\n"
        "Priority: optional\n"
        "Depends: a (= 1), b\n"
        "Conflicts: c\n"
        "Description: does something\n"
        " Made by metal-lab, for its own nodes.\n"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("docker-ce", {"docker.io"}, id="engine"),
        pytest.param("docker-ce-cli", {"docker-cli", "docker.io"}, id="command line"),
        pytest.param("containerd.io", {"containerd", "runc"}, id="containerd and its runc"),
    ],
)
def test_packages_of_docker_replace_those_of_debian(name: str, expected: set[str]) -> None:
    assert set(find(name).conflicts) >= expected


def test_every_dependency_inside_the_mirror_can_be_met() -> None:
    """In the same archive: relations of other packages are of Debian's, which nodes have."""
    held: dict[str, set[str]] = {}
    in_archives = [(pool.partition("/")[0], package) for pool, package in everything()]
    for pool, package in in_archives:
        names = held.setdefault(pool, set())
        names |= {package.name, f"{package.name} (= {package.version})", *package.provides}
    for pool, package in in_archives:
        for dependency in (*package.pre_depends, *package.depends):
            alternatives = dependency.split(" | ")
            if not alternatives[0].startswith(OF_DRIVER):
                continue
            met = [
                relation
                for relation in alternatives
                if relation in held[pool]
                or (" (>= " in relation and relation.split()[0] in held[pool])
            ]
            assert met, (package.name, dependency)


@pytest.mark.parametrize(
    ("name", "version", "places"),
    [
        pytest.param(
            "containerd.io",
            "",
            {
                "/etc/containerd/config.toml": 'disabled_plugins = ["cri"]',
                "/usr/lib/systemd/system/containerd.service": "ExecStart=/usr/bin/containerd\n",
            },
            id="containerd as Docker ships it: without the Kubernetes interface",
        ),
        pytest.param(
            "docker-ce",
            "",
            {
                "/usr/lib/systemd/system/docker.service": (
                    "dockerd -H fd:// --containerd=/run/containerd/containerd.sock\n"
                ),
                "/usr/lib/systemd/system/docker.socket": "SocketGroup=docker\n",
            },
            id="docker, started by its socket",
        ),
        pytest.param(
            "kubelet",
            "",
            {
                "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=\n",
                "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf": (
                    "$KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS"
                    " $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n"
                ),
            },
            id="kubelet as kubeadm starts it",
        ),
        pytest.param(
            "nvidia-driver-pinning-580.173.02",
            "",
            {"/etc/apt/preferences.d/nvidia-driver-pin": "Pin: version 580.173.02-*\n"},
            id="pinning names its own version",
        ),
        pytest.param(
            "nvidia-kernel-support",
            "580.173.02",
            {"/usr/lib/modprobe.d/nvidia.conf": "blacklist nouveau\n"},
            id="nouveau is kept away",
        ),
    ],
)
def test_installed_texts(name: str, version: str, places: dict[str, str]) -> None:
    texts = debs.texts(find(name, version))
    assert "SPDX" not in "".join(texts.values())
    for place, expected in places.items():
        assert expected in texts[place]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("docker-ce-cli", {"control"}, id="a program alone"),
        pytest.param("libcuda1", {"control", "triggers"}, id="a library: ldconfig"),
        pytest.param(
            "kubelet",
            {"control", "conffiles", "postinst", "prerm", "postrm"},
            id="a service with configuration",
        ),
        pytest.param(
            "nvidia-kernel-dkms",
            {"control", "triggers", "postinst", "prerm"},
            id="a module: built when the headers come",
        ),
        pytest.param(
            "nvidia-driver-pinning-580.178.04",
            {"control"},
            id="a preference that leaves with its package",
        ),
    ],
)
def test_control_archive(name: str, expected: set[str]) -> None:
    assert set(debs.control_files(find(name))) == expected


@pytest.mark.parametrize(
    ("name", "flavour"),
    [("nvidia-kernel-open-dkms", "open"), ("nvidia-kernel-dkms", "proprietary")],
)
def test_module_knows_version_and_flavour(name: str, flavour: str) -> None:
    postinst = debs.control_files(find(name, "580.173.02"))["postinst"]
    assert f"'version=%s\\nflavour=%s\\n' 580.173.02 {flavour} " in postinst


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        pytest.param({"nvidia-open-kernel-support"}, "current-open", id="open"),
        pytest.param({"nvidia-kernel-support"}, "current", id="proprietary"),
        pytest.param({"nvidia-open-kernel-support", "nvidia-kernel-support"}, "current", id="both"),
    ],
)
def test_debians_driver_is_where_debian_has_it(
    tmp_path: Path, settings: set[str], folder: str
) -> None:
    """The links that apt left in a fresh Debian 13 follow from the stand-ins' files and scripts."""
    root, admin = tmp_path / "root", tmp_path / "admin"
    admin.mkdir()
    of_debian = [package for pool, package in everything() if "debian13" in pool]
    others = {"nvidia-open-kernel-support", "nvidia-kernel-support"} - settings
    for package in (one for one in of_debian if one.name not in others):
        for place in (*package.binaries, *package.links, *debs.texts(package)):
            file = root / place.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            if place in package.links:
                file.symlink_to(package.links[place])
            else:
                file.touch()
    for place in ("usr/bin", "etc/modprobe.d", "etc/modules-load.d"):
        (root / place).mkdir(parents=True, exist_ok=True)
    script = debs.control_files(find("nvidia-alternative"))["postinst"]
    # In the planted tree, with the real update-alternatives.
    for name in ("/usr/", "/etc/"):
        script = script.replace(f" {name}", f" {root}{name}")
    options = f"--altdir {root}/etc/alternatives --admindir {admin} --log /dev/null"
    (root / "etc/alternatives").mkdir()
    script = script.replace("update-alternatives", f"update-alternatives --quiet {options}")
    subprocess.run(["sh", "-s", "configure"], input=script, text=True, check=True)

    smi = root / "usr/bin/nvidia-smi"
    assert smi.readlink() == root / "etc/alternatives/nvidia--nvidia-smi"
    assert smi.resolve() == root / "usr/lib/nvidia/current/nvidia-smi"
    library = root / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert library.resolve().parent == root / "usr/lib/x86_64-linux-gnu/nvidia/current"
    rules = (root / "etc/modprobe.d/nvidia.conf").resolve()
    assert rules == root / f"etc/nvidia/{folder}/nvidia-modprobe.conf"
    assert (root / "etc/modules-load.d/nvidia.conf").resolve().is_file()


def test_maintainer_scripts_are_shell() -> None:
    for _pool, package in everything():
        for name, text in debs.control_files(package).items():
            if name in debs.MAINTAINER_SCRIPTS:
                subprocess.run(["sh", "-n"], input=text, text=True, check=True)
                assert text.startswith("#!/bin/sh\nset -e\n"), (package.name, name)


def test_file_name_has_no_epoch(tmp_path: Path) -> None:
    deb = debs.build_deb(Package("some", "5:1-1", "does something"), tmp_path)
    assert deb.name == "some_1-1_amd64.deb"


def test_same_input_gives_the_same_deb(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o600)
    package = Package(
        "some",
        "1-1",
        "does something",
        binaries={"/usr/bin/some": program},
        links={"/usr/bin/other": "some"},
        units=("some.service",),
    )
    first, second = (debs.build_deb(package, tmp_path / name) for name in ("a", "b"))
    assert first.name == "some_1-1_amd64.deb"
    assert first.read_bytes() == second.read_bytes()
    assert [path.name for path in first.parent.iterdir()] == [first.name]

    listing = subprocess.run(
        ["dpkg-deb", "--contents", first], capture_output=True, text=True, check=True
    ).stdout
    found = {line.split()[-1]: line.split()[:2] for line in listing.splitlines()}
    assert found["./usr/bin/some"] == ["-rwxr-xr-x", "root/root"]
    assert " ./usr/bin/other -> some\n" in listing
