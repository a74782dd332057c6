# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in of k3s does with registries.yaml what the record says about k3s."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "labs/scenes/k3s/registries.py"
RECORD = {
    row["what"]: row["value"]
    for row in yaml.safe_load((TESTS / "recorded/registries.yml").read_text())["k3s"]
}
GENERATED = RECORD["what becomes of mirrors and tls"]
PASSWORD = " a\"b'c\\d$e#f:g%h é"
SETTINGS = f"""---
# of the admin
mirrors:
  docker.io:
    endpoint:
    - "https://mirror.example"
    - http://second.example:5000/v2/ngc
  '*':
    endpoint:
      - 'third.example'
  quay.io:
configs:
  "mirror.example":
    auth:
      username: me
      password: {yaml.dump(PASSWORD, default_style='"', allow_unicode=True).strip()}
    tls:
      ca_file: /etc/ca.crt
      cert_file: /etc/me.crt
      key_file: /etc/me.key
  registry-1.docker.io:
    tls:
      ca_file: /etc/hub.crt
"""
IMAGES = "io.containerd.cri.v1.images"


@pytest.fixture(scope="module")
def k3s() -> ModuleType:
    spec = importlib.util.spec_from_file_location("k3s_registries", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def generated(k3s: ModuleType, folder: Path, settings: str) -> tuple[Any, dict[str, Any]]:
    """Return the registry table of config.toml, and the content of hosts.toml files by folder."""
    config = tomllib.loads(k3s.apply(folder, settings))["plugins"][IMAGES]["registry"]
    files = (folder / "certs.d").glob("*/hosts.toml")
    return config, {file.parent.name: tomllib.loads(file.read_text()) for file in files}


def test_reads_yaml(k3s: ModuleType) -> None:
    assert k3s.parse(SETTINGS) == yaml.safe_load(SETTINGS)
    assert k3s.parse("# nothing\n") == {}


@pytest.mark.parametrize(
    "text",
    [
        "a: {b: c}\n",
        "a: [b]\n",
        "a: |\n  b\n",
        "a: &b c\n",
        "a\n",
        "a: b # c\n",
        "a:\n    b:\n  c:\n",
    ],
)
def test_ends_with_yaml_that_it_does_not_know(k3s: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match="stand-in"):
        k3s.parse(text)


def test_does_what_is_recorded(k3s: ModuleType, tmp_path: Path) -> None:
    config, files = generated(k3s, tmp_path, SETTINGS)
    tls = {"ca": ["/etc/ca.crt"], "client": [["/etc/me.crt", "/etc/me.key"]]}
    asked = {"capabilities": ["pull", "resolve"]}
    assert config == {
        "config_path": f"{tmp_path}/{GENERATED['folder']}",
        "configs": {"mirror.example": {"auth": {"username": "me", "password": PASSWORD}}},
    }
    hub = RECORD["key of docker.io in configs"]
    assert files == {
        "docker.io": {
            "server": f"https://{hub}/v2",
            "ca": ["/etc/hub.crt"],
            "host": {
                "https://mirror.example/v2": {**asked, **tls},
                "http://second.example:5000/v2/ngc": {**asked, "override_path": True},
            },
        },
        "_default": {"host": {"https://third.example/v2": asked}},
        "mirror.example": {"server": "https://mirror.example/v2", **tls, "host": {}},
        hub: {"server": f"https://{hub}/v2", "ca": ["/etc/hub.crt"], "host": {}},
    }


def test_removes_what_it_has_generated_and_nothing_else(k3s: ModuleType, tmp_path: Path) -> None:
    own = tmp_path / "certs.d/own.example"
    own.mkdir(parents=True)
    (own / "hosts.toml").write_text("[host]\n")
    generated(k3s, tmp_path, SETTINGS)
    assert (
        (tmp_path / "certs.d/docker.io/hosts.toml")
        .read_text()
        .startswith(f"{GENERATED['header']}\n")
    )
    config, files = generated(k3s, tmp_path, "")
    assert config == {"config_path": f"{tmp_path}/certs.d"}
    assert files == {"own.example": {"host": {}}}
