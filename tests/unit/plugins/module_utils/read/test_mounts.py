# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mount tables of a host, of services of systemd, and of containers (tests/recorded/nfs.yml)."""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.mounts import (
    parse_masters,
    parse_mounts,
    stays_mounted,
    visible_nfs,
)

HOST = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
971 22 0:40 / /data rw,relatime shared:414 - autofs systemd-1 rw,fd=51,timeout=0
972 971 0:41 / /data ro,relatime shared:415 - nfs4 nas:/srv/data rw,vers=4.2,hard
"""
# A service of systemd follows the host; a private namespace does not.
SERVICE = """\
1198 1100 8:1 / / ro,relatime shared:600 master:1 - ext4 /dev/sda1 rw
1232 1198 0:40 / /data rw,relatime master:414 - autofs systemd-1 rw,fd=51,timeout=0
1233 1232 0:41 / /data ro,relatime master:415 - nfs4 nas:/srv/data rw,vers=4.2,hard
"""
PRIVATE = SERVICE.replace(" master:414", "").replace(" master:415", "")
ROOT = "2000 1999 0:77 / / rw,relatime - overlay overlay rw,lowerdir=/x\n"


def container(source: str, path: str = "/in", groups: str = "", kind: str = "nfs4") -> str:
    return f"{ROOT}2001 2000 0:41 / {path} rw,relatime{groups} - {kind} {source} rw,vers=4.2,hard\n"


def stays(there: str, path: str = "/data", here: str = HOST, between: str = "") -> bool:
    tables = [parse_mounts(text) for text in (here, there, between)]
    return stays_mounted(path, tables[0], tables[1], parse_masters(tables))


def test_fields() -> None:
    one = parse_mounts(HOST)[2]
    assert (one.identity, one.parent, one.root, one.path) == ("972", "971", "/", "/data")
    assert (one.shared, one.master, one.kind, one.source) == ("415", "", "nfs4", "nas:/srv/data")
    assert one.options == ("ro", "relatime")
    assert one.more_options == ("rw", "vers=4.2", "hard")


@pytest.mark.parametrize("text", ["", "half a", "22 1 8:1 / / rw", "22 1 8:1 / / rw - ext4"])
def test_line_that_is_none(text: str) -> None:
    assert parse_mounts(text) == []


def test_blanks_in_paths() -> None:
    text = "22 1 8:1 / /my\\040files rw - cifs //nas/a\\040b rw\n"
    (one,) = parse_mounts(text)
    assert (one.path, one.source) == ("/my files", "//nas/a b")


def test_the_last_mount_of_a_path_is_visible() -> None:
    found = visible_nfs(
        parse_mounts(HOST + HOST[HOST.index("972") :].replace("nas", "new")), "/data"
    )
    assert found is not None
    assert found.source == "new:/srv/data"
    assert visible_nfs(parse_mounts(HOST), "/") is None


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param("", False, id="nothing is mounted"),
        pytest.param(SERVICE, False, id="a service of systemd"),
        pytest.param(PRIVATE, True, id="a private namespace"),
        pytest.param(container("nas:/srv/data"), True, id="a container"),
        pytest.param(container("nas:/srv/data/sub"), True, id="a container with a folder of it"),
        # The bind mount itself stays, whatever it makes of mounts below it.
        pytest.param(container("nas:/srv/data", groups=" master:415"), True, id="rslave"),
        pytest.param(container("nas:/srv/data", groups=" shared:415"), True, id="rshared"),
        pytest.param(container("nas:/srv/database"), False, id="another export"),
        pytest.param(container("nas:/srv"), False, id="the export above"),
        pytest.param(container("nas2:/srv/data"), False, id="another server"),
        pytest.param(container("nas:/srv/data", kind="ext4"), False, id="no NFS"),
        # A folder above it, with propagation: /srv of the host at /in.
        pytest.param(
            "3000 2999 8:1 /srv /in rw master:1 - ext4 /dev/sda1 rw\n"
            "3001 3000 0:40 / /in/data rw master:414 - autofs systemd-1 rw\n"
            "3002 3001 0:41 / /in/data rw master:415 - nfs4 nas:/srv/data rw\n",
            False,
            id="a folder above it that follows the host",
        ),
    ],
)
def test_who_keeps_it(there: str, expected: bool) -> None:
    assert stays(there) is expected


def test_mount_without_an_automount() -> None:
    here = HOST.replace("972 971", "972 22")
    assert not stays(SERVICE.replace("1233 1232", "1233 1198"), here=here)
    # Bound elsewhere in a namespace that follows the host: that spot is none of the host's.
    moved = SERVICE.replace("1233 1232", "1233 1198").replace("/ /data ro", "/ /else ro")
    assert stays(moved, here=here)
    assert not stays(moved, "/other", here)


def test_namespace_that_a_service_has_made_follows_the_host_by_way_of_it() -> None:
    between = SERVICE.replace("master:414", "shared:700 master:414")
    inner = SERVICE.replace("master:414", "master:700")
    assert not stays(inner, between=between)
    assert stays(inner, between=between.replace("master:414", "master:999"))
    assert stays(inner, between=between.replace("master:414", "master:700"))  # this has no end
