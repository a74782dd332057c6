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

from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import (
    plan as registries,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    CHOICES,
    CRIO,
    DOCKER,
    VIRGIN,
    codes,
    merge,
    names,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import carry_out, on_disk, write
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs

PEM = "-----BEGIN CERTIFICATE-----\nMIIB{}\n-----END CERTIFICATE-----\n"
CA = PEM.format("ca")
CLIENT = PEM.format("client")
KEY = "-----BEGIN PRIVATE KEY-----\nMIIBkey\n-----END PRIVATE KEY-----\n"
SECRET = "hunter2-CANARY"
BASIC = "bWU6aHVudGVyMi1DQU5BUlk="
MIRROR = "https://mirror.example:5000"
OF_NVCR = {
    "host": "nvcr.io",
    "mirrors": [
        {"url": f"{MIRROR}/ngc", "ca": CA, "username": "me", "password": SECRET},
        {"url": "http://second.example"},
    ],
}
OF_ITSELF = {
    "host": "registry.example",
    "ca": CA,
    "client_certificate": CLIENT,
    "client_key": KEY,
    "username": "me",
    "password": SECRET,
}
HUB = {"host": "docker.io", "mirrors": [{"url": MIRROR, "ca": CA}]}
K3S = {
    "name": "k3s",
    "unit": "k3s.service",
    "is_managed": True,
    "detects_runtimes": True,
    "watched": None,
    "template": None,
    "template_lists_runtimes": True,
    "runtime_in_path": True,
    "started_after_runtime": True,
    "former_drop_ins": [],
    "host_containerd": False,
}
Observe = Callable[[Programs], dict[str, Any]]


def of_containerd(version: str, **registry: Any) -> dict[str, Any]:
    reads_lists = version.startswith("1.") or version.startswith("2.0")
    found = {"folders": [], "mirrors": [], "tls": [], "reads_lists": reads_lists, **registry}
    engine = {"version": version, "registry": found}
    return merge(VIRGIN, {"engines": {"containerd": engine}})


ENGINES = {
    "containerd-1.7": of_containerd("1.7.24"),
    "containerd-2.1": of_containerd("2.1.4"),
    "containerd-2.4": of_containerd("2.4.2"),
    "containerd-set": of_containerd("1.7.24", folders=["/etc/containerd/certs.d"]),
    "docker": DOCKER,
    "crio": CRIO,
    "k3s": merge(VIRGIN, {"engines": {"containerd": {"home": K3S}}}),
}


class Machine:
    """A planted node, on which plans are carried out."""

    def __init__(self, root: Path, observe: Observe, engine: str) -> None:
        self.root = root
        self._observe = observe
        self._node = ENGINES[engine]

    def node(self) -> dict[str, Any]:
        seen = self._observe(Programs({}))
        daemon_json = {"docker": {"config": {"path": "/etc/docker/daemon.json"}}}
        node = merge(self._node, {"engines": daemon_json})
        files = self.root.glob("etc/containerd/*.toml")
        if any("config_path" in file.read_text() for file in files):  # as containerd reports it
            registry = {"folders": ["/etc/containerd/certs.d"]}
            node = merge(node, {"engines": {"containerd": {"registry": registry}}})
        return {**node, "registries": seen["registries"], "ours": seen["ours"]}

    def plan(self, hosts: list[Any], **desired: Any) -> dict[str, Any]:
        wanted = {**CHOICES["registries"], "hosts": hosts, "restart_ok": True, **desired}
        found: dict[str, Any] = registries.plan(self.node(), wanted)
        return found

    def run(self, hosts: list[Any], **desired: Any) -> dict[str, Any]:
        planned = self.plan(hosts, **desired)
        assert planned["refusals"] == []
        carry_out(self.root, planned, hosts)
        return planned

    def text(self, path: str) -> str:
        return on_disk(self.root, path).read_text()

    def tree(self) -> dict[str, tuple[int, str]]:
        return {
            str(one.relative_to(self.root)): (
                one.stat().st_mode & 0o777,
                one.read_text() if one.is_file() else "",
            )
            for one in sorted(self.root.rglob("*"))
            if "var/lib/metal-gpu" not in str(one) and one.name not in ("var", "lib", "metal-gpu")
        }


@pytest.fixture
def machine(tmp_path: Path, observe: Observe) -> Callable[[str], Machine]:
    return lambda engine: Machine(tmp_path, observe, engine)


WANTED = {
    "docker": [HUB, OF_ITSELF],
    **{one: [OF_NVCR, OF_ITSELF] for one in ENGINES if one != "docker"},
}
# Files that an admin had before.
OF_ADMIN = {
    "/etc/containerd/config.toml": "version = 2 # mine\n",
    "/etc/containerd/certs.d/nvcr.io/hosts.toml": (
        '# mine\n[host."https://own.example"]\n  capabilities = ["pull"]\n'
    ),
    "/var/lib/kubelet/config.json": '{"auths": {"quay.io": {"auth": "eA=="}}}\n',
}
ADMIN = {
    "docker": {
        "/etc/docker/daemon.json": '{\n\t"registry-mirrors": ["https://own.example/"]\n}\n',
        "/root/.docker/config.json": '{"auths": {"quay.io": {"auth": "eA=="}}, "psFormat": "x"}',
    },
    "crio": {
        "/etc/containers/registries.conf": 'unqualified-search-registries = ["docker.io"]\n',
        "/etc/crio/crio.conf.d/10-crio.conf": "[crio.image]\n",
    },
    "k3s": {
        "/etc/rancher/k3s/registries.yaml": (
            "# ours\nmirrors:\n  nvcr.io:\n    endpoint:\n      - https://own.example\n"
        ),
    },
    **{one: OF_ADMIN for one in ENGINES if one.startswith("containerd")},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("has_files", [True, False])
def test_second_run_has_nothing_to_do_and_absent_restores_every_byte(
    machine: Callable[[str], Machine], engine: str, has_files: bool
) -> None:
    node, hosts = machine(engine), WANTED[engine]
    of_packages = ("containerd", "containers", "crio/crio.conf.d", "docker", "rancher/k3s")
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
    assert tomllib.loads(node.text(f"{folder}/registry.example/hosts.toml")) == {
        "ca": f"{folder}/registry.example/metal-gpu.crt",
        "client": [
            [f"{folder}/registry.example/metal-gpu.{end}" for end in ("cert", "key")],
        ],
    }
    assert tomllib.loads(node.text(f"{folder}/_default/hosts.toml")) == {
        "server": f"{MIRROR}/v2/all",
        "ca": f"{folder}/mirror.example:5000/metal-gpu.crt",
        "header": {"Authorization": f"Basic {BASIC}"},
        "override_path": True,
    }
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
    assert CA.strip() in node.text("/etc/docker/certs.d/mirror.example:5000/metal-gpu.crt")
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


def test_file_of_k3s(machine: Callable[[str], Machine]) -> None:
    node = machine("k3s")
    path = "/etc/rancher/k3s/registries.yaml"
    write(node.root, path, ADMIN["k3s"][path], 0o600)
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
    folder = "/etc/rancher/k3s/certs.d/registry.example"
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


@pytest.mark.parametrize(
    ("engine", "hosts", "expected"),
    [
        pytest.param("docker", [OF_NVCR], "docker.io only", id="docker, other registry"),
        pytest.param("docker", [{**HUB, "fallback": False}], "itself", id="docker, no fallback"),
        pytest.param(
            "docker",
            [{"host": "docker.io", "mirrors": [OF_NVCR["mirrors"][0]]}],
            "no login to a mirror",
            id="docker, login of a mirror",
        ),
        pytest.param(
            "docker",
            [{"host": "docker.io", "mirrors": [{"url": f"{MIRROR}/hub"}]}],
            "/hub",
            id="docker, path",
        ),
        pytest.param(
            "crio", [{"host": "*", "mirrors": [{"url": MIRROR}]}], "by their names", id="crio, all"
        ),
        pytest.param("k3s", [{**HUB, "fallback": False}], "for all", id="k3s, no fallback"),
    ],
)
def test_what_an_engine_does_not_have(
    machine: Callable[[str], Machine], engine: str, hosts: list[Any], expected: str
) -> None:
    planned = machine(engine).plan(hosts)
    assert "REGISTRY_UNSUPPORTED" in codes(planned)
    assert any(expected in one["message"] for one in planned["refusals"])


def test_containerd_that_has_mirrors_in_its_own_file(tmp_path: Path, observe: Observe) -> None:
    node = Machine(tmp_path, observe, "containerd-1.7")
    node._node = of_containerd("1.7.24", mirrors=["nvcr.io"], tls=["mirror.example"])
    (refusal,) = node.plan([OF_NVCR])["refusals"]
    assert refusal["code"] == "REGISTRY_CONFLICT"
    assert "nvcr.io, mirror.example (tls)" in refusal["message"]


def test_list_of_folders_of_the_admin_that_containerd_does_not_read(
    tmp_path: Path, observe: Observe
) -> None:
    node = Machine(tmp_path, observe, "containerd-2.4")
    node._node = of_containerd("2.4.2", folders=["/srv/a", "/srv/b"])
    (refusal,) = node.plan([OF_NVCR])["refusals"]
    assert refusal["code"] == "REGISTRY_PATHS_UNREAD"
    assert "/srv/a:/srv/b" in refusal["message"]
    node._node = of_containerd("2.4.2", folders=["/srv/a", "/srv/b"], reads_lists=True)
    planned = node.plan([OF_NVCR])
    assert planned["refusals"] == []
    assert planned["data"]["target"]["folders"] == {"nvcr.io": "/srv/a/nvcr.io"}


def test_k0s_reads_no_folder_until_somebody_tells_it(tmp_path: Path, observe: Observe) -> None:
    k0s = {**K3S, "name": "k0s", "unit": "k0sworker.service"}
    node = Machine(tmp_path, observe, "containerd-1.7")
    node._node = merge(of_containerd("1.7.24"), {"engines": {"containerd": {"home": k0s}}})
    assert codes(node.plan([{**OF_NVCR}])) == ["REGISTRY_PATH_UNSET"]
    assert codes(node.plan([OF_ITSELF])) == ["REGISTRY_UNSUPPORTED", "REGISTRY_PATH_UNSET"]


@pytest.mark.parametrize(
    ("engine", "path", "text", "mode", "code"),
    [
        pytest.param(
            "containerd-2.4",
            "/etc/containerd/certs.d/nvcr.io/hosts.toml",
            f'[host."{MIRROR}/v2/ngc"]\nca = "/mine"\n',
            0o600,
            "REGISTRY_TAKEN",
            id="another CA",
        ),
        pytest.param(
            "containerd-2.4",
            "/etc/containerd/certs.d/nvcr.io/hosts.toml",
            "",
            0o644,
            "REGISTRY_FILE_READABLE",
            id="readable",
        ),
        pytest.param(
            "containerd-2.4",
            "/etc/containerd/certs.d/nvcr.io/ca.crt",
            CA,
            0o644,
            "REGISTRY_FOLDER_TAKEN",
            id="certificates without hosts.toml",
        ),
        pytest.param(
            "containerd-2.4",
            "/var/lib/kubelet/config.json",
            '{"auths": {"registry.example": {"auth": "eA=="}}}',
            0o600,
            "REGISTRY_TAKEN",
            id="another login",
        ),
        pytest.param(
            "containerd-2.4",
            "/var/lib/kubelet/config.json",
            "{",
            0o600,
            "CONFIG_NOT_EDITABLE",
            id="invalid",
        ),
        pytest.param(
            "crio",
            "/etc/containers/registries.conf.d/01-mine.conf",
            '[[registry]]\nprefix = "nvcr.io"\nlocation = "x.example"\n',
            0o644,
            "REGISTRY_TAKEN",
            id="table of CRI-O",
        ),
        pytest.param(
            "docker",
            "/root/.docker/config.json",
            '{"credHelpers": {"registry.example": "pass"}}',
            0o600,
            "REGISTRY_LOGIN_HELPER",
            id="helper",
        ),
        pytest.param(
            "docker",
            "/root/.docker/config.json",
            '{"credsStore": "pass"}',
            0o600,
            "REGISTRY_LOGIN_HELPER",
            id="store",
        ),
    ],
)
def test_files_of_the_admin_that_are_in_the_way(
    machine: Callable[[str], Machine], engine: str, path: str, text: str, mode: int, code: str
) -> None:
    node = machine(engine)
    write(node.root, path, text, mode)
    hosts = [OF_ITSELF] if engine == "docker" else [OF_NVCR, OF_ITSELF]
    assert codes(node.plan(hosts)) == [code]


def test_value_that_the_admin_changes_is_theirs_from_then_on(
    machine: Callable[[str], Machine],
) -> None:
    node = machine("containerd-2.4")
    node.run([OF_NVCR])
    path = "/etc/containerd/certs.d/nvcr.io/hosts.toml"
    write(node.root, path, node.text(path).replace(BASIC, "eA=="), 0o600)
    assert codes(node.plan([OF_NVCR])) == ["REGISTRY_TAKEN"]


def test_another_ca_is_written(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-2.4")
    node.run([OF_NVCR])
    newer = {**OF_NVCR, "mirrors": [{**OF_NVCR["mirrors"][0], "ca": PEM.format("new")}]}
    planned = node.run([newer])
    assert "Write the certificates of registries" in names(planned)
    assert "MIIBnew" in node.text("/etc/containerd/certs.d/mirror.example:5000/metal-gpu.crt")


def test_engine_that_is_not_there_yet(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-2.4")
    node._node = merge(node._node, {"engines": {"containerd": {"installed": False}}})
    planned = node.run([OF_NVCR, OF_ITSELF])
    assert names(planned) == [
        "Write the certificates of registries",
        "Write the settings of registries",
        "Write the logins of registries",
    ]
    assert planned["data"]["asks"] is False


def test_run_that_stopped_before_the_restart(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-1.7")
    node.run([OF_NVCR])
    path = node.plan([OF_NVCR], state="absent")["data"]["restore"]
    (config,) = [one for one in path if one.startswith("/etc/containerd/") and "certs.d" not in one]
    unread = {"engines": {"containerd": {"changed_since_start": [config]}}}
    node._node = merge(node._node, unread)
    planned = node.plan([OF_NVCR])
    assert names(planned) == ["Restart containerd"]
    assert planned["data"]["change"] == {"path": config, "actor": "metal.gpu.registries"}


def test_mirrors_that_are_also_a_flag_of_docker(machine: Callable[[str], Machine]) -> None:
    node = machine("docker")
    flag = {"name": "--registry-mirror", "value": "x", "file": "/f", "variable": None}
    flags = {"flags": [{**flag, "effective": True}]}
    node._node = merge(node._node, {"engines": {"docker": flags}})
    assert codes(node.plan([HUB])) == ["DOCKER_FLAG_CLASH"]
    assert codes(node.plan([OF_ITSELF])) == []


def test_login_is_compared_and_not_shown(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-2.4")
    node.run([OF_NVCR])
    other = {**OF_NVCR, "mirrors": [{**OF_NVCR["mirrors"][0], "password": "other-CANARY"}]}
    planned = node.plan([other])
    assert "Write the logins of registries" in names(planned)
    assert "CANARY" not in repr(planned)
