# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: the message says what is wrong, and nothing was changed on any node."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from metal_lab.pki import Authority

NODES = ("gpu-1", "gpu-2")


def fingerprint(laboratory: Any) -> list[str]:
    """Return what tells whether anything changed: files of /etc and /usr, packages, API objects."""
    commands = (
        "find /etc /usr /lib/modules /var/lib/metal-gpu -xdev -type f"
        " -printf '%p %s %T@\\n' 2>/dev/null | sort | sha256sum",
        "dpkg-query -W | sha256sum",
        "systemctl show --value -p ActiveEnterTimestampMonotonic containerd",
    )
    return [laboratory.host(node).run(command).stdout for node in NODES for command in commands] + [
        laboratory.kubectl("get", "daemonsets,runtimeclasses,pods", "-A", "-o", "name")
    ]


@pytest.fixture
def refused(laboratory: Any) -> Any:
    """Return a function that runs site.yml and returns its words of refusal on one line."""

    def run(*options: str, inventory: Path | None = None) -> str:
        before = fingerprint(laboratory)
        result = laboratory.playbook("metal.gpu.site", *options, inventory=inventory)
        assert result.returncode != 0, result.output[-4000:]
        assert fingerprint(laboratory) == before
        words, _recap = result.output.split("PLAY RECAP")
        return re.sub(r"\s+", " ", words)

    return run


@pytest.fixture
def fault(laboratory: Any) -> Iterator[Any]:
    """Return a function that breaks a node's hardware until the test ends."""
    broken: set[str] = set()

    def inject(node: str, *words: str) -> None:
        broken.add(node)
        laboratory.lab("fault", node, *words)

    yield inject
    for node in broken:
        laboratory.lab("fault", node, "restore")


def edited_inventory(laboratory: Any, path: Path, edit: Any) -> Path:
    inventory = yaml.safe_load(laboratory.inventory.read_text())
    edit(inventory["gpu_nodes"])
    path.write_text(yaml.safe_dump(inventory))
    return path


def edited_kubeconfig(laboratory: Any, path: Path, edit: Any) -> str:
    """Write a changed kubeconfig and return the option that makes site.yml use it."""
    content = yaml.safe_load((laboratory.folder / "kubeconfig").read_text())
    edit(content["clusters"][0]["cluster"], content["users"][0]["user"])
    path.write_text(yaml.safe_dump(content))
    return f"metal_gpu_kubeconfig={path}"


def test_no_host_in_the_group(laboratory, refused, tmp_path):
    empty = edited_inventory(laboratory, tmp_path / "empty.yml", lambda group: group.clear())
    assert "gpu_nodes" in refused(inventory=empty)


def test_node_without_gpu_and_wrong_count_are_one_list(laboratory, refused, fault):
    """Two nodes, two reasons, one list."""
    fault("gpu-2", "remove-all-gpus")
    text = refused("-e", "gpu_count=5")
    assert "NO_GPU" in text
    assert "GPU_COUNT_DIFFERS" in text
    assert text.index("gpu-1", text.index("refus")) > 0
    addresses = set(re.findall(r"0000:[0-9a-f]{2}:00\.0", text))
    assert len(addresses) == 4  # of gpu-1: what the declared 5 is compared with


def test_unreachable_node_is_in_the_list(laboratory, refused, tmp_path):
    def add(group: Any) -> None:
        group["hosts"]["gpu-9"] = {"ansible_host": "127.0.0.254", "ansible_port": 9}

    text = refused(inventory=edited_inventory(laboratory, tmp_path / "nine.yml", add))
    assert "gpu-9" in text
    assert "UNREACHABLE" in text


def test_unknown_operating_system(laboratory, refused, fault):
    fault("gpu-1", "os-unknown")
    assert "OS_UNSUPPORTED" in refused()


def test_api_server_unreachable(laboratory, refused, tmp_path):
    def elsewhere(cluster: Any, user: Any) -> None:
        cluster["server"] = cluster["server"].replace(":6443", ":1")

    text = refused("-e", edited_kubeconfig(laboratory, tmp_path / "kubeconfig", elsewhere))
    assert "unreachable" in text
    assert ":1" in text


def test_api_server_does_not_know_us(laboratory, refused, tmp_path):
    def nobody(cluster: Any, user: Any) -> None:
        user.clear()
        user["token"] = "of-another-cluster"

    text = refused("-e", edited_kubeconfig(laboratory, tmp_path / "kubeconfig", nobody))
    assert "401" in text


def test_api_server_of_another_authority(laboratory, refused, tmp_path):
    other = Authority().certificate

    def distrust(cluster: Any, user: Any) -> None:
        cluster["certificate-authority-data"] = base64.b64encode(other).decode()

    text = refused("-e", edited_kubeconfig(laboratory, tmp_path / "kubeconfig", distrust))
    assert "certificate" in text
    assert "unreachable" not in text


def test_invalid_toml_is_named_and_left_alone(laboratory, tmp_path):
    host = laboratory.host("gpu-1")
    path = "/etc/containerd/config.toml"
    host.check_output("cp --preserve %s /root/good.toml", path)
    laboratory.lab("fault", "gpu-1", "invalid-containerd-config")
    try:
        broken = host.file(path).content_string
        line = broken.count("\n") - 1
        before = fingerprint(laboratory)
        run = laboratory.playbook("metal.gpu.site")
        assert run.returncode != 0
        assert path in run.output
        assert f"line {line}" in run.output
        assert "column" in run.output
        assert host.file(path).content_string == broken
        assert fingerprint(laboratory) == before
    finally:
        host.check_output("mv /root/good.toml %s", path)


def rehearse(laboratory: Any, *options: str) -> str:
    """Rehearse site.yml while gpu-2 may not go on: gpu-1 does, and the run fails in the end."""
    run = laboratory.playbook("metal.gpu.site", "--check", *options)
    assert run.returncode != 0, run.output[-4000:]
    words, recap = run.output.split("PLAY RECAP")
    assert re.search(r"gpu-1\s+: ok=\d+\s+changed=[1-9]\d*\s+unreachable=0\s+failed=0", recap)
    assert re.search(r"gpu-2\s+: ok=\d+\s+changed=0\s+unreachable=0\s+failed=1", recap)
    return str(words)


def test_skip_refused_goes_on_with_the_others(laboratory, fault):
    fault("gpu-2", "remove-all-gpus")
    words = rehearse(laboratory, "-e", "metal_gpu_skip_refused=true")
    assert re.search(r"gpu-2 .* NO_GPU\b", words)  # in the table


def test_reboot_without_permission_stops_only_its_node(laboratory, fault):
    fault("gpu-2", "nouveau")
    words = rehearse(laboratory)
    assert "nvidia_driver_reboot_ok is not set" in words
    assert re.search(r"gpu-2 .* NOUVEAU_LOADED\b", words)
