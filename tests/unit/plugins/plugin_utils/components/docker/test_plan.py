# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read.docker import SOCKET
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DOCKER,
    codes,
    merge,
    names,
    plan,
    record,
)

RECORDED = Path(__file__).parents[5] / "recorded" / "packages" / "docker.yml"
UNIT = "/usr/lib/systemd/system/docker.service"
NO_PACKAGES = dict.fromkeys(("docker-ce", "docker-ce-cli", "containerd.io", "cri-dockerd"))
NO_CRI_DOCKERD = {"installed": False, "version": None, "running": False, "enabled": False}
VIRGIN = {
    "engines": {
        "docker": {
            "installed": False,
            "version": None,
            "running": False,
            "enabled": False,
            "program": None,
            "flags": [],
            "config": {"settings": []},
            "containers": [],
            "cri_dockerd": NO_CRI_DOCKERD,
        }
    },
    "packages": NO_PACKAGES,
}
REDHAT = {"os": {"id": "rocky", "version_id": "9.6", "family": "redhat"}}
EXCHANGE = [
    "Install python3-debian for the Docker repository",
    "Add the Docker repository",
    "Install Docker",
    "Start Docker",
    "Start the recorded containers",
    "Hold Docker",
    "Remove the purge script of docker.io",
]
RUNNING = {"ephemeral": False, "noted": False, "gpus": False, "gpus_by_hook": False}
OWN = {"id": "aaaa", "name": "admin-service", "of_pod": False, **RUNNING}
POD = {"id": "bbbb", "name": "k8s_POD_busy", "of_pod": True, **RUNNING}
DISTRIBUTION = {
    "engines": {
        "docker": {
            "version": "20.10.24",
            "containers": [OWN, POD],
            "program": {"path": "/usr/sbin/dockerd", "file": UNIT},
        }
    },
    "packages": {
        **NO_PACKAGES,
        "docker.io": {"version": "20.10.24+dfsg1-1+deb12u1", "held": False},
        "containerd": {"version": "1.6.20~ds1-1+deb12u1", "held": False},
        "runc": {"version": "1.1.5+ds1-1+deb12u1", "held": False},
    },
}
V1 = {
    "engines": {
        "docker": {
            "v1": {
                "unit": True,
                "volumes": ["nvidia_driver_390.25"],
                "containers": [{"id": "cccc", "name": "digits"}],
            }
        }
    },
    "packages": {"nvidia-docker": {"version": "1.0.1-1", "held": False}},
    "repositories": {"nvidia-docker": {"path": "/etc/apt/sources.list.d/nvidia-docker.list"}},
}
NO_RECORD: dict[str, Any] = {
    "ours": {"packages": {"docker_ce": None}},
    "repositories": {"metal-gpu-docker": None},
}
UNHELD = {name: {"held": False} for name in DOCKER["packages"]}
BUT_CRI_DOCKERD = {
    name: found["version"] for name, found in DOCKER["packages"].items() if name != "cri-dockerd"
}
OPTIONS = {
    "name": "--data-root",
    "value": "/srv",
    "file": "/etc/default/docker",
    "variable": "DOCKER_OPTS",
    "effective": True,
}


def node(*changes: dict[str, Any]) -> dict[str, Any]:
    found = DOCKER
    for change in changes:
        found = merge(found, change)
    # Packages and repositories that a case sets to null are not there.
    there = {
        table: {name: one for name, one in found[table].items() if one}
        for table in ("packages", "repositories")
    }
    records = {role: noted for role, noted in found["ours"]["packages"].items() if noted}
    return {**found, **there, "ours": {**found["ours"], "packages": records}}


def docker(**values: Any) -> dict[str, Any]:
    return {"engines": {"docker": values}}


@pytest.mark.parametrize(
    ("changes", "desired", "steps"),
    [
        pytest.param(
            [VIRGIN, {"repositories": {"metal-gpu-docker": None}}],
            {},
            [
                "Install python3-debian for the Docker repository",
                "Add the Docker repository",
                "Install Docker",
                "Start Docker",
                "Hold Docker",
                "Install cri-dockerd",
                "Hold cri-dockerd",
                "Start cri-dockerd",
            ],
            id="virgin",
        ),
        pytest.param(
            [DISTRIBUTION, {"repositories": {"metal-gpu-docker": None}}],
            {"replace_distribution": True},
            ["Record the running containers", *EXCHANGE],
            id="replaced",
        ),
        pytest.param(
            [DISTRIBUTION, docker(containers=[{**OWN, "noted": True}, POD])],
            {"replace_distribution": True},
            EXCHANGE,
            id="cut-behind-the-note",
        ),
        pytest.param([DISTRIBUTION], {}, [], id="kept"),
        pytest.param(
            [DISTRIBUTION, docker(running=False)], {}, ["Start Docker"], id="kept-and-started"
        ),
        pytest.param([docker(enabled=False)], {}, ["Start Docker"], id="not-at-boot"),
        pytest.param(
            [{"packages": {"docker-ce": {"held": False}}}],
            {},
            ["Hold Docker"],
            id="cut-before-hold",
        ),
        pytest.param(
            [docker(interrupted=[{"id": "aaaa", "name": "admin-service"}])],
            {},
            ["Start the recorded containers"],
            id="cut-before-containers",
        ),
        pytest.param(
            [
                {
                    "ours": {
                        "edits": [
                            {
                                "path": "/var/lib/metal-gpu/docker-containers.json",
                                "actor": "metal.gpu.docker_ce",
                            }
                        ]
                    }
                }
            ],
            {},
            ["Start the recorded containers"],
            id="cut-before-forgetting",
        ),
        pytest.param(
            [docker(purge_script="/var/lib/docker/nuke-graph-directory.sh")],
            {},
            ["Remove the purge script of docker.io"],
            id="cut-before-disarming",
        ),
        pytest.param(
            [docker(cri_dockerd=NO_CRI_DOCKERD), {"packages": {"cri-dockerd": None}}],
            {},
            ["Install cri-dockerd", "Hold cri-dockerd", "Start cri-dockerd"],
            id="cri-dockerd",
        ),
        pytest.param(
            [docker(cri_dockerd={"running": False})], {}, ["Start cri-dockerd"], id="cri-stopped"
        ),
        pytest.param(
            [{"packages": {"cri-dockerd": {"held": False}}}],
            {},
            ["Hold cri-dockerd"],
            id="cut-before-the-hold-of-cri-dockerd",
        ),
        pytest.param(
            [{"packages": {"cri-dockerd": {"held": False}}}, NO_RECORD],
            {},
            [],
            id="cri-dockerd-of-the-admin",
        ),
        pytest.param(
            [docker(group=["alice"])],
            {"users": ["alice", "bob"]},
            ["Add users to the group docker"],
            id="users",
        ),
        pytest.param(
            [V1],
            {"v1_removal_ok": True},
            [
                "Remove the containers and volumes of nvidia-docker v1",
                "Remove nvidia-docker",
                "Remove the repositories of nvidia-docker",
            ],
            id="v1",
        ),
        pytest.param(
            [{"packages": {"nvidia-docker2": {"version": "2.14.0-1", "held": False}}}],
            {},
            ["Remove nvidia-docker"],
            id="v2",
        ),
        pytest.param(
            [{"repositories": {"libnvidia-container": {"path": "/x.list", "text": ""}}}],
            {},
            [],
            id="list-of-the-toolkit",
        ),
        pytest.param(
            [{"kubelet": {"running": False}}, docker(containers=[])],
            {"state": "absent"},
            [
                "Remove Docker",
                "Remove the Docker repository",
                "Delete the record of Docker packages",
            ],
            id="absent",
        ),
        pytest.param(
            [REDHAT, {"kubelet": {"running": False}}, docker(containers=[])],
            {"state": "absent"},
            [
                "Stop the socket of Docker",
                "Remove Docker",
                "Delete the record of Docker packages",
            ],
            id="absent-on-redhat",
        ),
        pytest.param(
            [
                *(REDHAT, {"kubelet": {"running": False}}),
                docker(containers=[], socket_active=False),
            ],
            {"state": "absent"},
            [
                "Remove Docker",
                "Delete the record of Docker packages",
            ],
            id="absent-on-redhat-without-the-socket",
        ),
        pytest.param(
            [VIRGIN],
            {"state": "absent"},
            ["Remove the Docker repository", "Delete the record of Docker packages"],
            id="absent-cut",
        ),
        pytest.param(
            [DISTRIBUTION, {"repositories": {"metal-gpu-docker": None}}, NO_RECORD],
            {"state": "absent"},
            [],
            id="absent-of-the-admin",
        ),
        pytest.param(
            [
                {"kubelet": {"running": False}},
                docker(containers=[]),
                {"ours": NO_RECORD["ours"], "packages": UNHELD},
            ],
            {"state": "absent"},
            ["Remove the Docker repository"],
            id="absent-of-the-admin-from-our-repository",
        ),
        pytest.param(
            [{"packages": {"docker-ce": {"held": False}}}, NO_RECORD],
            {},
            [],
            id="of-the-admin-is-not-held",
        ),
    ],
)
def test_steps(changes: list[dict[str, Any]], desired: dict[str, Any], steps: list[str]) -> None:
    planned = plan("docker_ce", node(*changes), **desired)
    assert planned["refusals"] == []
    assert names(planned) == steps


@pytest.mark.parametrize(
    ("changes", "desired", "expected"),
    [
        pytest.param([], {"state": "absent"}, ["DOCKER_IN_USE"], id="pods"),
        pytest.param(
            [{"kubelet": {"running": False}}],
            {"state": "absent"},
            ["DOCKER_IN_USE"],
            id="containers",
        ),
        pytest.param(
            [docker(config={"error": "daemon.json, line 1, column 8: bad"})],
            {},
            ["DOCKER_CONFIG_INVALID"],
            id="JSON",
        ),
        pytest.param(
            [docker(record_error="docker-containers.json, line 1, column 2: bad")],
            {},
            ["DOCKER_RECORD_INVALID"],
            id="record",
        ),
        pytest.param(
            [{"kubelet": {"endpoint": "unix:///run/containerd/containerd.sock"}}],
            {},
            ["ENGINE_MISMATCH"],
            id="containerd",
        ),
        pytest.param(
            [
                VIRGIN,
                {"kubelet": {"endpoint": None, "distribution": {"name": "MicroK8s", "unit": "x"}}},
            ],
            {},
            ["DISTRIBUTION_UNSUPPORTED"],
            id="k0s",
        ),
        pytest.param([docker(snap=["/snap/bin/docker"])], {}, ["SNAP_DOCKER"], id="snap"),
        pytest.param(
            [VIRGIN, docker(rootless=["/run/user/1000/docker.sock"])],
            {},
            ["ROOTLESS_DOCKER"],
            id="rootless",
        ),
        pytest.param([docker(rootless=["/x"])], {}, [], id="rootless-beside"),
        pytest.param(
            [docker(config={"settings": ["hosts"]})], {}, ["DOCKER_FLAG_CLASH"], id="clash"
        ),
        pytest.param(
            [VIRGIN, docker(config={"settings": ["hosts"]})],
            {},
            ["DOCKER_FLAG_CLASH"],
            id="clash-to-be",
        ),
        pytest.param([V1], {}, ["NVIDIA_DOCKER_V1"], id="v1"),
        pytest.param(
            [docker(cri_dockerd=NO_CRI_DOCKERD)],
            {"cri_dockerd_checksum": ""},
            ["CRI_DOCKERD_MISSING"],
            id="cri-dockerd",
        ),
        pytest.param(
            [{"kubelet": {"running": False}}, docker(containers=[], answers=False)],
            {"state": "absent"},
            ["DOCKER_SILENT"],
            id="silent-and-absent",
        ),
        pytest.param(
            [DISTRIBUTION, docker(answers=False)],
            {"replace_distribution": True},
            ["DOCKER_SILENT"],
            id="silent-and-replaced",
        ),
        pytest.param(
            [DISTRIBUTION, docker(containers=[{**OWN, "ephemeral": True}])],
            {"replace_distribution": True},
            ["CONTAINERS_EPHEMERAL"],
            id="ephemeral",
        ),
        pytest.param(
            [DISTRIBUTION, docker(containers=[{**OWN, "ephemeral": True}], live_restore=True)],
            {"replace_distribution": True},
            [],
            id="ephemeral-lives-on",
        ),
        pytest.param(
            [DISTRIBUTION, docker(flags=[OPTIONS])],
            {"replace_distribution": True},
            ["DOCKER_SETTING_LOST"],
            id="options",
        ),
        pytest.param(
            [
                DISTRIBUTION,
                docker(program={"path": "/usr/sbin/dockerd", "file": "/etc/systemd/system/x.conf"}),
            ],
            {"replace_distribution": True},
            ["DOCKER_SETTING_LOST"],
            id="program",
        ),
        pytest.param(
            [
                DISTRIBUTION,
                docker(
                    program={"path": "/usr/bin/dockerd", "file": "/etc/systemd/system/x.conf"},
                    flags=[OPTIONS],
                ),
            ],
            {"replace_distribution": True},
            [],
            id="own-drop-in",
        ),
    ],
)
def test_refusals(
    changes: list[dict[str, Any]], desired: dict[str, Any], expected: list[str]
) -> None:
    planned = plan("docker_ce", node(*changes), **desired)
    assert codes(planned) == expected
    assert planned["steps"] == [] or not expected


def test_packages_are_pinned() -> None:
    planned = plan("docker_ce", node(VIRGIN))
    assert planned["data"]["packages"] == [
        "docker-ce=5:29.8.1-1~debian.12~bookworm",
        "docker-ce-cli=5:29.8.1-1~debian.12~bookworm",
        "containerd.io=2.4.1-*",
    ]
    noted = planned["data"]["packages_record"]
    assert noted["path"] == "/var/lib/metal-gpu/packages/docker_ce.json"
    assert noted["packages"]["containerd.io"] == {"version": "2.4.1-*", "before": None}
    assert noted["packages"]["cri-dockerd"] == {"version": "", "before": None}


def test_cri_dockerd_that_this_role_has_not_installed_stays() -> None:
    """A hold is no proof: an admin can hold it. Its package depends on containerd.io."""
    found = node({"kubelet": {"running": False}}, docker(containers=[]))
    found["ours"] = {**found["ours"], **record("docker_ce", BUT_CRI_DOCKERD)}
    planned = plan("docker_ce", found, state="absent")
    assert planned["data"]["packages"] == ["docker-ce", "docker-ce-cli"]


def test_containerd_that_was_there_before_stays_and_is_let_go() -> None:
    changes = {"kubelet": {"running": False}}
    found = node(changes, docker(containers=[]))
    found["ours"]["packages"]["docker_ce"]["packages"]["containerd.io"]["before"] = "1.7.24-1"
    planned = plan("docker_ce", found, state="absent")
    assert planned["data"]["packages"] == ["docker-ce", "docker-ce-cli", "cri-dockerd"]
    assert planned["data"]["release"] == ["containerd.io"]
    assert "Release the hold on Docker" in names(planned)


@pytest.mark.parametrize(
    ("os", "url", "codes_"),
    [
        pytest.param({}, "debian-bookworm_amd64.deb", [], id="debian-12"),
        pytest.param(
            {"version_id": "13", "codename": "trixie"}, "debian-bookworm_amd64.deb", [], id="13"
        ),
        pytest.param(
            {"id": "ubuntu", "version_id": "24.04"}, "ubuntu-jammy_amd64.deb", [], id="ubuntu"
        ),
        pytest.param(
            {"id": "rocky", "version_id": "9.4", "family": "redhat"},
            None,
            ["CRI_DOCKERD_UNPACKAGED"],
            id="rocky",
        ),
    ],
)
def test_file_of_cri_dockerd(os: dict[str, str], url: str | None, codes_: list[str]) -> None:
    """What the release 0.4.3 has; its newer namesakes are in no release."""
    found = node(VIRGIN, {"os": os, "repositories": {"metal-gpu-docker": None}})
    planned = plan("docker_ce", found, cri_dockerd_url="")
    assert codes(planned) == codes_
    assert str(planned["data"]["cri_dockerd_url"]).endswith(str(url))
    suffix = "rpm" if os.get("family") == "redhat" else "deb"
    own = plan("docker_ce", found, cri_dockerd_url=f"https://mirror.example/x.{suffix}?a=b")
    assert codes(own) == []


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("https://mirror.example/cri-dockerd/", id="folder"),
        pytest.param("https://mirror.example/cri-dockerd/..", id="parent"),
        pytest.param("https://mirror.example/cri-dockerd.rpm", id="of another system"),
        pytest.param("https://mirror.example/download?file=x.deb", id="not the last part"),
        pytest.param("https://me:CANARY#1@mirror.example/x.deb", id="password"),
    ],
)
def test_url_that_is_not_that_of_a_package(url: str) -> None:
    planned = plan("docker_ce", node(docker(cri_dockerd=NO_CRI_DOCKERD)), cri_dockerd_url=url)
    assert codes(planned) == ["URL_INVALID"]
    assert "CANARY" not in str(planned)


@pytest.mark.parametrize("name", ["repository_url", "repository_key"])
def test_password_that_is_no_part_of_the_url(name: str) -> None:
    planned = plan("docker_ce", node(VIRGIN), **{name: "https://me:CANARY#1@mirror.example/x"})
    assert codes(planned) == ["URL_INVALID"]
    assert "CANARY" not in str(planned)


def held(name: str, version: str) -> dict[str, Any]:
    return {"packages": {name: {"version": version, "held": True}}}


@pytest.mark.parametrize(
    ("changes", "codes_"),
    [
        pytest.param([held("containerd.io", "1.7.27-1")], ["PACKAGES_HELD"], id="admin"),
        pytest.param([held("containerd.io", "2.4.1-1")], [], id="the same version"),
        pytest.param([held("runc", "1.1.5")], ["PACKAGES_HELD"], id="conflict"),
        pytest.param(
            [
                held("containerd.io", "1.7.27-1"),
                {"ours": record("containerd", {"containerd.io": "1.7.27-1"})},
            ],
            [],
            id="ours",
        ),
        pytest.param(
            [DISTRIBUTION, held("containerd", "1.6.20~ds1-1+deb12u1")],
            ["PACKAGES_HELD"],
            id="of the distribution",
        ),
    ],
)
def test_hold_of_an_admin_is_respected(changes: list[dict[str, Any]], codes_: list[str]) -> None:
    found = node(VIRGIN if DISTRIBUTION not in changes else {}, NO_RECORD, *changes)
    planned = plan("docker_ce", found, replace_distribution=True)
    assert codes(planned) == codes_
    assert planned["data"]["change_held"] is ("ours" in changes[-1])


def test_epochs_of_rpm_differ() -> None:
    """As dnf listed them: docker-ce-3:29.8.1-1.el9, docker-ce-cli-1:29.8.1-1.el9."""
    os = {"id": "rocky", "version_id": "9.4", "family": "redhat"}
    found = node(VIRGIN, {"os": os, "repositories": {"metal-gpu-docker": None}})
    assert plan("docker_ce", found)["data"]["packages"] == [
        "docker-ce-3:29.8.1-1.el9",
        "docker-ce-cli-1:29.8.1-1.el9",
        "containerd.io-2.4.1",
    ]


def test_exchange_says_what_goes_and_what_is_started_again() -> None:
    planned = plan("docker_ce", node(DISTRIBUTION), replace_distribution=True)
    (reason,) = [step["reason"] for step in planned["steps"] if step["name"] == "Install Docker"]
    assert reason == (
        "docker-ce replaces docker.io 20.10.24; this removes the conflicting docker.io, "
        "containerd, runc"
    )
    assert planned["data"]["may_remove"] == ["docker.io", "containerd", "runc"]
    assert planned["data"]["record"]["merge"] == {"aaaa": "admin-service"}  # no pods
    assert planned["data"]["containers"] == ["aaaa"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param([DISTRIBUTION], "docker.io 20.10.24", id="distribution"),
        pytest.param(
            [
                docker(version="28.5.2"),
                {"packages": {"docker-ce": {"version": "5:28.5.2-1~debian.12~bookworm"}}},
            ],
            "docker-ce 28.5.2",
            id="other-version",
        ),
        pytest.param([{"packages": NO_PACKAGES}], "dockerd 29.8.1", id="no-package"),
    ],
)
def test_an_engine_of_somebody_else_is_kept(changes: list[dict[str, Any]], found: str) -> None:
    *others, notice = plan("docker_ce", node(*changes))["notices"]
    assert notice["code"] == "ENGINE_KEPT"
    unheld = ["PACKAGES_UNHELD"] if changes == [DISTRIBUTION] else []
    assert [other["code"] for other in others] == unheld
    assert notice["message"] == (
        f"gpu-1: {found} is installed and is kept (docker_ce_version asks for 29.8.1)"
    )


def test_v1_is_listed() -> None:
    (refusal,) = plan("docker_ce", node(V1))["refusals"]
    assert "containers (digits) and volumes (nvidia_driver_390.25)" in refusal["message"]


def test_a_clash_names_key_flag_and_file() -> None:
    (refusal,) = plan("docker_ce", node(docker(config={"settings": ["hosts"]})))["refusals"]
    assert refusal["message"] == (
        f"gpu-1: the flag -H in {UNIT} conflicts with the key hosts in /etc/docker/daemon.json; "
        "Docker does not start or reload with both"
    )


def test_a_flag_of_a_wrapper_clashes_as_well() -> None:
    flag = {"name": "--live-restore", "value": None, "variable": None, "effective": True}
    changes = docker(flags=[{**flag, "file": None}], config={"settings": ["live-restore"]})
    (refusal,) = plan("docker_ce", node(changes))["refusals"]
    assert refusal["code"] == "DOCKER_FLAG_CLASH"
    assert "the flag --live-restore in the command line of dockerd conflicts" in refusal["message"]


def test_units_that_the_package_stops() -> None:
    """On Red Hat's family, it leaves the socket to the role."""
    rows = [row for part in yaml.safe_load(RECORDED.read_text()).values() for row in part]
    stopped = {
        row["source"]: SOCKET in row["value"]
        for row in rows
        if row["what"] == "units" and row["package"] == "docker-ce"
    }
    assert stopped == {"docker-control": True, "docker-spec": False}
