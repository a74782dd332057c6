# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which headers follow the kernel of a node?"""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import kernels
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN,
    merge,
)


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("6.1.0-26-amd64", "amd64"),
        ("6.1.0-26-cloud-amd64", "cloud-amd64"),
        ("6.12.107+deb13-amd64", "amd64"),
        ("6.12.9+bpo-rt-amd64", "rt-amd64"),
        ("6.8.0-60-generic", "generic"),
        ("6.8.0-1032-aws", "aws"),
        ("6.10.1", None),
        (None, None),
    ],
)
def test_flavour(release: str | None, expected: str | None) -> None:
    assert kernels.flavour(release) == expected


@pytest.mark.parametrize(
    ("release", "packages", "expected"),
    [
        pytest.param("6.1.0-26-amd64", {"linux-image-amd64": "6.1.112-1"}, "amd64", id="Debian's"),
        pytest.param(
            "6.1.0-26-cloud-amd64",
            {"linux-image-amd64": "6.1.112-1", "linux-image-cloud-amd64": "6.1.112-1"},
            "cloud-amd64",
            id="cloud",
        ),
        pytest.param("6.1.0-26-amd64", {"linux-image-cloud-amd64": "6.1.112-1"}, None, id="other"),
        pytest.param("6.1.0-26-amd64", {}, None, id="no meta package"),
        pytest.param(
            "6.8.0-60-generic",
            {
                "linux-image-generic": "5.15.0.140.135",
                "linux-image-generic-hwe-22.04": "6.8.0-60.63~22.04.1",
            },
            "generic-hwe-22.04",
            id="hardware enablement",
        ),
        pytest.param(
            "5.15.0-140-generic",
            {
                "linux-image-generic": "5.15.0.140.135",
                "linux-image-generic-hwe-22.04": "6.8.0-60.63~22.04.1",
            },
            "generic",
            id="the older of two",
        ),
        pytest.param(
            "6.8.0-60-generic", {"linux-image-virtual": "6.8.0-60.63"}, "generic", id="virtual"
        ),
        pytest.param(
            "6.8.0-60-generic",
            {"linux-image-unsigned-6.8.0-60-generic": "6.8.0-60.63"},
            None,
            id="single",
        ),
        pytest.param("6.10.1", {"linux-image-amd64": "6.1.112-1"}, None, id="of the admin's own"),
    ],
)
def test_meta_package(release: str, packages: dict[str, str], expected: str | None) -> None:
    found = {name: {"version": version, "held": False} for name, version in packages.items()}
    node = merge(VIRGIN, {"kernel": {"release": release}, "packages": found})
    assert (kernels.meta_package(node) or (None,))[0] == expected


RUNNING = "linux-headers-6.1.0-26-amd64"


@pytest.mark.parametrize(("has_headers", "expected"), [(False, {RUNNING: ""}), (True, {})])
def test_headers_of_the_running_kernel(has_headers: bool, expected: dict[str, str]) -> None:
    image = {"linux-image-amd64": {"version": "6.1.112-1", "held": False}}
    node = merge(VIRGIN, {"kernel": {"headers": has_headers}, "packages": image})
    assert kernels.headers(node) == expected


HEADERS, MODULES = "linux-headers-", "linux-modules-nvidia-580-server-"


@pytest.mark.parametrize(
    ("release", "packages", "prefix", "expected"),
    [
        pytest.param(
            "6.1.0-26-amd64",
            {"linux-image-amd64": "6.1.112-1"},
            HEADERS,
            ["linux-headers-amd64=6.1.112-1", "linux-headers-amd64"],
            id="headers",
        ),
        pytest.param(
            "6.1.0-26-amd64",
            {"linux-image-amd64": "6.1.112-1", "linux-headers-amd64": "6.1.112-1"},
            HEADERS,
            [],
            id="there",
        ),
        pytest.param("6.1.0-26-amd64", {}, HEADERS, [], id="single kernel"),
        # The stable release has headers of the kernel 6.1 under the same name.
        pytest.param(
            "6.12.95+deb12-amd64",
            {"linux-image-amd64": "6.12.95-1~bpo12+1"},
            HEADERS,
            ["linux-headers-amd64=6.12.95-1~bpo12+1"],
            id="backports",
        ),
        pytest.param(
            "6.8.0-149-generic",
            {"linux-image-virtual": "6.8.0-149.149"},
            MODULES,
            [
                f"{MODULES}generic=6.8.0-149.149",
                f"{MODULES}generic=6.8.0-149.149+*",
                f"{MODULES}generic",
            ],
            id="modules",
        ),
        pytest.param(
            "6.8.0-149-generic", {"linux-image-generic": "6.8.0-149.149"}, "", [], id="nothing"
        ),
    ],
)
def test_what_follows_the_kernel(
    release: str, packages: dict[str, str], prefix: str, expected: list[str]
) -> None:
    found = {name: {"version": version, "held": False} for name, version in packages.items()}
    node = merge(VIRGIN, {"kernel": {"release": release}, "packages": found})
    assert kernels.following(node, prefix) == expected
