# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a real `ansible -vvvv` prints over its real ssh connection plugin.

Only the program `ssh` is a stand-in, which runs the command here: what the plugin prints comes
from the plugin.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COLLECTIONS = Path(__file__).parents[4] / ".ansible" / "collections"
KEYS = Path(__file__).parents[2] / "fixtures" / "keys"
SECRET = "hunter2-of-the-admin"
BEFORE = json.dumps({"registry-auth": SECRET}, indent=2) + "\n"


@pytest.fixture
def daemon_json(tmp_path):
    path = tmp_path / "etc" / "daemon.json"
    path.parent.mkdir()
    path.write_text(BEFORE)
    return path


@pytest.fixture
def ansible(tmp_path):
    """Run a module on a node behind ssh, and return all that is printed."""

    def run(module, args, *options, command='sh -c "$word"', variables=None):
        ssh = tmp_path / "ssh"
        ssh.write_text(f"#!/bin/sh\nfor word; do :; done\n{command}\n")
        ssh.chmod(0o755)
        settings = {
            "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
            "ANSIBLE_HOME": str(tmp_path / "home"),
            "ANSIBLE_LIBRARY": str(tmp_path / "library"),
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_SSH_EXECUTABLE": str(ssh),
        }
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ANSIBLE_")}
        python = f"ansible_python_interpreter={sys.executable}"
        command_line = [sys.executable, "-m", "ansible", "adhoc", "-vvvv", "-i", "node,", "all"]
        result = subprocess.run(
            [
                *(*command_line, "-e", python, "-e", json.dumps(variables or {})),
                *("-m", module, "-a", json.dumps(args), *options),
            ],
            env={**environment, **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return result.stdout + result.stderr

    return run


def is_shown(text, output):
    """Tell whether a text is in the output, also as a part of something in Base64."""
    encoded = (base64.b64encode(b"\0" * shift + text.encode())[4:-4] for shift in range(3))
    return text in output or any(part.decode() in output for part in encoded)


def test_the_secret_would_be_seen():
    assert is_shown(SECRET, f"x {SECRET}")
    for shift in range(3):
        assert is_shown(SECRET, base64.b64encode((" " * shift + BEFORE).encode()).decode())
    assert not is_shown(SECRET, base64.b64encode(b"something else of this length").decode())


def test_edited_files_are_not_printed(ansible, daemon_json, tmp_path):
    args = {"path": str(daemon_json), "history_dir": str(tmp_path / "state")}
    first = ansible("metal.gpu.config_document", {**args, "merge": {"debug": True}})
    assert '"changed": true' in first
    second = ansible("metal.gpu.config_document", {**args, "state": "absent"})
    assert daemon_json.read_text() == BEFORE
    assert [is_shown(SECRET, output) for output in (first, second)] == [False, False]
    assert "stdout and stderr censored due to no log" in first


def test_what_a_node_hands_over_is_not_printed(ansible):
    output = ansible("metal.gpu.node_info", {"device_users": False})
    assert '"gpu_node": {' in output
    assert "stdout and stderr censored due to no log" in output
    assert not is_shown('"texts": {', output)


def test_an_answer_that_is_cut_off_does_not_show_the_file(ansible, daemon_json, tmp_path):
    args = {"path": str(daemon_json), "history_dir": str(tmp_path / "state")}
    output = ansible(
        "metal.gpu.config_document",
        {**args, "merge": {"debug": True}},
        command='sh -c "$word" | sed "s/}$//"',
    )
    assert "characters of the module's result are not shown" in output
    assert daemon_json.read_text() == BEFORE
    assert not is_shown(SECRET, output)


def test_a_node_that_cannot_be_reached_is_explained(ansible):
    output = ansible(
        "metal.gpu.config_document",
        {"path": "/etc/docker/daemon.json", "state": "absent"},
        command="echo 'ssh: connect to host node port 22: No route to host' >&2; exit 255",
    )
    assert "UNREACHABLE" in output
    assert "connect to host node port 22: No route to host" in output


FETCH = f"E: Failed to fetch http://me:{SECRET}@mirror.example/InRelease  401  Unauthorized"
HERE = {
    "os": {"family": "debian", "version_id": "12"},
    "packages": {},
}


@pytest.fixture
def operate(ansible, tmp_path, monkeypatch):
    """Run a package operation on a node whose package managers print the password of a mirror."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("apt-get", "apt-cache", "apt-mark"):
        (programs / name).write_text(f"#!/bin/sh\necho '{FETCH}' >&2\nexit 100\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")

    def run(**args):
        variables = {"metal_gpu": {"node": HERE}, "metal_gpu_lock_timeout": 1}
        return ansible("metal.gpu.packages", args, variables=variables)

    return run


def test_error_of_a_package_manager_is_explained_without_credentials(operate):
    output = operate(operation="hold", names=["containerd.io"])
    assert "REPOSITORY_UNREACHABLE node: the repository http://mirror.example cannot" in output
    assert "http://***@mirror.example/InRelease" in output
    assert not is_shown(SECRET, output)


def test_address_of_a_package_is_shown_without_credentials(operate, tmp_path):
    """Also in the error, which no_log does not hide from ansible-core 2.19 on."""
    url = f"http://me:{SECRET}@127.0.0.1:9/cri-dockerd.deb"
    record = {"path": f"{tmp_path}/docker_ce.json"}
    output = operate(
        operation="install_file", url=url, checksum=f"sha256:{'0' * 64}", record=record
    )
    assert "http://***@127.0.0.1:9/cri-dockerd.deb" in output
    assert not is_shown(SECRET, output)


def test_address_of_a_key_is_shown_without_credentials(operate):
    repository = {
        "name": "x",
        "url": f"http://me:{SECRET}@127.0.0.1:9/",
        "suite": "/",
        "components": "",
        "key": f"http://me:{SECRET}@127.0.0.1:9/key",
        "fingerprint": "0" * 40,
        "new": False,
    }
    output = operate(operation="repository", repository=repository)
    assert "REPOSITORY_UNREACHABLE" in output
    assert not is_shown(SECRET, output)


PRINTS_THE_FILE = """\
#!/bin/sh
for word; do
    case $word in
        list) printf 'Available Packages\\nx.x86_64 1-1 metal-gpu-x\\n' && exit 0 ;;
        --setopt=reposdir=*) sort "${word#*reposdir=}"/metal-gpu-x.repo >&2 ;;
    esac
done
exit 1
"""


def test_login_of_a_repository_of_dnf_is_not_shown(ansible, tmp_path, monkeypatch):
    """Neither is the user, who can be a token. Check mode reads the planned repository."""
    dnf = tmp_path / "bin" / "dnf"
    dnf.parent.mkdir()
    dnf.write_text(PRINTS_THE_FILE)
    dnf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{dnf.parent}:{os.environ['PATH']}")
    pins = (KEYS / "fingerprints.txt").read_text()
    repository = {
        "name": "metal-gpu-x",
        "url": f"http://token-{SECRET}:{SECRET}%40@127.0.0.1:9/el9",
        "suite": "",
        "components": "",
        "key": (KEYS / "ed25519.asc").read_text(),
        "fingerprint": re.search(r"^ed25519 (\w+)", pins, re.M)[1],
        "signs": "packages",
        "key_file": "/etc/pki/rpm-gpg/RPM-GPG-KEY-metal-gpu-x",
        "new": True,
    }
    manager = {"interrupted": False, "unfinished": {}, "lock": None}
    node = {
        **HERE,
        "os": {"family": "redhat", "version_id": "9.6"},
        "kernel": {"release": "5.14.0-570.12.1.el9_6.x86_64"},
        "package_manager": manager,
        "package_sources": [],
    }
    output = ansible(
        "metal.gpu.packages",
        {"operation": "install", "names": ["x"], "repository": repository},
        "--check",
        variables={"metal_gpu": {"node": node}, "metal_gpu_lock_timeout": 1},
    )
    assert "the package manager failed: username=***" in output
    assert not is_shown(SECRET, output)
