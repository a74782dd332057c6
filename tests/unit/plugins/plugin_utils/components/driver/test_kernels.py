# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which headers follow the kernel of a node?"""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.driver import kernels
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.systems import SYSTEMS
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    VIRGIN,
    merge,
)

DEBIAN_12 = next(one for one in SYSTEMS if one.name == "Debian 12")
DEBIAN_13 = next(one for one in SYSTEMS if one.name == "Debian 13")


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
    assert kernels.meta_package(node) == expected


RUNNING = "linux-headers-6.1.0-26-amd64"


@pytest.mark.parametrize(
    ("system", "has_headers", "packages", "expected", "left"),
    [
        pytest.param(
            DEBIAN_12, False, ["image"], {RUNNING: "", "linux-headers-amd64": ""}, "", id="both"
        ),
        pytest.param(DEBIAN_12, True, ["image"], {"linux-headers-amd64": ""}, "", id="meta"),
        pytest.param(DEBIAN_12, True, ["image", "headers"], {}, "", id="none"),
        pytest.param(DEBIAN_12, False, [], {RUNNING: ""}, "", id="single kernel"),
        # There, the headers depend on their kernel.
        pytest.param(
            DEBIAN_13,
            False,
            ["image"],
            {RUNNING: "", "linux-headers-amd64": "6.1.112-1"},
            "",
            id="Debian 13, both",
        ),
        pytest.param(DEBIAN_13, True, ["image"], {}, "linux-headers-amd64", id="Debian 13, left"),
    ],
)
def test_headers(system, has_headers, packages, expected, left) -> None:
    found = {f"linux-{one}-amd64": {"version": "6.1.112-1", "held": False} for one in packages}
    node = merge(VIRGIN, {"kernel": {"headers": has_headers}, "packages": found})
    assert kernels.headers(node, system) == (expected, left)
