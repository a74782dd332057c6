# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.package_sources import parse_sources
from ansible_collections.metal.gpu.plugins.plugin_utils.repositories import (
    Repository,
    files_with,
    repository_gap,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.systems import SYSTEMS, find

KEYS = Path(__file__).parents[2] / "fixtures" / "keys"
PINS = dict(
    line.split() for line in (KEYS / "fingerprints.txt").read_text().splitlines() if line[0] != "#"
)
WANTED = Repository(
    "metal-gpu-cuda", "https://mirror.example/cuda/", "/", "", "key.asc", PINS["ed25519"]
)


def sources(key: str = "ed25519", **changes: str) -> str:
    """As ansible.builtin.deb822_repository writes it."""
    lines = (KEYS / f"{key}.asc").read_text().splitlines()
    fields = {
        "X-Repolib-Name": "metal-gpu-cuda",
        "Types": "deb",
        "URIs": "https://mirror.example/cuda/",
        "Suites": "/",
        "Signed-By": "\n" + "\n".join(f"    {line or '.'}" for line in lines),
        **changes,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def node(text: str | None, others: dict[str, str] | None = None) -> dict[str, Any]:
    """A node with our file, where there is a text of it, and with files of somebody else."""
    path = "/etc/apt/sources.list.d/metal-gpu-cuda.sources"
    ours = {"metal-gpu-cuda": {"path": path, "text": text, "key": None}}
    return {
        "os": {"family": "debian", "version_id": "12"},
        "repositories": {} if text is None else ours,
        "package_sources": package_sources({path: text or "", **(others or {})}),
    }


def package_sources(files: dict[str, str]) -> list[dict[str, str]]:
    return [
        source._asdict() for path, text in files.items() for source in parse_sources(path, text)
    ]


def theirs(text: str, path: str = "sources.list.d/cuda.list") -> dict[str, Any]:
    """A node with a file that somebody else has written."""
    return node(None, {f"/etc/apt/{path}": text})


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(node(sources()), id="as written"),
        pytest.param(node(sources(URIs="https://mirror.example/cuda")), id="without slash"),
        pytest.param(
            theirs("deb [signed-by=/k.gpg] https://mirror.example/cuda/ /\n"),
            id="somebody's .list",
        ),
        pytest.param(
            theirs(
                "deb [signed-by=/k.gpg] https://mirror.example/cuda ./\n",
                "sources.list.d/archive_uri-https_mirror_example_cuda-bookworm.list",
            ),
            id="of add-apt-repository",
        ),
        pytest.param(
            theirs("deb https://me:secret@mirror.example/cuda/ /\n", "sources.list"),
            id="in sources.list, with a password",
        ),
        pytest.param(
            theirs(
                sources(**{"Signed-By": "/etc/apt/keyrings/x.asc"}), "sources.list.d/cuda.sources"
            ),
            id="somebody's .sources with a key file",
        ),
        pytest.param(
            theirs(
                "Types: deb\nURIs: https://deb.example/\nSuites: bookworm\n\n" + sources(),
                "sources.list.d/mine.sources",
            ),
            id="in the second stanza",
        ),
        pytest.param(
            node(sources("rsa"), {"/etc/apt/sources.list": "deb https://mirror.example/cuda/ /\n"}),
            id="ours has another key, and somebody's is there",
        ),
    ],
)
def test_repository_is_there(found: dict[str, Any]) -> None:
    assert repository_gap(found, WANTED) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(node(None), "does not exist", id="missing"),
        pytest.param(node(""), "has Types empty, not deb", id="empty"),
        pytest.param(node(sources(URIs="https://old.example/")), "has URIs https://old", id="URL"),
        pytest.param(node(sources(Suites="bookworm")), "has Suites bookworm, not /", id="suite"),
        pytest.param(node(sources(Enabled="no")), "has Enabled no, not yes", id="off"),
        pytest.param(node(sources("rsa")), f"trusts the key {PINS['rsa']}", id="key"),
        pytest.param(
            node(sources(**{"Signed-By": "/etc/apt/keyrings/x.asc"})),
            "no usable key",
            id="key file",
        ),
        pytest.param(theirs("deb https://old.example/ /\n"), "does not exist", id="other .list"),
        pytest.param(
            theirs("deb https://mirror.example/cuda/ bookworm main\n"),
            "does not exist",
            id="other suite",
        ),
        pytest.param(
            theirs("# deb https://mirror.example/cuda/ /\n"),
            "does not exist",
            id="commented .list",
        ),
        pytest.param(
            theirs("deb-src https://mirror.example/cuda/ /\n"), "does not exist", id="only deb-src"
        ),
        pytest.param(
            theirs(sources(Enabled="no"), "sources.list.d/cuda.sources"),
            "does not exist",
            id="somebody's, off",
        ),
    ],
)
def test_repository_has_to_be_written(found: dict[str, Any], reason: str) -> None:
    assert reason in (repository_gap(found, WANTED) or "")


def test_architecture_placeholder_of_upstreams_list() -> None:
    """As NVIDIA's instructions for the container toolkit write it."""
    wanted = WANTED._replace(url="https://mirror.example/stable/deb/amd64/")
    text = "deb [signed-by=/k.gpg] https://mirror.example/stable/deb/$(ARCH) /\n"
    assert repository_gap(theirs(text), wanted) is None


def test_every_file_with_an_address_is_named() -> None:
    line = "deb https://mirror.example/cuda/ /\n"
    found = node(sources(), {"/etc/apt/sources.list": line * 2, "/etc/apt/x.list": "deb y /\n"})
    assert files_with(found, "https://mirror.example/cuda", "/") == [
        "/etc/apt/sources.list.d/metal-gpu-cuda.sources",
        "/etc/apt/sources.list",
    ]


# --- dnf ---------------------------------------------------------------------------------------

RPM = Repository(
    name="metal-gpu-cuda",
    url="https://mirror.example/rhel9/x86_64/",
    suite="",
    components="",
    key="key.asc",
    fingerprint=PINS["ed25519"],
    signs="packages",
    key_file="/etc/pki/rpm-gpg/RPM-GPG-KEY-metal-gpu-cuda",
)


def rpm_node(
    key: str | None = "ed25519", name: str = "metal-gpu-cuda", **changes: str
) -> dict[str, Any]:
    """As ansible.builtin.yum_repository writes it."""
    fields = {
        "baseurl": "https://mirror.example/rhel9/x86_64/",
        "gpgcheck": "1",
        "gpgkey": "file:///etc/pki/rpm-gpg/RPM-GPG-KEY-metal-gpu-cuda",
        "name": "metal-gpu-cuda, managed by Ansible",
        "repo_gpgcheck": "0",
        **changes,
    }
    text = f"[{name}]\n" + "".join(f"{field} = {value}\n" for field, value in fields.items())
    path = f"/etc/yum.repos.d/{name}.repo"
    held = (KEYS / f"{key}.asc").read_text() if key else None
    return {
        "os": {"family": "redhat", "version_id": "9.4"},
        "repositories": {name: {"path": path, "text": text, "key": held}},
        "package_sources": package_sources({path: text}),
    }


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(rpm_node(), id="as written"),
        pytest.param(
            rpm_node(None, "cuda-rhel9", baseurl="https://mirror.example/rhel9/$basearch"),
            id="somebody's, with $basearch",
        ),
        pytest.param(
            rpm_node(None, "my", baseurl="https://mirror.example/rhel$releasever/x86_64"),
            id="somebody's, with $releasever",
        ),
    ],
)
def test_rpm_repository_is_there(found: dict[str, Any]) -> None:
    assert repository_gap(found, RPM) is None


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(
            {**rpm_node(), "repositories": {}, "package_sources": []},
            "/etc/yum.repos.d/metal-gpu-cuda.repo does not exist",
            id="missing",
        ),
        pytest.param(rpm_node(gpgcheck="0"), "has gpgcheck 0, not 1", id="trusts anybody"),
        pytest.param(rpm_node(enabled="0"), "has enabled 0, not 1", id="off"),
        pytest.param(rpm_node("rsa"), f"trusts the key {PINS['rsa']}", id="key"),
        pytest.param(rpm_node(None), "no usable key", id="no key"),
        pytest.param(
            rpm_node(None, "cuda-rhel9", enabled="0"), "does not exist", id="somebody's, off"
        ),
    ],
)
def test_rpm_repository_has_to_be_written(found: dict[str, Any], reason: str) -> None:
    assert reason in (repository_gap(found, RPM) or "")


# --- upstream's --------------------------------------------------------------------------------

EMPTY = dict.fromkeys(
    ("repository_url", "repository_suite", "repository_key", "repository_fingerprint"), ""
)


@pytest.mark.parametrize(
    ("id_", "version", "which", "url", "key"),
    [
        pytest.param(
            "debian",
            "12",
            "docker",
            "https://download.docker.com/linux/debian",
            "https://download.docker.com/linux/debian/gpg",
            id="docker, apt",
        ),
        pytest.param(
            "rocky",
            "9.4",
            "docker",
            "https://download.docker.com/linux/centos/9/x86_64/stable/",
            "https://download.docker.com/linux/centos/gpg",
            id="docker, rpm",
        ),
        pytest.param(
            "ubuntu",
            "24.04",
            "driver",
            "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/",
            "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/3bf863cc.pub",
            id="driver",
        ),
        *(
            pytest.param(
                id_,
                version,
                "toolkit",
                f"https://nvidia.github.io/libnvidia-container/stable/{path}/",
                "https://nvidia.github.io/libnvidia-container/gpgkey",
                id=f"toolkit, {path}",
            )
            for id_, version, path in (
                ("debian", "13", "deb/amd64"),
                ("rhel", "10.1", "rpm/x86_64"),
            )
        ),
    ],
)
def test_upstream(id_: str, version: str, which: str, url: str, key: str) -> None:
    system = find({"id": id_, "version_id": version})
    wanted = Repository.wished("x", EMPTY, getattr(system, which))
    assert (wanted.url, wanted.key) == (url, key)


def test_mirror_of_the_same_layout_has_the_key_at_the_same_place() -> None:
    wishes = {**EMPTY, "repository_url": "https://mirror.example/linux/debian"}
    wanted = Repository.wished("x", wishes, SYSTEMS[0].docker)
    assert wanted.key == "https://mirror.example/linux/debian/gpg"
    assert wanted.suite == "bookworm"
    assert wanted.fingerprint == SYSTEMS[0].docker.fingerprint


def test_only_apt_has_suites() -> None:
    wishes = {**EMPTY, "repository_suite": "{codename}"}
    by_id = {system.id: Repository.wished("x", wishes, system.docker) for system in SYSTEMS}
    assert (by_id["debian"].suite, by_id["rocky"].suite) == ("{codename}", "")
