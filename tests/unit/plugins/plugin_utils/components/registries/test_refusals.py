# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps the role registries from writing, and what a later run does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    codes,
    merge,
    names,
)
from ansible_collections.metal.gpu.tests.unit.support.carry_out import write
from ansible_collections.metal.gpu.tests.unit.support.registry_machine import (
    BASIC,
    CA,
    DAEMON_JSON,
    HUB,
    KEY,
    MIRROR,
    OF_ITSELF,
    OF_NVCR,
    PEM,
    WANTED,
    Machine,
)

PLAIN = {
    "host": "docker.io",
    "mirrors": [{"url": "http://m.example"}],
    "username": "me",
    "password": "pw",
}


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
        pytest.param(
            "docker",
            [
                {
                    **HUB,
                    "mirrors": [
                        {
                            "url": f"https://{name}",
                            "client_certificate": PEM.format(name),
                            "client_key": KEY,
                        }
                        for name in ("a", "b")
                    ],
                }
            ],
            "one client certificate",
            id="docker, two client certificates",
        ),
        pytest.param(
            "docker", [{"host": "docker.io", "ca": CA}], "overlay2", id="docker, CA of docker.io"
        ),
        pytest.param("k3s", [{**HUB, "fallback": False}], "for all", id="k3s, no fallback"),
        pytest.param("docker", [PLAIN], "to http://m.example,", id="docker, login without TLS"),
        pytest.param(
            "containerd-2.4", [PLAIN], "to http://m.example,", id="containerd, login without TLS"
        ),
    ],
)
def test_what_an_engine_does_not_have(
    machine: Callable[[str], Machine], engine: str, hosts: list[Any], expected: str
) -> None:
    planned = machine(engine).plan(hosts)
    assert "REGISTRY_UNSUPPORTED" in codes(planned)
    assert any(expected in one["message"] for one in planned["refusals"])


def test_login_that_no_mirror_without_tls_gets(machine: Callable[[str], Machine]) -> None:
    assert codes(machine("crio").plan([PLAIN])) == []
    node = machine("docker")
    node._node = merge(node._node, {"engines": {"docker": {"storage_driver": "overlayfs"}}})
    assert codes(node.plan([PLAIN])) == []


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
            "k3s",
            "/etc/rancher/k3s/registries.yaml",
            "mirrors:\n  nvcr.io:\n",
            0o600,
            "REGISTRY_TAKEN",
            id="nothing in place of a table",
        ),
        pytest.param(
            "k3s",
            "/etc/rancher/k3s/registries.yaml",
            "mirrors: {nvcr.io: {endpoint: https://mine.example}}\n",
            0o600,
            "REGISTRY_TAKEN",
            id="text in place of a list",
        ),
        pytest.param(
            "containerd-2.4",
            "/var/lib/kubelet/config.json",
            '{"auths": {"registry.example": {"auth": {"x": 1}}}}',
            0o600,
            "REGISTRY_TAKEN",
            id="table in place of a text",
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
            "crio",
            "/etc/containers/registries.conf",
            '[[registry]]\nprefix = "nvcr.io/nvidia"\nlocation = "x.example"\n',
            0o644,
            "REGISTRY_TAKEN",
            id="table of CRI-O for a part of the registry",
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


def test_tables_of_crio_for_other_registries(machine: Callable[[str], Machine]) -> None:
    node = machine("crio")
    names_of_others = ("nvcr.io.example/nvidia", "quay.io/nvcr.io")
    text = "".join(f'[[registry]]\nprefix = "{one}"\n' for one in names_of_others)
    write(node.root, "/etc/containers/registries.conf", text)
    assert codes(node.plan([OF_NVCR])) == []


def test_value_that_the_admin_changes_is_theirs_from_then_on(
    machine: Callable[[str], Machine],
) -> None:
    node = machine("containerd-2.4")
    node.run([OF_NVCR])
    path = "/etc/containerd/certs.d/nvcr.io/hosts.toml"
    write(node.root, path, node.text(path).replace(BASIC, "eA=="), 0o600)
    assert codes(node.plan([OF_NVCR])) == ["REGISTRY_TAKEN"]


def test_file_below_a_link_is_ours_too(machine: Callable[[str], Machine]) -> None:
    """A history is named after the real path of its file."""
    node = machine("containerd-2.4")
    folder = node.root / "data/kubelet"
    folder.mkdir(parents=True)
    link = node.root / "var/lib/kubelet"
    link.parent.mkdir(parents=True)
    link.symlink_to(folder)
    node.run([OF_ITSELF])
    assert names(node.plan([OF_ITSELF])) == []
    node.run([{**OF_ITSELF, "password": "new"}])
    planned = node.run([{"host": "registry.example", "ca": CA}])
    assert "/var/lib/kubelet/config.json" in planned["data"]["restore"]
    assert [*folder.iterdir()] == []


def test_another_ca_is_written(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-2.4")
    node.run([OF_NVCR])
    newer = {**OF_NVCR, "mirrors": [{**OF_NVCR["mirrors"][0], "ca": PEM.format("new")}]}
    planned = node.run([newer])
    assert "Write the certificates of registries" in names(planned)
    assert "MIIBnew" in node.text("/etc/containerd/certs.d/mirror.example:5000/metal-gpu.crt")


def test_lines_of_the_admin_in_a_file_of_ours_stay(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-2.4")
    node.run([OF_NVCR])
    path = "/etc/containerd/certs.d/mirror.example:5000/metal-gpu.crt"
    theirs = PEM.format("admin")
    write(node.root, path, node.text(path) + theirs, 0o600)
    assert names(node.plan([OF_NVCR])) == []
    node.run([], state="absent")
    assert node.text(path) == theirs
    assert node.plan([], state="absent")["steps"] == []


@pytest.mark.parametrize("engine", ["containerd-2.4", "docker", "crio"])
def test_engine_that_is_not_there_yet(machine: Callable[[str], Machine], engine: str) -> None:
    """Check mode announces what the run does, once the engine is there."""
    node, kind = machine(engine), engine.partition("-")[0]
    expected = names(node.plan(WANTED[engine]))
    node._node = merge(node._node, {"engines": {kind: {"installed": False, "running": False}}})
    planned = node.plan(WANTED[engine], engine=kind)
    assert names(planned) == expected
    assert planned["data"]["asks"] is False


@pytest.mark.parametrize("engine", ["docker", "containerd-2.4", "crio", "k3s"])
def test_key_that_others_can_read_is_written_again(
    machine: Callable[[str], Machine], engine: str
) -> None:
    node = machine(engine)
    node.run([OF_ITSELF])
    (key,) = node.root.rglob("metal-gpu.key")
    assert [oct(one.stat().st_mode & 0o777) for one in sorted(key.parent.glob("metal-gpu.*"))] == [
        "0o644",
        "0o644",
        "0o600",
    ]
    key.chmod(0o644)
    (step,) = node.plan([OF_ITSELF])["steps"]
    assert step["slug"] == "certificates"
    assert f"others can read /{key.relative_to(node.root)}" in step["reason"]
    node.run([OF_ITSELF])
    assert names(node.plan([OF_ITSELF])) == []


@pytest.mark.parametrize("is_edited", [False, True])
def test_run_that_stopped_before_docker_was_reloaded(
    machine: Callable[[str], Machine], is_edited: bool
) -> None:
    """`docker info` has the mirrors in use. An edit of somebody else may not be meant for now."""
    node = machine("docker")
    node.run([HUB])
    node.mirrors = []
    if is_edited:
        write(node.root, DAEMON_JSON, f'{{"debug": true, {node.text(DAEMON_JSON).strip()[1:]}')
    planned = node.plan([HUB])
    assert names(planned) == ([] if is_edited else ["Reload Docker"])
    due = [one["code"] for one in planned["notices"]]
    assert due == (["REGISTRIES_RESTART_DUE"] if is_edited else [])
    if not is_edited:
        assert f"does not use {MIRROR} yet" in planned["steps"][0]["reason"]
        assert planned["data"]["change"] == {"path": DAEMON_JSON, "actor": "metal.gpu.registries"}
    assert planned["data"]["expected"]["mirrors"] == [MIRROR]
    node.mirrors = [MIRROR]
    assert (names(node.plan([HUB])), node.plan([HUB])["notices"]) == ([], [])


@pytest.mark.parametrize(
    ("engine", "hosts"), [("docker", [HUB]), ("containerd-1.7", [OF_NVCR]), ("crio", [OF_NVCR])]
)
def test_engine_that_the_admin_has_stopped_stays_so(
    machine: Callable[[str], Machine], engine: str, hosts: list[Any]
) -> None:
    node = machine(engine)
    assert {"reload", "restart", "restart_crio"} & {
        one["slug"] for one in node.plan(hosts)["steps"]
    }
    name = engine.partition("-")[0]
    node._node = merge(node._node, {"engines": {name: {"running": False}}})
    planned = node.plan(hosts)
    assert planned["steps"]
    assert not {"reload", "restart", "restart_crio"} & {one["slug"] for one in planned["steps"]}


def test_file_of_containerd_that_the_editor_refuses(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-1.7")
    assert codes(node.plan([OF_NVCR])) == []
    outline = {"engines": {"containerd": {"config": {"outline": {"plugins": []}}}}}
    node._node = merge(node._node, outline)
    assert codes(node.plan([OF_NVCR])) == ["CONFIG_NOT_EDITABLE"]


def test_mirrors_that_are_also_a_flag_of_docker(machine: Callable[[str], Machine]) -> None:
    node = machine("docker")
    flag = {"name": "--registry-mirror", "value": "x", "file": "/f", "variable": None}
    flags = {"flags": [{**flag, "effective": True}]}
    node._node = merge(node._node, {"engines": {"docker": flags}})
    assert codes(node.plan([HUB])) == ["DOCKER_FLAG_CLASH"]
    assert codes(node.plan([OF_ITSELF])) == []


def test_docker_io_that_has_a_file_of_its_own(machine: Callable[[str], Machine]) -> None:
    node = machine("docker")
    write(node.root, "/etc/docker/certs.d/docker.io/hosts.toml", "", 0o644)
    assert codes(node.plan([HUB])) == ["REGISTRY_TAKEN"]


def test_login_is_compared_and_not_shown(machine: Callable[[str], Machine]) -> None:
    node = machine("containerd-2.4")
    node.run([OF_NVCR])
    other = {**OF_NVCR, "mirrors": [{**OF_NVCR["mirrors"][0], "password": "other-CANARY"}]}
    planned = node.plan([other])
    assert "Write the logins of registries" in names(planned)
    assert "CANARY" not in repr(planned)
