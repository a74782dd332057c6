# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Teardown without the internet. The file name makes pytest run it last."""

from __future__ import annotations

import re

import footprint

FOLDER = "/var/lib/metal-gpu/config_document"
HISTORY = re.compile(rf"{FOLDER}/%2Fetc%2Fcontainerd%2Fconfig\.toml@metal\.gpu\.containerd")
# What depmod writes when dkms builds the driver. The laboratory has no package of a kernel for
# Debian 13, and every real kernel's package has these files.
OF_DEPMOD = re.compile(r"/usr/lib/modules/[^/]+/modules\.[a-z.]+: None → ")
# The engine that stays also starts at boot.
LINKS = re.compile(
    r"/etc/systemd/system/(cri-o\.service|multi-user\.target\.wants/crio\.service): None → "
)
MAY_STAY = {
    "gpu-1": (),
    "gpu-2": (HISTORY, OF_DEPMOD),
    "gpu-3": (LINKS, OF_DEPMOD),
    "gpu-4": (),
}


def test_everything_goes(laboratory):
    run = laboratory.playbook("metal.gpu.teardown")
    assert run.returncode == 0


def test_node_is_what_it_was(footprints, node):
    """The engine of gpu-2 and gpu-3 stays, because the kubelet uses it.

    On gpu-2, what undoes its settings stays as well.
    """
    left = footprint.of_node(footprints, node)
    others = [line for line in left if not any(one.match(line) for one in MAY_STAY[node])]
    assert others == [], "\n".join(others)


def test_cluster_is_what_it_was(footprints):
    assert footprint.of_cluster(footprints) == []
