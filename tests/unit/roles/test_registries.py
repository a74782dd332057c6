# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role registries on this machine, of which it changes temporary files only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import template
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret

from ansible_collections.metal.gpu.plugins.module_utils.read import registries
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    CRIO,
    DOCKER,
    VIRGIN,
    merge,
)
from ansible_collections.metal.gpu.tests.unit.support.distributions import HOME
from ansible_collections.metal.gpu.tests.unit.support.registry_server import Kind, make, serve

from .test_tasks import ROOT

CA = make("Private CA")
SERVER = make("registry", CA)
CLIENT = make("node", CA)
TRUST = {"ca": CA.pem, "client_certificate": CLIENT.pem, "client_key": CLIENT.key_pem}
LOGIN = {"username": "me", "password": "hunter2"}
BASIC = "bWU6aHVudGVyMg=="
DAEMON_JSON = {"engines": {"docker": {"config": {"path": "/nowhere/daemon.json"}}}}
NODES = {
    "containerd": merge(VIRGIN, {"engines": {"containerd": {"version": "2.4.2"}}}),
    "docker": DOCKER,
    "crio": CRIO,
    "k3s": merge(VIRGIN, {"engines": {"containerd": {"version": "2.2.0", "home": HOME}}}),
}


def run(
    folder: Path, engine: str, hosts: list[Mapping[str, Any]], *, vault: str = ""
) -> tuple[int, str]:
    """Return the exit code and what a run in check mode prints at -vvvv with differences.

    `vault`: a text of the hosts to encrypt by itself, as `ansible-vault encrypt_string` does.
    """
    node = merge(NODES[engine], DAEMON_JSON)
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars_files": ["vars.yml"],
        "vars": {
            "metal_gpu_observation_is_fresh": True,
            "ansible_python_interpreter": sys.executable,
        },
        "tasks": [
            {"ansible.builtin.set_fact": {"metal_gpu": {"node": "{{ planted }}"}}, "no_log": True},
            {"ansible.builtin.include_role": {"name": "metal.gpu.registries"}},
        ],
    }
    text = yaml.safe_dump(
        {"planted": node, "registries_hosts": hosts, "registries_restart_ok": True}
    )
    options = ["-vvvv", "--check", "--diff"]
    if vault:
        (folder / "key").write_text("key")
        options += ["--vault-password-file", str(folder / "key")]
        encrypted = VaultLib([("default", VaultSecret(b"key"))]).encrypt(vault).decode()
        text = text.replace(f": {vault}\n", f": !vault {json.dumps(encrypted)}\n")
        assert vault not in text
    (folder / "vars.yml").write_text(text)
    return run_play(folder, play, *options)


def run_play(folder: Path, play: Mapping[str, Any], *options: str) -> tuple[int, str]:
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        (
            *(str(program), "-i", "localhost,", "-c", "local", *options),
            str(folder / "play.yml"),
        ),
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".ansible" / "collections")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_everybody_can_read_certificates_and_root_the_key() -> None:
    """Podman of ordinary users fails at a certificate in this folder that it cannot read."""
    tasks = yaml.safe_load((ROOT / "roles/registries/tasks/present.yml").read_text())
    (task,) = (one for one in tasks if one["name"] == "Write the certificates of registries")
    templar = template.Templar(loader=DataLoader())
    mode = getattr(template, "trust_as_template", str)(task["ansible.builtin.blockinfile"]["mode"])
    modes = {}
    for name in registries.OWN:
        path = f"/etc/containers/certs.d/x.example:5000/{name}"
        templar.available_variables = {"registries_file": path}
        modes[name] = templar.template(mode)
    assert modes == {registries.CA: "0644", registries.CERTIFICATE: "0644", registries.KEY: "0600"}


@pytest.mark.parametrize("engine", NODES)
def test_secrets_are_used_and_not_printed(tmp_path: Path, engine: str) -> None:
    with serve(tmp_path, Kind(login=True, client_ca=CA), SERVER) as url:
        of_mirror = {"url": url, **TRUST, **({} if engine == "docker" else LOGIN)}
        of_itself = {"host": url.removeprefix("https://"), **TRUST, **LOGIN}
        hosts: list[Mapping[str, Any]] = [{"host": "docker.io", "mirrors": [of_mirror]}]
        code, printed = run(tmp_path, engine, [of_itself] if engine == "docker" else hosts)
    assert code == 0, printed
    assert "Write the logins of registries (" in printed
    assert "Write the certificates of registries (" in printed
    assert "hunter2" not in printed
    assert BASIC not in printed
    assert [line for line in CLIENT.key_pem.splitlines() if line in printed] == []


def test_password_that_is_encrypted_by_itself(tmp_path: Path) -> None:
    """Before ansible-core 2.19, it is no text until somebody asks for its text."""
    with serve(tmp_path, Kind(login=True), SERVER) as url:
        mirror = {"url": url, "ca": CA.pem, **LOGIN}
        hosts: list[Mapping[str, Any]] = [{"host": "docker.io", "mirrors": [mirror]}]
        code, printed = run(tmp_path, "containerd", hosts, vault=LOGIN["password"])
    assert code == 0, printed
    assert "Write the logins of registries (" in printed
    assert "hunter2" not in printed


def test_registry_that_wants_a_login_is_shown_because_pods_can_have_one(tmp_path: Path) -> None:
    with serve(tmp_path, Kind(login=True), SERVER) as url:
        hosts: list[Mapping[str, Any]] = [
            {"host": "docker.io", "mirrors": [{"url": url, "ca": CA.pem}]}
        ]
        code, printed = run(tmp_path, "containerd", hosts)
    assert code == 0, printed
    assert f"REGISTRY_LOGIN_MISSING localhost: {url} (for docker.io) needs a login" in printed


def test_what_does_not_work_is_told_before_a_change(tmp_path: Path) -> None:
    with serve(tmp_path, Kind(login=True), SERVER) as url:
        mirror = {"url": url, "ca": CA.pem, "username": "me", "password": "CANARY"}
        hosts: list[Mapping[str, Any]] = [{"host": "docker.io", "mirrors": [mirror]}]
        code, printed = run(tmp_path, "containerd", hosts)
    assert code != 0
    assert f"REGISTRY_LOGIN_REFUSED localhost: {url} (for docker.io) refuses the login" in printed
    assert "TASK [metal.gpu.registries : Write the logins of registries]" not in printed
    assert "CANARY" not in printed


BLOCK = "# {} managed by Ansible, role metal.gpu.registries\n"
OURS = f"{BLOCK.format('BEGIN')}{CA.pem}{BLOCK.format('END')}"


def plant(folder: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """Plant files of certificates, and return the data of a plan in which they go."""
    for name, text in files.items():
        (folder / name).mkdir()
        (folder / name / registries.CA).write_text(text)
    nothing = ("folders", "certificates", "restore", "settings", "logins", "replace")
    return {
        "asks": False,
        "change": None,
        "gone": [str(folder / name / registries.CA) for name in files],
        "empty": [str(folder / name) for name in files],
        **dict.fromkeys(nothing, ()),
    }


def carry_out(folder: Path, tasks: str, data: Mapping[str, Any], *steps: str) -> tuple[int, str]:
    plan = {"steps": [{"slug": slug} for slug in steps], "data": data}
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "vars": {
            "metal_gpu": {"plans": {"registries": plan}},
            "ansible_python_interpreter": sys.executable,
        },
        "tasks": [
            {"ansible.builtin.include_role": {"name": "metal.gpu.registries", "tasks_from": tasks}}
        ],
    }
    return run_play(folder, play)


@pytest.mark.parametrize("tasks", ["present.yml", "absent.yml"])
def test_lines_of_the_admin_in_a_file_of_certificates_stay(tmp_path: Path, tasks: str) -> None:
    data = plant(tmp_path, {"shared": f"{OURS}{SERVER.pem}", "own": OURS})
    code, printed = carry_out(tmp_path, tasks, data, "remove_certificates")
    assert code == 0, printed
    assert (tmp_path / "shared/metal-gpu.crt").read_text() == SERVER.pem
    assert not (tmp_path / "own").exists()


def test_engine_that_does_not_come_back_has_the_certificates_of_its_earlier_settings(
    tmp_path: Path,
) -> None:
    """Without a certificate that a hosts.toml names, containerd pulls nothing from the registry."""
    unit = {"unit": "metal-gpu-nowhere.service", "socket": str(tmp_path / "socket")}
    data = {**plant(tmp_path, {"earlier": OURS}), "distribution": unit}
    steps = ("remove_certificates", "restart_distribution")
    code, printed = carry_out(tmp_path, "present.yml", data, *steps)
    assert code != 0
    assert "TASK [metal.gpu.nvidia_container_runtime : Restart the Kubernetes dist" in printed
    assert (tmp_path / "earlier/metal-gpu.crt").read_text() == OURS
