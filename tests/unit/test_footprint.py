# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The footprint, which a teardown has to restore, has what a teardown must not leave."""

from __future__ import annotations

import runpy
from pathlib import Path, PurePosixPath

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import registries

NODE = runpy.run_path(str(Path(__file__).parents[2] / "molecule/shared/footprint_node.py"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (registries.KUBELET_LOGIN, True),
        (registries.CRIO_LOGIN, True),
        (registries.DOCKER_LOGIN, True),
        ("/root/.config/containers/auth.json", True),
        (f"{registries.CONTAINERD}/nvcr.io/{registries.HOSTS}", True),
        ("/var/lib/kubelet/config.yaml", True),
        ("/var/lib/kubelet/pods/1/volumes", False),
        ("/etc/rancher/k3s/registries.yaml", True),
        ("/var/lib/rancher/k3s/agent/etc/containerd/config.toml", True),
        ("/var/lib/rancher/k3s/agent/etc/containerd/certs.d/nvcr.io/hosts.toml", True),
        ("/var/lib/rancher/k3s/agent/containerd.log", False),
        ("/etc/k0s/containerd.d/99-metal-gpu.toml", True),
        ("/var/lib/k0s/kubelet-config.yaml", True),
        ("/root/.ansible/tmp/1", False),
        ("/root/.bash_history", False),
    ],
)
def test_what_is_seen(path: str, expected: bool) -> None:
    names = {path, *map(str, PurePosixPath(path).parents)}
    is_volatile = any(map(NODE["VOLATILE"].fullmatch, names))
    assert (not is_volatile and not names.isdisjoint(NODE["TREES"])) == expected
