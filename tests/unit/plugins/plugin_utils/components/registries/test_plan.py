# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plans of the role registries on planted nodes, and what the tasks then do with the files."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import content, files
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    codes,
    merge,
    names,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import write
from ansible_collections.metal.gpu.tests.unit.support.registry_machine import (
    ADMIN,
    BASIC,
    CA,
    ENGINES,
    HUB,
    KEY,
    MIRROR,
    OF_ITSELF,
    OF_NVCR,
    SECRET,
    WANTED,
    Machine,
    Observe,
    of_containerd,
)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("has_files", [True, False])
def test_second_run_has_nothing_to_do_and_absent_restores_every_byte(
    machine: Callable[[str], Machine], engine: str, has_files: bool
) -> None:
    node, hosts = machine(engine), WANTED[engine]
    of_packages = ("containerd", "containers", "crio/crio.conf.d", "docker")
    of_packages += ("rancher/k3s", "rancher/rke2")
    for folder in (*(f"etc/{one}" for one in of_packages), "root", "var/lib/kubelet"):
        (node.root / folder).mkdir(parents=True)
    for path, text in (ADMIN[engine] if has_files else {}).items():
        write(node.root, path, text, 0o600)
    before = node.tree()
    planned = node.run(hosts)
    assert planned["steps"]
    assert names(node.plan(hosts)) == []
    changed = {path: one for path, one in node.tree().items() if before.get(path) != one}
    readable = [text for mode, text in changed.values() if mode & 0o44]
    assert not any(secret in text for text in readable for secret in (SECRET, BASIC))
    assert SECRET not in repr(planned)
    assert BASIC not in repr(planned) + repr(node.node())
    assert SECRET not in repr(node.node())
    node.run([], state="absent")
    assert node.tree() == before
    assert node.plan([], state="absent")["steps"] == []


@pytest.mark.parametrize("trust", [{}, {"ca": CA}], ids=["no CA", "CA"])
def test_folder_that_several_files_share_goes_with_the_last(
    machine: Callable[[str], Machine], trust: dict[str, str]
) -> None:
    """The first file made it, and the files go in the order of their names."""
    node = machine("containerd-set")
    (node.root / "etc/containerd").mkdir(parents=True)
    before = node.tree()
    urls = {"a.example": "http://m.example", "b.example": "https://m.example:5000"}
    hosts = [{"host": name, "mirrors": [{"url": url}]} for name, url in urls.items()]
    node.run(hosts)
    hosts[1] = {"host": "b.example", "mirrors": [{"url": urls["b.example"], **trust}]}
    node.run(hosts)
    node.run([], state="absent")
    assert node.tree() == before


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_longer_desired_goes_and_the_rest_stays(
    machine: Callable[[str], Machine], engine: str
) -> None:
    node, hosts = machine(engine), WANTED[engine]
    for path, text in ADMIN[engine].items():
        write(node.root, path, text, 0o600)
    node.run(hosts)
    node.run(hosts[1:])
    left = json.dumps(node.tree())
    assert "mirror.example" not in left
    assert "registry.example" in left
    assert names(node.plan(hosts[1:])) == []


def test_hosts_toml(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-2.4")
    last: dict[str, Any] = {"host": "*", "fallback": False}
    last["mirrors"] = [{**OF_NVCR["mirrors"][0], "url": f"{MIRROR}/v2/all/"}]
    node.run([OF_NVCR, OF_ITSELF, last])
    folder = "/etc/containerd/certs.d"
    assert tomllib.loads(node.text(f"{folder}/nvcr.io/hosts.toml")) == {
        "host": {
            f"{MIRROR}/v2/ngc": {
                "capabilities": ["pull", "resolve"],
                "ca": f"{folder}/mirror.example:5000/metal-gpu.crt",
                "header": {"Authorization": f"Basic {BASIC}"},
                "override_path": True,
            },
            "http://second.example": {"capabilities": ["pull", "resolve"]},
        }
    }
    trust: dict[str, Any] = {
        "ca": f"{folder}/registry.example/metal-gpu.crt",
        "client": [
            [f"{folder}/registry.example/metal-gpu.{end}" for end in ("cert", "key")],
        ],
    }
    asked = {"capabilities": ["pull", "resolve"], **trust}
    found = tomllib.loads(node.text(f"{folder}/registry.example/hosts.toml"))
    assert found == {**trust, "host": {"https://registry.example": asked}}
    trust = {
        "ca": f"{folder}/mirror.example:5000/metal-gpu.crt",
        "header": {"Authorization": f"Basic {BASIC}"},
        "override_path": True,
    }
    server = f"{MIRROR}/v2/all"
    asked = {"capabilities": ["pull", "resolve"], **trust}
    found = tomllib.loads(node.text(f"{folder}/_default/hosts.toml"))
    assert found == {"server": server, **trust, "host": {server: asked}}


def test_hosts_toml_has_hosts_because_containerd_1_reads_no_other(
    machine: Callable[[str], Machine],
) -> None:
    """The server is a host, too, and containerd asks it twice. Several mirrors need no such row."""
    node = machine("containerd-1.7")
    second = {"url": "http://second.example"}
    only = {"host": "docker.io", "fallback": False}
    node.run([{**HUB, **only}, {**HUB, "host": "ghcr.io"}, OF_ITSELF])
    texts = [node.text(f"/{one.relative_to(node.root)}") for one in node.root.rglob("hosts.toml")]
    assert [len(tomllib.loads(text)["host"]) for text in texts] == [1, 1, 1]
    node.run([{**only, "mirrors": [*HUB["mirrors"], second]}])
    found = tomllib.loads(node.text("/etc/containerd/certs.d/docker.io/hosts.toml"))
    assert (found["server"], [*found["host"]]) == ("http://second.example", [MIRROR])


def test_logins_of_containerd(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-2.4")
    node.run([OF_NVCR, OF_ITSELF])
    logins = json.loads(node.text("/var/lib/kubelet/config.json"))
    assert logins == {"auths": {"registry.example": {"auth": BASIC}}}


BOTH = ["/etc/containerd/certs.d", "/etc/docker/certs.d"]
OLD, NEW = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images"
CONFIG = "/etc/containerd/config.toml"


@pytest.mark.parametrize(
    ("version", "config", "folders", "expected"),
    [
        pytest.param("1.7.24", {"version": 2}, [], (CONFIG, OLD), id="1.7"),
        pytest.param("1.6.20", {"version": None}, [], (CONFIG, "cri"), id="1.6, version 1"),
        pytest.param("2.1.4", {"version": 3}, [], (CONFIG, NEW), id="2.1"),
        pytest.param(
            "2.1.4",
            {"version": 3, "imports": ["/etc/containerd/conf.d/*.toml"]},
            [],
            ("/etc/containerd/conf.d/98-metal-gpu-registries.toml", NEW),
            id="2.1, drop-ins",
        ),
        pytest.param("2.1.4", {"version": 2}, [], (CONFIG, OLD), id="2.1, version 2"),
        pytest.param("2.4.2", {"version": 3}, [], (CONFIG, NEW), id="2.4, two folders by default"),
        pytest.param(
            "2.4.2", {"version": 3}, BOTH, (CONFIG, NEW), id="2.4, two folders in the file"
        ),
        pytest.param("2.4.2", {"version": 3}, BOTH[:1], None, id="2.4, one folder"),
        pytest.param("1.7.24", {"version": 2}, BOTH, None, id="1.7, two folders"),
        pytest.param("1.7.24", {"version": 2}, ["/etc/containerd/certs.d"], None, id="set"),
    ],
)
def test_config_path_is_written_only_if_the_version_needs_it(
    tmp_path: Path,
    observe: Observe,
    version: str,
    config: dict[str, Any],
    folders: list[str],
    expected: tuple[str, str] | None,
) -> None:
    node = Machine(tmp_path, observe, "containerd-1.7")
    found = {"exists": True, "imports": [], "cri_tables": [], **config}
    engine = {"engines": {"containerd": {"config": found}}}
    node._node = merge(of_containerd(version, folders=folders), engine)
    planned = node.plan([OF_NVCR])
    edit = planned["data"]["config"]
    assert ("Restart containerd" in names(planned)) == (expected is not None)
    if expected is None:
        assert edit is None
    else:
        assert (edit["path"], [*edit["merge"]["plugins"]]) == (expected[0], [expected[1]])


def test_other_tool_that_writes_the_file_of_containerd_again_is_named(
    tmp_path: Path, observe: Observe
) -> None:
    node = Machine(tmp_path, observe, "containerd-1.7")
    config = {"exists": True, "imports": [], "cri_tables": [], "version": 2}
    engine = {"engines": {"containerd": {"config": config}}}
    node._node = merge(of_containerd("1.7.24", folders=[]), engine)
    for is_named in (False, True):
        write(node.root, CONFIG, "version = 2\n")
        planned = node.run([OF_NVCR])
        (reason,) = [one["reason"] for one in planned["steps"] if one["slug"] == files.CONFIG.slug]
        said = f"; something else has changed {CONFIG} since this role wrote it"
        assert (said in reason) is is_named


def test_files_of_docker(machine: Callable[[str], Machine]) -> None:
    node = machine("docker")
    write(node.root, "/etc/docker/daemon.json", ADMIN["docker"]["/etc/docker/daemon.json"])
    planned = node.run([HUB, {**OF_ITSELF, "host": "docker.io:443"}, OF_ITSELF])
    assert json.loads(node.text("/etc/docker/daemon.json"))["registry-mirrors"] == [
        "https://own.example/",
        MIRROR,
    ]
    for path in ("/root/.docker/config.json", "/var/lib/kubelet/config.json"):
        assert json.loads(node.text(path))["auths"]["registry.example"] == {"auth": BASIC}
    for folder in ("mirror.example:5000", "docker.io"):  # one for each image store of Docker
        assert CA.strip() in node.text(f"/etc/docker/certs.d/{folder}/metal-gpu.crt")
    assert KEY.strip() in node.text("/etc/docker/certs.d/registry.example/metal-gpu.key")
    assert "Reload Docker" in names(planned)


def test_files_of_crio(machine: Callable[[str], Machine]) -> None:
    node = machine("crio")
    of_hub = {**OF_NVCR["mirrors"][0], "url": MIRROR}
    of_hub = {"host": "docker.io", "fallback": False, "mirrors": [of_hub]}
    planned = node.run([OF_NVCR, OF_ITSELF, of_hub])
    found = tomllib.loads(node.text("/etc/containers/registries.conf.d/50-metal-gpu.conf"))
    assert found["registry"] == [
        {
            "prefix": "nvcr.io",
            "location": "nvcr.io",
            "mirror": [
                {"location": "mirror.example:5000/ngc"},
                {"location": "second.example", "insecure": True},
            ],
        },
        {"prefix": "docker.io", "location": "mirror.example:5000"},
    ]
    drop_in = tomllib.loads(node.text("/etc/crio/crio.conf.d/98-metal-gpu-registries.conf"))
    assert drop_in == {"crio": {"image": {"global_auth_file": "/etc/crio/metal-gpu-auth.json"}}}
    logins = json.loads(node.text("/etc/crio/metal-gpu-auth.json"))["auths"]
    assert logins == {
        "mirror.example:5000": {"auth": BASIC},
        "registry.example": {"auth": BASIC},
    }
    assert "Restart CRI-O" in names(planned)


@pytest.mark.parametrize(
    ("engine", "folder"),
    [
        ("containerd-2.4", "/etc/containerd/certs.d/registry-1.docker.io"),
        ("crio", "/etc/containers/certs.d/docker.io"),
        ("k3s", "/etc/rancher/k3s/certs.d/registry-1.docker.io"),
    ],
)
def test_certificate_of_docker_io(
    machine: Callable[[str], Machine], engine: str, folder: str
) -> None:
    """Engines know it by its name, or by its server."""
    planned = machine(engine).plan([{"host": "docker.io", "ca": CA}])
    assert planned["data"]["certificates"] == [f"{folder}/metal-gpu.crt"]


@pytest.mark.parametrize(
    ("engine", "place"), [("k3s", "/etc/rancher/k3s"), ("RKE2", "/etc/rancher/rke2")]
)
def test_file_of_a_distribution(machine: Callable[[str], Machine], engine: str, place: str) -> None:
    node, path = machine(engine), f"{place}/registries.yaml"
    write(node.root, path, ADMIN[engine][path], 0o600)
    planned = node.run([OF_NVCR, OF_ITSELF])
    found = yaml.safe_load(node.text(path))
    assert found["mirrors"]["nvcr.io"]["endpoint"] == [
        "https://own.example",
        f"{MIRROR}/v2/ngc",
        "http://second.example",
    ]
    assert found["configs"]["mirror.example:5000"]["auth"] == {
        "username": "me",
        "password": SECRET,
    }
    folder = f"{place}/certs.d/registry.example"
    assert found["configs"]["registry.example"]["tls"] == {
        "ca_file": f"{folder}/metal-gpu.crt",
        "cert_file": f"{folder}/metal-gpu.cert",
        "key_file": f"{folder}/metal-gpu.key",
    }
    assert "Restart the Kubernetes distribution" in names(planned)


def test_restart_of_k3s_is_the_admins_to_permit(machine: Callable[[str], Machine]) -> None:
    node = machine("k3s")
    assert codes(node.plan([OF_NVCR], restart_ok=False)) == ["REGISTRIES_RESTART"]
    node.run([OF_NVCR])
    planned = node.plan([], state="absent", restart_ok=False)
    assert [one["code"] for one in planned["notices"]] == ["REGISTRIES_RESTART_DUE"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("is_first", [True, False])
def test_mirror_that_is_named_twice_needs_its_login_once(
    machine: Callable[[str], Machine], engine: str, *, is_first: bool
) -> None:
    """The questions, the files and the engines agree, in either order."""
    login = {"host": MIRROR.removeprefix("https://"), "ca": CA, "username": "me", "password": "pw"}
    hosts = [login, {"host": "docker.io", "mirrors": [{"url": MIRROR}]}]
    hosts = hosts if is_first else [*reversed(hosts)]
    node = machine(engine)
    planned = node.run(hosts)
    found = content.questions(hosts, planned["data"]["target"])
    assert {one["url"] for one in found} == {f"{MIRROR}/v2/"}
    assert all(CA.strip() in str(one["ca"]) for one in found)
    # Docker has no login for mirrors, so it asks as nobody, too.
    users = {str(one["username"]) for one in found}
    assert users == ({"", "me"} if engine == "docker" else {"me"})
    if engine.startswith("containerd"):
        of_hub = tomllib.loads(node.text("/etc/containerd/certs.d/docker.io/hosts.toml"))
        assert {*of_hub["host"][MIRROR]} == {"capabilities", "ca", "header"}
    assert names(node.plan(hosts)) == []
