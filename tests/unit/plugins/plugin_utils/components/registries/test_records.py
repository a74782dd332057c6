# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the code believes about registries, beside its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster.pull_causes import of_pull
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.probe import registry_request
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    containerd,
    registries,
    registry_answer,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.registries import (
    target,
    wanted,
)

ROOT = Path(__file__).parents[6]
RECORD: dict[str, Any] = yaml.safe_load((ROOT / "tests/recorded/registries.yml").read_text())


def row(program: str, what: str) -> dict[str, Any]:
    (found,) = (one for one in RECORD[program] if one["what"] == what)
    return dict(found)


def test_places() -> None:
    found = row("containerd", "folders that are read without config_path")
    assert found["value"] == [registries.CONTAINERD, registries.DOCKER] == target._BY_DEFAULT
    assert found["since"] == ".".join(map(str, (*target._READS_BY_DEFAULT, 0)))
    lists = row("containerd", "several folders in config_path")
    assert lists["since"] == ".".join(map(str, (*containerd._TRANSFERS, 0)))
    assert row("containerd", "table of config_path")["value"]["2"] == target._IMAGES
    tokens = row("containerd", "login in the header of a mirror that wants a token")
    assert tokens["since"] == ".".join(map(str, (*target.ASKS_FOR_TOKENS, 0)))
    assert row("k3s", "file")["value"] == registries.REGISTRIES_YAML
    assert row("k3s", "key of docker.io in configs")["value"] == wanted.DOCKER_HUB_HOST
    assert tuple(row("crio", "files of logins without global_auth_file")["value"]) == (
        registries.DEFAULT_LOGINS
    )
    assert row("kubelet", "file of logins")["value"] == registries.KUBELET_LOGIN
    first, here, home, last = row(
        "kubelet", "files of logins, of which the first one that exists counts"
    )["value"]
    assert first.replace("ROOT", "/var/lib/kubelet") == registries.KUBELET_LOGIN
    assert (here.removeprefix("."), last) == registries.LOGINS_OF_KUBELET
    assert home.replace("$HOME", "/root") == registries.DOCKER_LOGIN
    for program, folder in (("docker", registries.DOCKER), ("crio", registries.CONTAINERS)):
        value = row(program, "certificates")["value"]
        assert value["folder"] == folder
        names = zip(("ca", "certificate", "key"), registries.OWN, strict=True)
        assert all(name.endswith(value[kind]) for kind, name in names)


def test_redirects() -> None:
    found = row("go", "redirects")["value"]
    assert found["statuses"] == [*registry_request.REDIRECTS]
    assert found["most"] == registry_request.MOST_REDIRECTS


def test_names_of_folders() -> None:
    names = row("containerd", "names of a folder")["value"]
    expected = [one.replace("HOST", "x.example").replace("PORT", "5000") for one in names[:2]]
    assert registries.folder_names("x.example:5000") == expected
    assert registries.folder_names("*") == names[2:]
    assert registries.folder_names("x.example") == ["x.example"]


@pytest.mark.parametrize("one", RECORD["words"], ids=lambda one: f"{one['engine']}, {one['code']}")
def test_words_of_engines(one: dict[str, str]) -> None:
    text = f'failed to pull image "nvcr.io/nvidia/cuda:13": {one["text"].replace("…", "abc0")}'
    cause = of_pull(text, "nvcr.io/nvidia/cuda:13", "verify_compute_image")
    assert cause is not None
    assert cause.code == one["code"]


@pytest.mark.parametrize(
    "text",
    [
        "dial tcp 10.0.0.1:443: connect: connection refused",
        "nvcr.io/nvidia/cuda:13: not found",
        "ErrImageNeverPull",
        'Get "https://nvcr.io/v2/": proxyconnect tcp: 407 Proxy Authentication Required',
        'failed to fetch anonymous token: Get "https://a.example:4013/token": dial tcp: timeout',
        "failed to fetch oauth token: unexpected status from POST request to https://a.example/token:"
        " 429 Too Many Requests: id 4031",
    ],
)
def test_words_that_the_caller_quotes(text: str) -> None:
    assert of_pull(text, "nvcr.io/nvidia/cuda:13", "verify_compute_image") is None


@pytest.mark.parametrize(
    ("image", "code"),
    [
        ("nvidia/cudaa:13", None),
        ("busyboxx", None),
        ("docker.io/nvidia/cudaa:13", None),
        ("nvcr.io/nvidia/cuda:13", "REGISTRY_LOGIN_MISSING"),
        ("localhost/x", "REGISTRY_LOGIN_MISSING"),
        ("mirror:5000/x", "REGISTRY_LOGIN_MISSING"),
    ],
)
@pytest.mark.parametrize("text", [one["text"] for one in RECORD["words"] if one.get("hub")])
def test_docker_hub_answers_a_wrong_name_as_other_registries_a_missing_login(
    text: str, image: str, code: str | None
) -> None:
    cause = of_pull(text, image, "verify_smoke_image")
    assert (cause and cause.code) == code


def test_image_for_another_architecture_and_image_that_was_changed() -> None:
    words = {
        "IMAGE_PLATFORM_MISSING": "no match for platform in manifest: not found",
        "IMAGE_DIGEST_DIFFERS": "unexpected commit digest sha256:0, expected sha256:1",
    }
    for code, text in words.items():
        cause = of_pull(text, "nvcr.io/nvidia/cuda:13", "verify_compute_image")
        assert cause is not None
        told = finding(cause.code, "gpu-1", **cause.evidence)
        assert told["code"] == code
        assert "nvcr.io/nvidia/cuda:13" in told["message"]
        assert text in told["message"]


@pytest.mark.parametrize("one", RECORD["openssl"], ids=lambda one: one["text"])
def test_words_of_openssl(one: dict[str, str]) -> None:
    found = registry_answer.of_connection(f"certificate verify failed: {one['text']}")
    assert found.code == one["code"]


@pytest.mark.parametrize("one", RECORD["alerts"], ids=lambda one: one["text"])
def test_alerts_of_servers(one: dict[str, str]) -> None:
    name = one["text"].upper().replace(" ", "_")
    found = registry_answer.of_connection(f"[SSL: {name}] {one['text']} (_ssl.c:1000)")
    assert found.code == one["code"]
