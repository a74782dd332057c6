# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import itertools

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import version


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "containerd github.com/containerd/containerd/v2 2.4.2 ", "2.4.2", id="containerd-2"
        ),
        pytest.param(
            "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3",
            "1.6.20",
            id="containerd-of-debian",
        ),
        pytest.param("Docker version 20.10.24+dfsg1, build 5d6db84", "20.10.24", id="docker"),
        pytest.param("Kubernetes v1.37.1", "1.37.1", id="kubelet"),
        pytest.param("Kubernetes v1.38.0-rc.1", "1.38.0-rc.1", id="candidate"),
        pytest.param("NVIDIA Container Toolkit CLI version 1.20.1\ncommit: 1", "1.20.1", id="ctk"),
        pytest.param("NVIDIA Container Toolkit CLI version unknown", None, id="unknown"),
        pytest.param("", None, id="empty"),
        pytest.param(f"v{'9' * 5000}.1", None, id="more digits than a number has"),
    ],
)
def test_parse_version(text, expected):
    assert version.parse_version(text) == expected


@pytest.mark.parametrize(
    ("packaged", "expected"),
    [
        ("1.20.1-1", "1.20.1"),
        ("5:29.8.1-1~debian.12~bookworm", "29.8.1"),
        ("580.178.04", "580.178.04"),
    ],
)
def test_upstream_version(packaged, expected):
    assert version.upstream_version(packaged) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.36.0-rc.1", (1, 36, 0)),
        ("1.20.0~rc.1", (1, 20, 0)),
        ("1.6.20~ds1", (1, 6, 20)),
        ("20.10.24+dfsg1", (20, 10, 24)),
        ("580.178.04", (580, 178, 4)),
        ("unknown", ()),
    ],
)
def test_release(text, expected):
    assert version.release(text) == expected


# Each is newer than the one before it; dpkg --compare-versions says the same of those without "-".
ORDER = [
    *("1.2.0~alpha1", "1.2.0-rc.1", "1.2.0~rc.2", "1.2.0-rc.10", "1.2.0"),
    *(
        "1.2.0a",
        "1.2.0+dfsg1",
        "1.2.0.1",
        "1.2.1~rc1",
        "1.2.1",
        "1.10.0",
        "580.95.05",
        "580.105.08",
    ),
]


@pytest.mark.parametrize(("older", "newer"), list(itertools.combinations(ORDER, 2)))
def test_which_is_newer(older, newer):
    assert version.is_newer(newer, older)
    assert not version.is_newer(older, newer)
    assert not version.is_newer(newer, newer)


def test_release_of_garbage():
    assert version.release("9" * 5000)
