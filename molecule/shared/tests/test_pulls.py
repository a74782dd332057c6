# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""An image that a registry does not give to a pod: containerd and CRI-O say why, each in its words.

The tests are in this order, because only the last one pulls the image. Not for Docker: the kubelet
keeps the logins that it passes to Docker for five minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import registries
from pulls import IMAGE, fails, pull


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("missing-image", "SMOKE_IMAGE_UNAVAILABLE", "not found|manifest unknown"),
        ("foreign-image", "IMAGE_PLATFORM_MISSING", ""),
        ("corrupt-image", "IMAGE_DIGEST_DIFFERS", ""),
    ],
)
def test_image_that_the_registry_does_not_give(laboratory, fault, code, words):
    laboratory.lab("fault", "registry", fault, IMAGE)
    try:
        fails(laboratory, code, words)
    finally:
        laboratory.lab("fault", "registry", "restore")


def configure(laboratory: Any, inventory: Path | None = None) -> Any:
    run = laboratory.playbook("metal.gpu.site", "--tags=registries", inventory=inventory)
    assert run.returncode == 0
    return run


def test_login_that_nobody_gave(laboratory, tmp_path):
    """The role names it and continues, because pods can have one. The pods of verify have none."""
    inventory = registries.without_login(laboratory, tmp_path / "inventory.yml")
    try:
        run = configure(laboratory, inventory)
        for node in laboratory.addresses:
            assert f"REGISTRY_LOGIN_MISSING {node}: " in run.words
        fails(laboratory, "REGISTRY_LOGIN_MISSING", inventory=inventory)
    finally:
        configure(laboratory)


def test_registry_that_wants_a_certificate(laboratory, tmp_path):
    inventory = registries.with_certificate(laboratory, tmp_path / "inventory.yml")
    laboratory.lab("fault", "registry", "client-certificate")
    try:
        fails(laboratory, "REGISTRY_LOGIN_REFUSED")
        configure(laboratory, inventory)
        assert pull(laboratory, inventory=inventory).returncode == 0
    finally:
        laboratory.lab("fault", "registry", "restore")
        configure(laboratory)
