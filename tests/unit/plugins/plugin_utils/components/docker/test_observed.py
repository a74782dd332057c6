# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe.collect import STATE
from ansible_collections.metal.gpu.plugins.module_utils.read import docker
from ansible_collections.metal.gpu.tests.unit.support.observing import (
    IN_THE_FUTURE,
    active_since,
)
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import (
    parse_scene,
    plant,
    recording,
)

ROOT = Path(__file__).parents[6]
RECORDED = yaml.safe_load((ROOT / "tests/recorded/docker_daemon.yml").read_text())


@pytest.mark.parametrize(
    ("info", "text", "expected"),
    [
        pytest.param("info-20.10.24", "{}", (True, "runc", "docker info"), id="running"),
        pytest.param(
            "info-no-engine",
            '{"default-runtime": "nvidia"}',
            (None, "nvidia", "/etc/docker/daemon.json"),
            id="stopped",
        ),
        pytest.param("info-no-engine", None, (None, "runc", None), id="no-file"),
        pytest.param("info-no-engine", "{", (None, "runc", None), id="invalid-file"),
    ],
)
def test_docker_is_asked_or_its_file_is_read(observe, tmp_path, info, text, expected):
    plant(tmp_path, {} if text is None else {"/etc/docker/daemon.json": text})
    programs = Programs(
        {
            "dockerd": (0, "Docker version 20.10.24+dfsg1, build 5d6db84\n", ""),
            "docker info": (0, recording(f"docker/{info}.txt"), ""),
            "docker": (0, "", ""),
        }
    )
    found = observe(programs)["engines"]["docker"]
    assert found["version"] == "20.10.24"
    assert (found["running"], found["default_runtime"], found["config"]["source"]) == expected


def test_a_docker_node(observe, tmp_path):
    plant(tmp_path, parse_scene(recording("nodes/docker.txt")))
    script = "/var/lib/docker/nuke-graph-directory.sh"
    plant(tmp_path, dict.fromkeys(("/run/user/1000/docker.sock", "/snap/bin/docker", script), ""))
    programs = Programs(
        {
            "systemctl show": (0, recording("systemd/show-docker.txt"), ""),
            "dpkg-query": (0, "nvidia-docker\t1.0.1-1\tinstalled\tinstall\tamd64\n", ""),
            "dockerd": (0, "Docker version 20.10.24+dfsg1, build 5d6db84\n", ""),
            "docker info": (0, recording("docker/info-20.10.24.txt"), ""),
            "docker ps": (0, recording("docker/ps-20.10.24.txt"), ""),
            "docker inspect": (0, recording("docker/host-config-20.10.24.txt"), ""),
            "docker volume": (0, "nvidia_driver_390.25\n", ""),
            "getent group docker": (0, "docker:x:103:alice,bob\n", ""),
            "cri-dockerd": (0, "cri-dockerd 0.4.3 (HEAD)\n", ""),
        }
    )
    found = observe(programs)["engines"]["docker"]
    unit, defaults = "/usr/lib/systemd/system/docker.service", "/etc/default/docker"
    assert (found["version"], found["server_version"]) == ("20.10.24", "20.10.24")
    assert (found["enabled"], found["needs_reload"]) == (True, True)
    assert found["program"] == {"path": "/usr/sbin/dockerd", "file": unit}
    assert [(flag["name"], flag["value"], flag["file"]) for flag in found["flags"]] == [
        ("-H", "fd://", unit),
        ("--containerd", "/run/containerd/containerd.sock", unit),
        ("--log-level", "***", defaults),
    ]
    assert found["config"]["settings"] == ["log-opts", "data-root", "live-restore", "runtimes"]
    assert found["config"]["runtimes"] == {"quiet": {"type": None, "binary": "/usr/bin/runc"}}
    assert (found["live_restore"], found["data_root"]) == (True, "/srv/docker")
    assert [(one["name"], one["of_pod"], one["ephemeral"]) for one in found["containers"]] == [
        ("admin-service", False, False),
        ("trainer", False, True),
        ("k8s_POD_busy_default_5c4fc37b-d6cf-4b6c-8a60-e2760aa38afa_0", True, False),
    ]
    assert [one["gpus_by_hook"] for one in found["containers"]] == [False, True, False]
    assert found["made_with"] == {"runc": ["admin-service"], "nvidia": ["trainer"]}
    assert [one["name"] for one in found["containers"] if one["noted"]] == ["admin-service"]
    assert (found["group"], found["snap"]) == (["alice", "bob"], ["/snap/bin/docker"])
    assert found["rootless"] == ["/run/user/1000/docker.sock"]
    assert [one["name"] for one in found["interrupted"]] == ["digits"]
    assert found["purge_script"] == script
    assert found["cri_dockerd"] == {
        "installed": True,
        "version": "0.4.3",
        "running": True,
        "enabled": True,
        "socket": "/run/cri-dockerd.sock",
    }
    assert found["v1"]["volumes"] == ["nvidia_driver_390.25"]
    assert [one["name"] for one in found["v1"]["containers"]] == ["digits"]
    (asked,) = [line for line in programs.asked if "inspect" in line]
    assert len(re.findall(r"[0-9a-f]{64}", asked)) == 3  # not the pod's


@pytest.mark.parametrize(
    ("text", "keys", "obstacle"),
    [
        pytest.param('\ufeff{"debug": true}', ["debug"], None, id="byte-order-mark"),
        pytest.param(
            '{"debug": true,\n "debug": false}',
            ["debug"],
            '/etc/docker/daemon.json, line 2, column 2: key "debug" appears twice',
            id="twice",
        ),
    ],
)
def test_what_docker_reads_is_no_error(observe, tmp_path, text, keys, obstacle):
    plant(tmp_path, {"/etc/docker/daemon.json": text})
    config = observe(Programs({}))["engines"]["docker"]["config"]
    assert (config["settings"], config["error"], config["obstacle"]) == (keys, None, obstacle)


@pytest.mark.parametrize(("started_s", "knows"), [(1, False), (IN_THE_FUTURE, True)])
def test_a_docker_that_started_before_the_toolkit_came(observe, tmp_path, started_s, knows):
    hook = "/usr/bin/nvidia-container-runtime-hook"
    plant(tmp_path, {hook: ""})
    os.utime(tmp_path / hook[1:], times=(0, 0))  # of its making, which is no matter
    node = observe(Programs({"systemctl show": (0, active_since("docker", started_s), "")}))
    assert node["engines"]["docker"]["changed_since_start"] == ([] if knows else [hook])


def test_docker_with_an_invalid_file(observe, tmp_path):
    plant(tmp_path, {"/etc/docker/daemon.json": '{"a": 1'})
    error = observe(Programs({}))["engines"]["docker"]["config"]["error"]
    assert error.startswith("/etc/docker/daemon.json, line 1, column 8: ")


def test_a_list_of_interrupted_containers_that_does_not_parse(observe, tmp_path):
    path = "/var/lib/metal-gpu/docker-containers.json"
    plant(tmp_path, {path: '{"a": '})
    error = observe(Programs({}))["engines"]["docker"]["record_error"]
    assert error.startswith(f"{path}, line 1, column 7: ")


@pytest.mark.parametrize(
    ("version", "mark", "words"),
    [
        pytest.param(
            "20.10.24", b"\xef\xbb\xbf", "a byte order mark, which Docker 20.10.24", id="old"
        ),
        pytest.param("23.0.0", b"\xef\xbb\xbf", None, id="from 23.0 on"),
        pytest.param("29.8.1", b"", None, id="none"),
    ],
)
def test_byte_order_mark_by_version(observe, tmp_path, version, mark, words):
    plant(tmp_path, {"/etc/docker/daemon.json": "", "/usr/bin/dockerd": ""})
    (tmp_path / "etc/docker/daemon.json").write_bytes(mark + b'{"debug": true}')
    answer = (0, f"Docker version {version}, build 1", "")
    config = observe(Programs({"dockerd --version": answer}))["engines"]["docker"]["config"]
    assert (words in config["error"]) if words else (config["error"] is None)
    assert config["settings"] == ["debug"]


def test_utf_16_is_named_with_the_way_out(observe, tmp_path):
    """Docker reads it from 23.0 on."""
    plant(tmp_path, {"/etc/docker/daemon.json": ""})
    (tmp_path / "etc/docker/daemon.json").write_bytes('{"debug": true}'.encode("utf-16"))
    error = observe(Programs({}))["engines"]["docker"]["config"]["error"]
    assert "is in UTF-16" in error
    assert "iconv -f UTF-16 -t UTF-8 /etc/docker/daemon.json" in error


def test_values_of_the_file_are_not_shown(observe, tmp_path):
    """They can be secrets: two equal ones have the same fingerprint."""
    proxy = "http://user:secret@proxy"
    text = f'{{"proxies": {{"http-proxy": "{proxy}", "https-proxy": "{proxy}"}}, "labels": []}}'
    plant(tmp_path, {"/etc/docker/daemon.json": text})
    values = observe(Programs({}))["engines"]["docker"]["config"]["fingerprints"]
    assert [*values] == ["proxies/http-proxy", "proxies/https-proxy", "labels"]
    first, second, other = values.values()
    assert first == second != other
    assert "secret" not in str(values)


@pytest.mark.parametrize("name", ["http-proxy.conf", "metal-gpu-proxy.env"])
def test_proxy_of_the_admin(observe, tmp_path, name):
    """It is theirs in a file of theirs, and beside our block."""
    folder, mark = "/etc/systemd/system/docker.service.d", "managed by Ansible, role metal.gpu"
    block = f"# BEGIN {mark}.docker_ce\nHTTP_PROXY=a\n# END {mark}.docker_ce\n"
    unit = f"[Service]\nEnvironmentFile=-{folder}/metal-gpu-proxy.env\n"
    is_theirs = name.endswith(".conf")
    files = {
        "/lib/systemd/system/docker.service": "[Service]\nExecStart=/usr/bin/dockerd\n",
        f"{folder}/metal-gpu-proxy.conf": unit,
        f"{folder}/metal-gpu-proxy.env": block + ("" if is_theirs else "NO_PROXY=b\n"),
    }
    if is_theirs:
        files[f"{folder}/{name}"] = "[Service]\nEnvironment=NO_PROXY=b\n"
    plant(tmp_path, files)
    found = observe(Programs({}))["engines"]["docker"]["proxy"]
    assert {key: (one["file"], one["ours"]) for key, one in found.items()} == {
        "HTTP_PROXY": (f"{folder}/metal-gpu-proxy.env", True),
        "NO_PROXY": (f"{folder}/{name}", False),
    }


@pytest.mark.parametrize(("version", "expected"), [("29.1.0", False), ("29.2.0", True)])
def test_cdi_hook_that_came_after_the_start(observe, tmp_path, version, expected):
    hook = "/usr/bin/nvidia-cdi-hook"
    plant(tmp_path, {hook: "", "/usr/bin/dockerd": ""})
    answers = {
        "systemctl show": (0, active_since("docker", 1), ""),
        "dockerd --version": (0, f"Docker version {version}, build 1", ""),
    }
    found = observe(Programs(answers))["engines"]["docker"]["changed_since_start"]
    assert found == ([hook] if expected else [])


def requested(driver: str, *capabilities: str, devices: list[str] | None = None) -> str:
    wanted = {"Driver": driver, "Count": -1, "DeviceIDs": devices}
    return json.dumps([{**wanted, "Capabilities": [[*capabilities]]}])


CDI_HOOK = "/usr/bin/nvidia-cdi-hook"
SPECIFICATION = "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices: [{name: all}]\n"


@pytest.mark.parametrize(
    ("version", "requests", "programs", "expected"),
    [
        pytest.param("29.1.0", requested("", "gpu"), [CDI_HOOK], True, id="by the hook"),
        pytest.param("29.1.0", requested("nvidia", "gpu"), [], True, id="by name, as compose does"),
        pytest.param("29.2.0", requested("", "gpu"), [CDI_HOOK], False, id="by CDI"),
        pytest.param("29.2.0", requested("", "gpu"), [], True, id="without the program for CDI"),
        pytest.param(
            "29.2.0", requested("nvidia.runtime-hook"), [CDI_HOOK], True, id="by the hook's name"
        ),
        pytest.param("29.2.0", requested("nvidia.cdi"), [], False, id="by the name of CDI"),
        pytest.param("29.2.0", requested("cdi"), [], False, id="a device of CDI"),
        pytest.param("29.1.0", requested("amd", "gpu"), [], False, id="of another vendor"),
        pytest.param("29.1.0", requested("", "tpu"), [], False, id="of another kind"),
        pytest.param("29.1.0", "null", [], False, id="none"),
        pytest.param("29.1.0", "[{}, 1]", [], False, id="odd"),
        pytest.param("29.1.0", "<no value>", [], False, id="unknown to this Docker"),
    ],
)
def test_containers_that_asked_for_gpus(observe, tmp_path, version, requests, programs, expected):
    files = dict.fromkeys((*programs, "/usr/bin/dockerd", "/usr/bin/docker"), "")
    plant(tmp_path, {**files, "/etc/cdi/nvidia.yaml": SPECIFICATION})
    (found,) = observe(Programs(answering(version, requests)))["engines"]["docker"]["containers"]
    assert found["gpus_by_hook"] is expected


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        (requested("", "gpu"), True),
        (requested("nvidia.cdi"), True),
        (requested("cdi", devices=["nvidia.com/gpu=0"]), True),
        (requested("cdi", devices=["amd.com/gpu=0"]), False),
        ("null", False),
    ],
)
def test_containers_that_have_gpus(observe, tmp_path, requests, expected):
    """However they get them: a reboot ends them."""
    plant(tmp_path, {"/usr/bin/dockerd": "", "/usr/bin/docker": ""})
    (found,) = observe(Programs(answering("29.2.0", requests)))["engines"]["docker"]["containers"]
    assert found["gpus"] is expected


def answering(version: str, requests: str, **info: object) -> dict[str, tuple[int, str, str]]:
    """Return what the programs say of a Docker with one container."""
    told = {"ServerVersion": version, "CDISpecDirs": ["/etc/cdi"], **info}
    return {
        "systemctl show": (0, active_since("docker", IN_THE_FUTURE), ""),
        "dockerd --version": (0, f"Docker version {version}, build 1", ""),
        "docker info": (0, json.dumps(told), ""),
        "docker ps": (0, "1\ttrainer\tUp 2 hours\tvolume\n", ""),
        "docker inspect": (0, f"1\tfalse\trunc\t{requests}\n", ""),
        "docker volume": (0, "volume\n", ""),
        "docker": (0, "", ""),
    }


@pytest.mark.parametrize(
    ("files", "info", "started_s", "expected"),
    [
        pytest.param({"/etc/cdi/nvidia.yaml": SPECIFICATION}, {}, IN_THE_FUTURE, False, id="CDI"),
        pytest.param({}, {}, IN_THE_FUTURE, True, id="no specification"),
        pytest.param(
            {"/etc/cdi/nvidia.yaml": "{"}, {}, IN_THE_FUTURE, True, id="an invalid specification"
        ),
        pytest.param(
            {"/etc/cdi/a.yaml": SPECIFICATION, "/etc/cdi/b.yaml": SPECIFICATION}, {},
            IN_THE_FUTURE, True, id="two specifications for the same device",
        ),
        pytest.param(
            {"/etc/cdi/other.yaml": SPECIFICATION.replace("nvidia.com", "amd.com")}, {},
            IN_THE_FUTURE, True, id="a specification of another vendor",
        ),
        pytest.param(
            {"/etc/cdi/nvidia.yaml": SPECIFICATION}, {"CDISpecDirs": []}, IN_THE_FUTURE, True,
            id="CDI is off",
        ),
        pytest.param(
            {"/etc/cdi/nvidia.yaml": SPECIFICATION}, {}, 1, True, id="the program came later"
        ),
    ],
)  # fmt: skip
def test_containers_of_a_docker_that_may_use_cdi(
    observe, tmp_path, files, info, started_s, expected
):
    programs = dict.fromkeys((CDI_HOOK, "/usr/bin/dockerd", "/usr/bin/docker"), "")
    plant(tmp_path, {**programs, **files})
    answers = answering("29.8.1", requested("", "gpu"), **info)
    answers["systemctl show"] = (0, active_since("docker", started_s), "")
    (found,) = observe(Programs(answers))["engines"]["docker"]["containers"]
    assert found["gpus_by_hook"] is expected


def test_containers_of_a_users_docker_are_none_of_the_systems(observe, tmp_path):
    record = {"/var/lib/metal-gpu/docker-containers.json": '{"1": "trainer", "2": "digits"}'}
    plant(tmp_path, {**dict.fromkeys(("/usr/bin/dockerd", "/usr/bin/docker"), ""), **record})
    answers = answering("29.8.1", requested("", "gpu"), SecurityOptions=["name=rootless"])
    answers["dpkg-query"] = (0, "nvidia-docker\t1.0.1-1\tinstalled\tinstall\tamd64\n", "")
    found = observe(Programs(answers))["engines"]["docker"]
    assert (found["answers"], found["containers"], found["made_with"]) == (False, [], {})
    assert found["v1"] == {"unit": False, "volumes": [], "containers": []}
    assert [one["name"] for one in found["interrupted"]] == ["trainer", "digits"]


def test_drivers_are_those_of_the_record() -> None:
    record = yaml.safe_load((ROOT / "tests/recorded/docker_daemon.yml").read_text())
    rows = {row["what"]: row["value"] for row in record["gpus"]["rows"]}
    assert [*docker.GPU_DRIVERS] == rows["drivers for NVIDIA's GPUs by name"]
    assert {*rows["capabilities of the driver nvidia"]} == docker._GPU_CAPABILITIES
    assert rows["order of the driver nvidia"] == [docker.CDI_DRIVER, docker.HOOK_DRIVER]
    rows = {row["what"]: row["value"] for row in record["reload"]["rows"]}
    assert rows["property that a start and a reload by systemd change"] in STATE
    assert rows["property that only a start changes"] in STATE


@pytest.mark.parametrize("row", RECORDED["names"], ids=lambda row: row["file"])
def test_names_are_read_as_docker_matches_them(observe, tmp_path, row):
    plant(tmp_path, {"/etc/docker/daemon.json": row["file"]})
    answer = (0, "Docker version 28.2.2, build 1234567\n", "")
    config = observe(Programs({"dockerd --version": answer}))["engines"]["docker"]["config"]
    assert (config["error"] or "").endswith(row.get("rejected", ""))
    assert bool(config["error"]) is ("rejected" in row)
    assert config["runtimes"].get("nvidia", {}).get("binary") == row.get("path")


def test_folder_in_the_place_of_the_file(observe, tmp_path):
    """Docker makes one for a bind mount of a file that does not exist."""
    (tmp_path / "etc/docker/daemon.json").mkdir(parents=True)
    config = observe(Programs({}))["engines"]["docker"]["config"]
    assert (config["exists"], config["error"]) == (
        None,
        "/etc/docker/daemon.json: Is a directory",
    )
