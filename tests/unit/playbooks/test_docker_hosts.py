# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The proof of Docker hosts as Ansible runs it, with programs that answer as Docker does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.platform import engines
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS
from ansible_collections.metal.gpu.tests.unit.golden.nodes import CARDS
from ansible_collections.metal.gpu.tests.unit.golden.nodes import node as virgin
from ansible_collections.metal.gpu.tests.unit.playbooks.test_playbooks import (
    AWAY,
    inventory,
    play,
)
from ansible_collections.metal.gpu.tests.unit.support import healthy
from ansible_collections.metal.gpu.tests.unit.support.playbooks import ROOT, Run, run

HEALTHY = healthy.docker_node()
NODE: dict[str, Any] = HEALTHY.observed()
UUIDS = [gpu["uuid"] for gpu in NODE["nvml"]["devices"]]
DOCKER = """\
#!/bin/sh
case "$*" in
  *.Architecture*) echo $ARCHITECTURE ;;
  *.RepoDigests*) echo '["app@sha256:1"]' ;;
  *.Layers*) echo '["sha256:2"]' ;;
  pull*) [ "$ARCHITECTURE" ] || { echo unauthorized; exit 1; } ;;
  "image inspect"*) [ "$ARCHITECTURE" ] ;;
  run*) printf 'versions 580.178.04 13.0\\n%s\\n' "$SEEN" |
    sed "s/GPU-0/GPU-${ANSWERED_HOST##*-}/" ;;
esac
"""
LIST = "\n".join([*UUIDS, *(f"{number} ok" for number in range(1, len(UUIDS) + 1))])


@pytest.fixture
def prove(tmp_path: Path) -> Any:
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    one = {"node": NODE, "plans": {}, "refusals": [], "declared": None}
    hosts = ("gpu-1", "gpu-2")
    # Two machines have no GPU in common.
    texts = {name: json.dumps(one).replace("GPU-0", f"GPU-{name[-1]}") for name in hosts}
    given = {"metal_gpu_given": {name: json.loads(text) for name, text in texts.items()}}
    (tmp_path / "given.json").write_text(json.dumps(given))
    take = {"metal_gpu": "{{ metal_gpu_given[inventory_hostname] }}"}
    start = {"metal_gpu_run": {"id": "run", "hosts": ["gpu-1", "gpu-2"], "started": 0}}
    path = "{{ ansible_playbook_python | dirname }}:/usr/bin:/bin"
    environment = {
        "PATH": f"{program.parent}:{path}",
        "ARCHITECTURE": "{{ architecture | default('amd64') }}",
        "SEEN": LIST,
        "ANSWERED_HOST": "{{ inventory_hostname }}",
    }
    tasks: list[dict[str, Any]] = [
        {"name": "Take it", "ansible.builtin.set_fact": take},
        {
            "name": "Prove",
            "ansible.builtin.import_role": {
                "name": "metal.gpu.verify",
                "tasks_from": "docker.yml",
                "rolespec_validate": False,
            },
        },
    ]
    plays = [
        play(
            tasks=tasks,
            environment=environment,
            vars={"metal_gpu_this_run": start["metal_gpu_run"]},
        )
    ]

    def prove(second: dict[str, Any], *options: str) -> Run:
        hosts = inventory({"gpu-1": {}, "gpu-2": second})
        return run(tmp_path, plays, hosts, f"-e@{tmp_path / 'given.json'}", *options)

    return prove


def rows(found: Run) -> dict[str, list[str]]:
    lines = [line.strip(' ",').split() for line in found.output.splitlines()]
    return {line[0]: line[-2:] for line in lines if line[1:2] == ["H100"]}


def test_the_image_runs_on_both(prove) -> None:
    found = prove({})
    assert found.code == 0, found.output
    assert rows(found) == {"gpu-1": ["8/8", "ok"], "gpu-2": ["8/8", "ok"]}
    assert "2 of 2 nodes ok, 16 GPUs, 0 changed" in found.output


@pytest.mark.parametrize(
    ("architecture", "code"), [("arm64", "IMAGE_PLATFORM_MISSING"), ("", "IMAGE_UNPULLABLE")]
)
def test_host_on_which_it_cannot_run_starts_nothing(prove, architecture: str, code: str) -> None:
    found = prove({"architecture": architecture})
    assert rows(found) == {"gpu-1": ["8/8", "ok"], "gpu-2": ["-", code]}
    named, started = (
        found.output.index(text) for text in (f"{code} gpu-2: ", "Compute on every GPU")
    )
    assert named < started
    assert found.output.count("skipping: [gpu-2]") == 1


def test_report_is_that_of_verify(prove, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    assert prove({}, "-e", f"verify_report={report}").code == 0
    hosts = json.loads(report.read_text())["hosts"]
    assert [hosts[name]["verdict"]["container"]["computed"] for name in hosts] == ["8/8", "8/8"]


def test_check_mode_starts_nothing(prove) -> None:
    found = prove({"architecture": "arm64"}, "--check")
    assert found.code == 0, found.output
    assert rows(found) == {"gpu-1": ["-", "ok"], "gpu-2": ["-", "IMAGE_PLATFORM_MISSING"]}


def test_playbook_shows_every_host_with_its_reason(tmp_path: Path) -> None:
    """One host is well, the NFS server of another is silent, and the third is away."""
    (tmp_path / "record.json").write_text(json.dumps({"changed": False, "raw": HEALTHY.raw}))
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    mount = {"server": "127.0.0.1", "export": "/srv", "path": "/nonexistent/data", "version": "3"}
    found = run(
        tmp_path,
        "metal.gpu.docker_hosts",
        inventory(
            {"gpu-1": {}, "gpu-2": {"nfs_mounts_mounts": [mount]}, "gpu-3": AWAY},
            ansible_connection="answering",
            ansible_pipelining=True,
            metal_gpu_skip_refused=True,
        ),
        "--tags=verify",
        ANSIBLE_CONNECTION_PLUGINS=str(ROOT / "tests/unit/support/connection_plugins"),
        ANSWER=str(tmp_path / "record.json"),
        ARCHITECTURE="amd64",
        SEEN=LIST,
        PATH=f"{program.parent}:{Path(sys.executable).parent}:/usr/bin:/bin",
    )
    assert found.code != 0
    table = [
        line.strip(' ",').split() for line in found.output.partition("host   GPU")[2].split("\n")
    ]
    assert table[1][-2:] == ["8/8", "ok"]
    assert table[2][0] == "gpu-2"
    assert {"NFS_SERVER_SILENT", "8/8"} <= {*table[2]}
    assert table[3] == ["gpu-3", *["-"] * 6, "NODE_UNREACHABLE"]
    assert "KUBELET" not in found.output


def test_nfs_server_that_is_silent_stops_the_role_before_a_change(tmp_path: Path) -> None:
    node = virgin(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=True)
    given = {"metal_gpu_observation_is_fresh": True, "metal_gpu_given": {"node": node}}
    (tmp_path / "given.json").write_text(json.dumps(given))
    mount = {"server": "127.0.0.1", "export": "/srv", "path": str(tmp_path / "data")}
    tasks: list[dict[str, Any]] = [
        {"name": "Take it", "ansible.builtin.set_fact": {"metal_gpu": "{{ metal_gpu_given }}"}},
        {"name": "Mount", "ansible.builtin.import_role": {"name": "metal.gpu.nfs_mounts"}},
    ]
    hosts = inventory({"gpu-1": {"nfs_mounts_mounts": [{**mount, "version": "3"}]}})
    found = run(tmp_path, [play(tasks=tasks)], hosts, f"-e@{tmp_path / 'given.json'}")
    assert found.code != 0
    assert "Install the NFS client (nfs-common is not installed)" in found.words
    assert "NFS_SERVER_SILENT gpu-1: the NFS server 127.0.0.1 does not answer" in found.words
    assert "changed=0" in found.output


@pytest.mark.parametrize(
    "address",
    [
        "https://reader:canary@mirror.example",
        "https://mirror.example/?token=canary",
        "mirror.example/canary",
    ],
)
def test_mirror_whose_address_would_show_a_login_is_refused(tmp_path: Path, address: str) -> None:
    folder = tmp_path / "air-gap"
    folder.mkdir()
    found = run(
        tmp_path,
        "metal.gpu.mirror_list",
        inventory({"gpu-1": {"metal_gpu_mirror": address, "metal_gpu_mirror_folder": str(folder)}}),
        "-vvv",
    )
    assert found.code != 0
    assert "metal_gpu_mirror must be an address without a login" in found.words
    assert "TASK [Observe" not in found.output
    assert "canary" not in found.output
    assert [*folder.iterdir()] == []


def test_list_for_a_mirror(tmp_path: Path) -> None:
    """The password of a repository is in no file."""
    node = virgin(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=False)
    folder = tmp_path / "air-gap"
    given = {
        "metal_gpu": {"node": node},
        "metal_gpu_observation_is_fresh": True,
        "docker_ce_repository_url": "https://reader:canary@docker.example/linux/debian",
        "docker_ce_cri_dockerd_checksum": f"sha256:{'c' * 64}",
    }
    found = run(
        tmp_path,
        "metal.gpu.mirror_list",
        inventory({"gpu-1": given}),
        f"-emetal_gpu_mirror_folder={folder}",
        "-vvv",
        "--diff",
    )
    assert found.code == 0, found.output
    assert "docker.example/linux/debian" in found.output
    assert "canary" not in found.output
    files = {path.name: path for path in folder.iterdir()}
    assert set(files) == {"list.yml", "variables.yml"}
    texts = {name: path.read_text() for name, path in files.items()}
    assert not any("canary" in text for text in texts.values())
    listed = yaml.safe_load(texts["list.yml"])
    assert list(listed) == ["repositories", "system", "files", "images", "variables"]
    # The file adds no host to a group, and variables of hosts win over those of any group.
    assert yaml.safe_load(texts["variables.yml"]) == {"all": {"hosts": listed["variables"]}}
    urls = listed["variables"]["gpu-1"]
    assert urls["docker_ce_repository_url"] == "https://mirror.example/docker.example/linux/debian"


@pytest.mark.parametrize(
    ("registry", "good"),
    [
        ("registry.example:5000", True),
        ("https://registry.example", False),
        ("reader:canary@registry.example", False),
    ],
)
def test_registry_of_a_mirror_can_be_another_host(
    tmp_path: Path, registry: str, *, good: bool
) -> None:
    node = virgin(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=False)
    given = {
        "metal_gpu": {"node": node},
        "metal_gpu_observation_is_fresh": True,
        "docker_ce_cri_dockerd_checksum": f"sha256:{'c' * 64}",
    }
    folder = tmp_path / "air-gap"
    found = run(
        tmp_path,
        "metal.gpu.mirror_list",
        inventory({"gpu-1": {**given, "metal_gpu_registry": registry}}),
        f"-emetal_gpu_mirror_folder={folder}",
    )
    assert (found.code == 0) == good
    if not good:
        assert "metal_gpu_registry must be a host" in found.words
        assert not folder.exists()
        return
    variables = yaml.safe_load((folder / "variables.yml").read_text())["all"]["hosts"]
    urls = variables["gpu-1"]
    assert urls["device_plugin_image"].startswith(f"{registry}/nvcr.io/")
    assert urls["docker_ce_repository_url"].startswith("https://mirror.example/")


def test_list_for_a_mirror_has_the_engine_that_docker_hosts_installs(tmp_path: Path) -> None:
    """Of two bare machines, the inventory says of one that it becomes a Docker host."""
    node = virgin(SYSTEMS[0], engines.DOCKER, CARDS[0], has_engine=False)
    node["kubelet"] |= {"installed": False, "endpoint": None}
    folder = tmp_path / "air-gap"
    given = {"metal_gpu": {"node": node}, "metal_gpu_observation_is_fresh": True}
    command = (
        "metal.gpu.mirror_list",
        inventory({"gpu-1": {**given, "metal_gpu_engine": "docker"}, "gpu-2": given}),
        f"-emetal_gpu_mirror_folder={folder}",
    )
    found = run(tmp_path, *command)
    assert found.code != 0
    assert "KUBELET_MISSING gpu-2: the kubelet is not installed" in found.words
    assert "KUBELET_MISSING gpu-1" not in found.words
    assert not folder.exists()  # a list without a host is not complete
    assert run(tmp_path, *command, "-emetal_gpu_hosts=gpu-1").code == 0
    listed = yaml.safe_load((folder / "list.yml").read_text())
    packages = {
        name: hosts for one in listed["repositories"] for name, hosts in one["packages"].items()
    }
    assert {name.partition("=")[0] for name in packages} >= {
        "docker-ce",
        "nvidia-container-toolkit",
    }
    assert all(hosts == ["gpu-1"] for hosts in packages.values())
    (urls,) = listed["variables"].values()
    assert "docker_ce_repository_url" in urls
    assert "containerd_repository_url" not in urls
    assert [name for name in urls if name.endswith("_image")] == ["verify_docker_image"]
