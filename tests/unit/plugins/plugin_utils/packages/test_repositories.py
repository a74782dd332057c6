# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.package_sources import (
    parse_ini,
    parse_sources,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.login import sealed
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.repositories import (
    ObservedRepository,
    Repository,
    file_problem,
    files_with,
    is_ours,
    repository_reason,
    unsigned_sources,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS, find

KEYS = Path(__file__).parents[3] / "fixtures" / "keys"
PINS = dict(
    line.split() for line in (KEYS / "fingerprints.txt").read_text().splitlines() if line[0] != "#"
)
NOW = datetime(2026, 11, 22, tzinfo=UTC)
WANTED = Repository(
    "metal-gpu-cuda", "https://mirror.example/cuda/", "/", "", "key.asc", PINS["ed25519"]
)


def armour(*names: str) -> str:
    """Return keys in one armoured block."""
    texts = [(KEYS / f"{name}.asc").read_text().splitlines() for name in names]
    packets = b"".join(base64.b64decode("".join(lines[2:-2])) for lines in texts)
    return "\n".join((*texts[0][:2], base64.b64encode(packets).decode(), texts[0][-1]))


def sources(*keys: str, **changes: str) -> str:
    """As ansible.builtin.deb822_repository writes it."""
    lines = armour(*(keys or ("ed25519",))).splitlines()
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
    return {
        "os": {"family": "debian", "version_id": "12"},
        "repositories": {}
        if text is None
        else {"metal-gpu-cuda": ObservedRepository.parse(path, text, None)._asdict()},
        "package_sources": package_sources({path: text or "", **(others or {})}),
    }


def package_sources(
    files: dict[str, str], main: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    return [source for path, text in files.items() for source in parse_sources(path, text, main)]


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
    assert repository_reason(found, WANTED, NOW) is None
    assert unsigned_sources(found, WANTED) == {}


TRUSTS = "the key in /etc/apt/sources.list.d/metal-gpu-cuda.sources"
STRANGER = (
    f"{TRUSTS} is not a trustworthy key: it contains a second primary key, {PINS['stranger']}"
)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param(node(None), "does not exist", id="missing"),
        pytest.param(node(""), "has Types empty, not deb", id="empty"),
        pytest.param(node(sources(URIs="https://old.example/")), "has URIs https://old", id="URL"),
        pytest.param(node(sources(Suites="bookworm")), "has Suites bookworm, not /", id="suite"),
        pytest.param(node(sources(Enabled="no")), "has Enabled no, not yes", id="off"),
        pytest.param(node(sources("rsa")), f"{TRUSTS} is the key {PINS['rsa']}", id="key"),
        pytest.param(node(sources("ed25519", "stranger")), STRANGER, id="and a stranger's key"),
        pytest.param(
            node(sources() + "Signed-By: /etc/apt/keyrings/x.asc\n"),
            f"{TRUSTS} is not a trustworthy key: text outside the armoured block",
            id="and a key file",
        ),
        pytest.param(
            node(sources(**{"Signed-By": "/etc/apt/keyrings/x.asc"})),
            f"{TRUSTS} is not a trustworthy key: not an OpenPGP public key",
            id="key file",
        ),
        pytest.param(node(sources(Trusted="yes")), "has Trusted: yes: apt would", id="trusted"),
        pytest.param(node(sources(**{"Allow-Insecure": "1"})), "has Allow-Insecure", id="insecure"),
        pytest.param(
            node(sources(URIs="https://mirror.example/cuda/ https://other.example/")),
            "https://other.example/, not https://mirror.example/cuda/",
            id="two addresses",
        ),
        pytest.param(
            node(sources() + "URIs: https://other.example/\n"), "https://other.ex", id="two fields"
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
    assert reason in (repository_reason(found, WANTED, NOW) or "")


def test_key_on_the_node_that_has_expired_is_exchanged() -> None:
    """The publisher may have prolonged it, and then it still has the same fingerprint."""
    wanted = WANTED._replace(fingerprint=PINS["expired"])
    assert "expired on 2021-01-01" in (
        repository_reason(node(sources("expired")), wanted, NOW) or ""
    )
    assert repository_reason(node(sources("prolonged")), wanted, NOW) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(None, None, id="not there"),
        pytest.param(sources(), None, id="ours"),
        pytest.param(sources("rsa", Trusted="yes"), None, id="ours, changed"),
        pytest.param("", None, id="empty"),
        pytest.param("# old\n", None, id="only comments"),
        pytest.param(
            sources() + "\nTypes: deb\nURIs: https://x/\nSuites: /\nTrusted: yes\n",
            "it has 2 entries, but this collection writes only one",
            id="a second stanza",
        ),
        pytest.param(
            "Types: deb\nURIs: https://mine.example/\nSuites: /\n",
            "this collection did not write it",
            id="of the admin",
        ),
    ],
)
def test_what_must_not_be_written_over(text: str | None, problem: str | None) -> None:
    assert file_problem(node(text), "metal-gpu-cuda") == problem


@pytest.mark.parametrize(
    ("text", "path", "unsigned"),
    [
        pytest.param(
            "deb [arch=amd64 trusted=yes] https://mirror.example/cuda/ /\n",
            "sources.list",
            "[trusted=yes]",
            id="list",
        ),
        pytest.param(
            sources(Trusted="yes", **{"Allow-Weak": "true"}),
            "sources.list.d/x.sources",
            "Trusted: yes, Allow-Weak: true",
            id="sources",
        ),
        pytest.param(
            "deb [allow-insecure=yes] https://mirror.example/cuda/ /\n",
            "sources.list.d/x.list",
            "[allow-insecure=yes]",
            id="insecure",
        ),
        pytest.param(
            "deb [trusted=no] https://mirror.example/cuda/ /\n", "sources.list", None, id="no"
        ),
        pytest.param(
            "deb [trusted=yes] https://other.example/ /\n", "sources.list", None, id="another"
        ),
    ],
)
@pytest.mark.parametrize("ours", [None, sources()], ids=["without ours", "beside ours"])
def test_source_of_the_admin_that_checks_no_signatures(
    text: str, path: str, unsigned: str | None, ours: str | None
) -> None:
    found = node(ours, {f"/etc/apt/{path}": text})
    expected = {f"/etc/apt/{path}": unsigned} if unsigned else {}
    assert unsigned_sources(found, WANTED) == expected


def test_our_own_entry_is_written_anew_and_refused_by_nobody() -> None:
    assert unsigned_sources(node(sources(Trusted="yes")), WANTED) == {}


def test_ownership_takes_the_path_and_the_mark() -> None:
    assert is_ours(node(sources()), "metal-gpu-cuda")
    assert not is_ours(node(None), "metal-gpu-cuda")
    assert not is_ours(node(sources(**{"X-Repolib-Name": "mine"})), "metal-gpu-cuda")
    path = "/etc/apt/sources.list.d/metal-gpu-cuda.list"
    listed = {
        "metal-gpu-cuda": ObservedRepository.parse(path, "deb https://x/ /\n", None)._asdict()
    }
    assert not is_ours({**node(None), "repositories": listed}, "metal-gpu-cuda")


# --- credentials -------------------------------------------------------------------------------

SECRET = "https://me:CANARY@mirror.example/cuda/"


def test_credentials_are_compared_and_not_shown() -> None:
    found = node(sources(URIs=SECRET))
    assert "CANARY" not in str(found)
    assert repository_reason(found, WANTED._replace(url=SECRET), NOW) is None
    reasons = [
        repository_reason(found, WANTED._replace(url=SECRET.replace("CANARY", "other")), NOW),
        repository_reason(found, WANTED, NOW),
        repository_reason(node(sources()), WANTED._replace(url=SECRET), NOW),
    ]
    assert all(reasons)
    assert "has different credentials in URIs" in str(reasons[0])
    assert "CANARY" not in str(reasons)


def test_a_password_that_is_no_part_of_an_address_is_left_out() -> None:
    path = "/etc/yum.repos.d/metal-gpu-cuda.repo"
    text = "[metal-gpu-cuda]\npassword = CANARY\nproxy = http://a:CANARY@b/\n"
    assert "CANARY" not in str(ObservedRepository.parse(path, text, None))
    broken = f"{text}\nbaseurl https://u:CANARY@x/\npassword=CANARY\n"
    assert "CANARY" not in str(ObservedRepository.parse(path, broken, None))


@pytest.mark.parametrize(
    "url",
    ["https://u:CANARY@h/x", "https://u:CAN@ARY@h/x", "https://u:CAN/ARY@h/x", "https://CANARY@h"],
)
def test_no_part_of_a_password_is_shown(url: str) -> None:
    assert sealed(url).startswith("https://")
    assert not [part for part in ("CAN", "ARY", "u:") if part in sealed(url)]


def test_architecture_placeholder_of_upstreams_list() -> None:
    """As NVIDIA's instructions for the container toolkit write it."""
    wanted = WANTED._replace(url="https://mirror.example/stable/deb/amd64/")
    text = "deb [signed-by=/k.gpg] https://mirror.example/stable/deb/$(ARCH) /\n"
    assert repository_reason(theirs(text), wanted, NOW) is None


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
    held = armour(*key.split()) if key else None
    return {
        "os": {"family": "redhat", "version_id": "9.4"},
        "repositories": {name: ObservedRepository.parse(path, text, held)._asdict()},
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
    assert repository_reason(found, RPM, NOW) is None
    assert unsigned_sources(found, RPM) == {}


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
        pytest.param(rpm_node("rsa"), f"is the key {PINS['rsa']}", id="key"),
        pytest.param(
            rpm_node("ed25519 stranger"), f"a second primary key, {PINS['stranger']}", id="two keys"
        ),
        pytest.param(rpm_node(None), "not an OpenPGP public key", id="no key"),
        pytest.param(
            rpm_node(None, "cuda-rhel9", enabled="0"), "does not exist", id="somebody's, off"
        ),
    ],
)
def test_rpm_repository_has_to_be_written(found: dict[str, Any], reason: str) -> None:
    assert reason in (repository_reason(found, RPM, NOW) or "")


@pytest.mark.parametrize(
    ("more", "main", "unsigned"),
    [
        pytest.param("gpgcheck=0\n", "gpgcheck=1\n", "gpgcheck=0", id="off"),
        pytest.param("gpgcheck=0\nrepo_gpgcheck=1\n", "", None, id="metadata are signed"),
        pytest.param("", "gpgcheck=1\n", None, id="as in dnf.conf"),
        pytest.param("", "", "gpgcheck=0", id="as dnf does by itself"),
    ],
)
@pytest.mark.parametrize("path", ["cuda", "metal-gpu-cuda"])
def test_section_that_checks_no_signatures(
    path: str, more: str, main: str, unsigned: str | None
) -> None:
    text = f"[cuda]\nbaseurl = {RPM.url}\n{more}"
    file = f"/etc/yum.repos.d/{path}.repo"
    found = {
        **rpm_node(),
        "package_sources": package_sources({file: text}, parse_ini(f"[main]\n{main}")["main"]),
    }
    assert unsigned_sources(found, RPM) == ({file: unsigned} if unsigned else {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("[a]\n[b]\n", "it has 2 entries", id="two sections"),
        pytest.param("[metal-gpu-cuda]\n[metal-gpu-cuda]\n", "already exists", id="twice"),
        pytest.param("password = x\n", "line 1 comes before the first section", id="no section"),
        pytest.param("[a]\npassword x\n", "a section nor a field in line 2", id="no sign"),
        pytest.param("[mine]\nbaseurl = x\n", "did not write it", id="of the admin"),
    ],
)
def test_repo_file_that_must_not_be_written_over(text: str, problem: str) -> None:
    path = "/etc/yum.repos.d/metal-gpu-cuda.repo"
    found = {
        **rpm_node(),
        "repositories": {"metal-gpu-cuda": ObservedRepository.parse(path, text, None)._asdict()},
    }
    assert problem in (file_problem(found, "metal-gpu-cuda") or "")


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
    wanted = Repository.desired("x", EMPTY, getattr(system, which))
    assert (wanted.url, wanted.key) == (url, key)


def test_mirror_of_the_same_layout_has_the_key_at_the_same_place() -> None:
    desired = {**EMPTY, "repository_url": "https://mirror.example/linux/debian"}
    wanted = Repository.desired("x", desired, SYSTEMS[0].docker)
    assert wanted.key == "https://mirror.example/linux/debian/gpg"
    assert wanted.suite == "bookworm"
    assert wanted.fingerprint == SYSTEMS[0].docker.fingerprint


def test_only_apt_has_suites() -> None:
    desired = {**EMPTY, "repository_suite": "{codename}"}
    by_id = {system.id: Repository.desired("x", desired, system.docker) for system in SYSTEMS}
    assert (by_id["debian"].suite, by_id["rocky"].suite) == ("{codename}", "")
