# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`*_repository: false`: the packages come from the sources that the node has."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.planning import PLANNERS
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import (
    SYSTEMS,
    System,
    find,
)
from ansible_collections.metal.gpu.tests.unit.golden import nodes
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    BROKEN,
    DOCKER,
    DONE,
    UNSIGNED,
    merge,
    plan,
    repository,
    with_other_entry,
    without_nulls,
)

ROLES = ("nvidia_driver", "containerd", "docker_ce", "nvidia_container_runtime")
PASCAL = nodes.CARDS[0]
FOLLOWED = (find({"id": "rocky", "version_id": "10"}), find({"id": "debian", "version_id": "12"}))  # type: ignore[typeddict-item]


def planned(role: str, system: System, changes: dict[str, Any], **more: Any) -> dict[str, Any]:
    engine = "docker" if role == "docker_ce" else "containerd"
    has_engine = role == "nvidia_container_runtime"
    node = merge(nodes.node(system, engine, PASCAL, has_engine=has_engine), changes)
    # No kubelet, and so no cri-dockerd.
    node["kubelet"]["endpoint"] = None
    node["repositories"] = {}
    desired = nodes.variables(role, engine=engine, repository=False, **more)
    result: dict[str, Any] = PLANNERS[role](node, desired)
    return result


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
@pytest.mark.parametrize("role", ROLES)
def test_no_source_is_added(role: str, system: System) -> None:
    """Enterprise Linux 10 needs no fingerprint then."""
    source = "distribution" if system.id == "ubuntu" else "nvidia"
    plan = planned(role, system, {}, **({"source": source} if role == "nvidia_driver" else {}))
    assert plan["refusals"] == []
    slugs = [step["slug"] for step in plan["steps"]]
    assert "install" in slugs
    assert not {"repository", "python_debian", "security"}.intersection(slugs)
    assert not plan["data"].get("repository")


@pytest.mark.parametrize("source", ["nvidia", "distribution"])
@pytest.mark.parametrize("role", ROLES)
def test_address_without_effect_is_named(role: str, source: str) -> None:
    (debian,) = (one for one in SYSTEMS if one.name == "Debian 12")
    found = {
        "repository_url": "http://mirror.example/",
        "repository_key": "http://mirror.example/k",
    }
    more = {"source": source} if role == "nvidia_driver" else {}
    plan = planned(role, debian, {}, **found, **more)
    (notice,) = (one for one in plan["notices"] if one["code"] == "REPOSITORY_UNUSED")
    names = f"{role}_repository_url and {role}_repository_key"
    assert notice["message"] == (
        f"node: {role}_repository is false, so the role does not use {names}"
    )
    assert "repository" not in [step["slug"] for step in plan["steps"]]
    plan = planned(role, debian, {}, **more)
    assert "REPOSITORY_UNUSED" not in [one["code"] for one in plan["notices"]]


FILES = {
    "nvidia_driver": "nvidia-driver",
    "containerd": "docker",
    "docker_ce": "docker",
    "nvidia_container_runtime": "container-toolkit",
}


NO_ADDRESS = {f"repository_{name}": "" for name in ("url", "suite", "key", "fingerprint")}


def healthy(role: str) -> dict[str, Any]:
    """Return a node on which the role has nothing to do, without a file of a repository."""
    found: dict[str, Any] = merge(DOCKER if role == "docker_ce" else DONE, {})
    found["repositories"] = {}
    return found


def noticed(role: str, node: dict[str, Any], **desired: Any) -> list[dict[str, str]]:
    planned = plan(role, node, **{"repository": False, **NO_ADDRESS, **desired})
    assert (planned["steps"], planned["refusals"]) == ([], [])
    notices: list[dict[str, str]] = planned["notices"]
    return notices


@pytest.mark.parametrize("role", ROLES)
def test_address_without_effect_is_named_in_a_run_that_installs_nothing(role: str) -> None:
    node, url = healthy(role), {"repository_url": "http://mirror.example/"}
    (notice,) = noticed(role, node, **url)
    assert notice["code"] == "REPOSITORY_UNUSED"
    assert notice["message"].endswith(f"the role does not use {role}_repository_url")
    assert noticed(role, node) == []
    assert noticed(role, node, **url, repository=True) == []
    absent = plan(role, node, **url, repository=False, state="absent")
    assert "REPOSITORY_UNUSED" not in [one["code"] for one in absent["notices"]]


@pytest.mark.parametrize("source", ["nvidia", "distribution", "present", "auto"])
def test_address_without_effect_whatever_the_source(source: str) -> None:
    url = {"repository_url": "http://mirror.example/", "source": source}
    codes = [one["code"] for one in noticed("nvidia_driver", healthy("nvidia_driver"), **url)]
    assert codes.count("REPOSITORY_UNUSED") == 1


@pytest.mark.parametrize("role", ROLES)
def test_file_of_an_earlier_run_is_named_and_stays(role: str) -> None:
    node, name = healthy(role), f"metal-gpu-{FILES[role]}"
    path = f"/etc/apt/sources.list.d/{name}.sources"
    node["repositories"] = repository(FILES[role])
    (notice,) = noticed(role, node)
    assert notice["code"] == "REPOSITORY_KEPT"
    assert notice["message"] == (
        f"gpu-1: {role}_repository is false, and the package manager still reads the repository "
        f"that this collection added before: {path}"
    )
    shared = " (the roles containerd and docker_ce share this file)"
    way = f"run `rm -f {path}`{shared if FILES[role] == 'docker' else ''}; or set"
    assert f"{way} `{role}_repository: true`" in notice["remedy"]
    (entry,) = node["repositories"][name]["entries"]
    entry["enabled"] = "no"
    assert noticed(role, node) == []
    # A file of an admin, although it has our name.
    node["repositories"][name]["entries"] = [{"types": "deb", "uris": "https://x/"}]
    assert noticed(role, node) == []


def test_a_file_with_other_entries_is_not_deleted() -> None:
    """Only our own entry counts as one that the package manager still reads."""
    node, name = healthy("nvidia_driver"), "metal-gpu-nvidia-driver"
    path = f"/etc/apt/sources.list.d/{name}"
    entry = f"delete the entry {name} of {path}.sources, which also has other entries"
    node["repositories"] = with_other_entry("nvidia-driver")
    (notice,) = noticed("nvidia_driver", node)
    assert f"its packages, {entry}; or set" in notice["remedy"]
    assert "rm -f" not in notice["remedy"]
    node["repositories"] |= repository("nvidia-driver-security")
    (notice,) = noticed("nvidia_driver", node)
    assert f"run `rm -f {path}-security.sources` and {entry}; or set" in notice["remedy"]
    node["repositories"] = with_other_entry("nvidia-driver")
    node["repositories"][name]["entries"][0]["enabled"] = "no"
    assert noticed("nvidia_driver", node) == []


def test_all_files_of_an_earlier_run_are_named() -> None:
    """The driver has a second one on Debian, and dnf has a file for the key."""
    node = healthy("nvidia_driver")
    node["repositories"] = {**repository("nvidia-driver"), **repository("nvidia-driver-security")}
    (notice,) = noticed("nvidia_driver", node)
    start = "/etc/apt/sources.list.d/metal-gpu-nvidia-driver"
    assert notice["message"].endswith(f": {start}.sources and {start}-security.sources")
    (rocky,) = (one for one in SYSTEMS if one.name == "Rocky Linux 9")
    name = "metal-gpu-nvidia-driver"
    path = f"/etc/yum.repos.d/{name}.repo"
    entry = {"section": name, "name": f"{name}, managed by Ansible", "enabled": "1"}
    row = {"path": path, "entries": [entry], "key": None, "error": None}
    result = with_repositories(rocky, {name: row})
    (notice,) = (one for one in result["notices"] if one["code"] == "REPOSITORY_KEPT")
    assert f"`rm -f {path} /etc/pki/rpm-gpg/RPM-GPG-KEY-{name}`" in notice["remedy"]
    row["entries"] = [{**entry, "enabled": "0"}]
    result = with_repositories(rocky, {name: row})
    assert "REPOSITORY_KEPT" not in [one["code"] for one in result["notices"]]


def with_repositories(system: System, files: dict[str, Any]) -> dict[str, Any]:
    node = merge(nodes.node(system, "containerd", PASCAL, has_engine=False), {})
    node["repositories"] = files
    desired = nodes.variables("nvidia_driver", engine="containerd", repository=False)
    result: dict[str, Any] = PLANNERS["nvidia_driver"](node, desired)
    return result


@pytest.mark.parametrize("system", FOLLOWED, ids=lambda system: system.name)
@pytest.mark.parametrize("role", ROLES)
def test_second_plan_and_teardown_leave_the_sources(role: str, system: System) -> None:
    """An admin's file is not ours, whatever is in it."""
    absent = planned(role, system, {"package_sources": [UNSIGNED]}, state="absent")
    assert "remove_repository" not in [step["slug"] for step in absent["steps"]]


def test_distributions_components_are_not_added() -> None:
    (debian,) = (one for one in SYSTEMS if one.name == "Debian 13")
    plan = planned("nvidia_driver", debian, {}, source="distribution")
    assert plan["refusals"] == []
    assert not {"repository", "security"}.intersection(step["slug"] for step in plan["steps"])


def test_own_source_can_have_any_branch() -> None:
    """580 is not in NVIDIA's repository for Debian 13."""
    (debian,) = (one for one in SYSTEMS if one.name == "Debian 13")
    plan = planned("nvidia_driver", debian, {}, source="nvidia")
    (reason,) = (step["reason"] for step in plan["steps"] if step["slug"] == "install")
    assert "nvidia-driver-cuda=580.178.04-*" in plan["data"]["packages"]
    assert reason.endswith("your own source must have branch 580")


UNCLEAR = "DRIVER_SOURCE_UNCLEAR"


@pytest.mark.parametrize(
    ("name", "wish", "expected"),
    [
        pytest.param("Debian 12", {}, UNCLEAR, id="both have a driver"),
        pytest.param("Ubuntu 24.04", {"version": "580.178.04"}, UNCLEAR, id="of one version"),
        pytest.param("Ubuntu 24.04", {"branch": 580}, UNCLEAR, id="of one branch"),
        pytest.param(
            "Debian 12", {"version": "570.211.01"}, "nvidia-driver-cuda=570.211.01-*", id="NVIDIA's"
        ),
        pytest.param("Debian 12", {"branch": 470}, "nvidia-tesla-470-kernel-dkms", id="Debian's"),
        pytest.param(
            "Rocky Linux 9", {}, "nvidia-driver-cuda-3:580.178.04", id="no driver of its own"
        ),
    ],
)
def test_auto_takes_what_only_one_source_can_have(
    name: str, wish: dict[str, Any], expected: str
) -> None:
    """Otherwise, the first packages that fit could be those of another source and branch."""
    (system,) = (one for one in SYSTEMS if one.name == name)
    plan = planned("nvidia_driver", system, {}, **wish)
    if expected == UNCLEAR:
        (refusal,) = plan["refusals"]
        assert (refusal["code"], plan["steps"]) == (UNCLEAR, [])
        for source in ("nvidia", "distribution"):
            assert f"set `nvidia_driver_source: {source}`, for driver " in refusal["remedy"]
    else:
        assert (plan["refusals"], plan["data"]["packages"][0]) == ([], expected)


def test_secure_boot_leaves_one_source() -> None:
    """Ubuntu has signed modules. What is built on the node is not trusted."""
    (ubuntu,) = (one for one in SYSTEMS if one.name == "Ubuntu 24.04")
    plan = planned("nvidia_driver", ubuntu, {"secure_boot": True})
    assert plan["refusals"] == []
    assert "nvidia-utils-580-server=580.*" in plan["data"]["packages"]


ADMINS = without_nulls(merge(DONE, {"ours": {"packages": {"nvidia_driver": None}, "files": []}}))


def own_sources(node: dict[str, Any]) -> dict[str, Any]:
    return plan("nvidia_driver", node, repository=False)


def test_driver_of_the_admin_shows_the_source() -> None:
    """Its packages are there, so only the modules have to be loaded."""
    unloaded = {"kernel": {"modules": []}, "nvml": {"failure": BROKEN, "devices": []}}
    planned = own_sources(merge(ADMINS, unloaded))
    assert planned["refusals"] == []
    assert [step["slug"] for step in planned["steps"]] == ["load"]


def test_other_driver_of_the_admin_is_left_alone() -> None:
    """Also if nothing shows where it is from."""
    versions = dict.fromkeys(ADMINS["driver"]["packages"], "570.172.08-1")
    for packages in (versions, {}):
        node = merge(ADMINS, {"nvml": {"driver_version": "570.172.08"}})
        node["driver"] = {**node["driver"], "packages": packages, "modules_load": []}
        node["driver"]["unblocked"] = ["nouveau"]
        planned = own_sources(node)
        assert (planned["refusals"], planned["steps"]) == ([], [])
