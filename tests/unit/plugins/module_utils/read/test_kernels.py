# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read import kernels


@pytest.mark.parametrize(
    ("images", "running", "newest"),
    [
        pytest.param([], "6.1.0-26-amd64", "6.1.0-26-amd64", id="no image"),
        pytest.param(
            ["6.1.0-9-amd64", "6.1.0-26-amd64"], "6.1.0-9-amd64", "6.1.0-26-amd64", id="9"
        ),
        pytest.param(
            ["6.12.9+deb13-amd64", "6.12.107+deb13-amd64"],
            "6.12.9+deb13-amd64",
            "6.12.107+deb13-amd64",
            id="Debian 13",
        ),
        pytest.param(
            ["5.14.0-427.13.1.el9_4.x86_64", "5.14.0-503.11.1.el9_5.x86_64", "0-rescue-5f1e"],
            "5.14.0-427.13.1.el9_4.x86_64",
            "5.14.0-503.11.1.el9_5.x86_64",
            id="Red Hat, with its rescue image",
        ),
        pytest.param(["6.1.0", "6.1.0.old"], "6.1.0", "6.1.0", id="the image before this one"),
        pytest.param(["6.1.0", "6.1.0.old"], "5.9.0", "6.1.0", id="the image before the newest"),
        pytest.param(["6.12.0", "6.12.0-rc3"], "6.12.0", "6.12.0", id="a release candidate"),
        pytest.param(["6.12.0-rc3", "6.11.9"], "6.11.9", "6.12.0-rc3", id="of a newer release"),
        pytest.param(
            ["6.12.0-061200rc3-generic", "6.12.0-061200-generic"],
            "6.12.0-061200-generic",
            "6.12.0-061200-generic",
            id="Ubuntu's release candidate",
        ),
        pytest.param(
            ["6.12~rc6-amd64", "6.12-amd64"], "6.12-amd64", "6.12-amd64", id="that of Debian"
        ),
        pytest.param(
            ["5.14.0-503.el9.x86_64", "5.14.0-503.el9.x86_64+debug"],
            "5.14.0-503.el9.x86_64",
            "5.14.0-503.el9.x86_64",
            id="for debugging",
        ),
        pytest.param(
            ["5.15.0-140-generic"], "6.8.0-60-generic", "6.8.0-60-generic", id="an older one"
        ),
    ],
)
def test_the_newest_kernel_boots_next(images: list[str], running: str, newest: str) -> None:
    assert kernels.releases([f"/boot/vmlinuz-{one}" for one in images], running)[-1] == newest


@pytest.mark.parametrize(
    ("stdout", "expected"),
    [
        pytest.param("", None, id="no index"),
        pytest.param("base-files | 12.4 | http://x bookworm/main amd64 Packages\n", [], id="gone"),
        pytest.param(
            "linux-headers-6.1.0-26-amd64 | 6.1.112-1 | http://x bookworm/main amd64 Packages\n"
            "linux-headers-6.1.0-26-amd64 | 6.1.112-1 | http://y bookworm/main amd64 Packages\n"
            "base-files | 12.4 | http://x bookworm/main amd64 Packages\n",
            ["6.1.0-26-amd64"],
            id="there",
        ),
    ],
)
def test_headers_in_the_index(stdout: str, expected: list[str] | None) -> None:
    """As apt-cache 2.6.1 prints it."""
    assert kernels.parse_headers(stdout) == expected
