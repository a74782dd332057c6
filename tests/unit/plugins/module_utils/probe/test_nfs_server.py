# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server on the loopback device answers what a real one has answered (tests/recorded/nfs.yml)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from nfs_answers import ACCEPTED, CALLS, ONLY_NFS_3, Server, serve

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.probe import nfs_server
from ansible_collections.metal.gpu.plugins.module_utils.probe.nfs_server import Mount, ask
from ansible_collections.metal.gpu.plugins.module_utils.read import nfs
from ansible_collections.metal.gpu.plugins.module_utils.verdict.nfs import judge_exports
from ansible_collections.metal.gpu.plugins.modules import nfs_export_info

ASKED = {
    **{"read_only": False, "squashed": False, "port": 0, "mount_port": 0},
    **{"security": "sys", "transport": "tcp"},
}


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as found:
        yield found


def mount(server: Server, export: str, version: str, *, read_only: bool = False) -> Mount:
    """Return a mount; the server is NFS and its mount protocol at once."""
    return Mount("127.0.0.1", export, version, read_only, server.port, server.port)


@pytest.mark.parametrize(
    ("export", "version", "state"),
    [
        ("/rw", "4.2", "ok"),
        ("/rw", "4.0", "ok"),
        ("/rw", "4", "ok"),
        ("/ro", "4.0", "read_only"),
        ("/none", "4.2", "missing"),
        ("/rw", "4.3", "version"),
        ("/srv/rw", "3", "ok"),
        ("/srv/ro", "3", "read_only"),
        ("/srv/none", "3", "missing"),
    ],
)
def test_what_a_server_says(server, export: str, version: str, state: str) -> None:
    assert ask(mount(server, export, version)).state == state


def test_name_with_several_addresses(server) -> None:
    """This machine may also be ::1, where nobody listens."""
    assert ask(mount(server, "/rw", "4.2")._replace(server="localhost")).state == "ok"


@pytest.mark.parametrize(("export", "version"), [("/ro", "4.0"), ("/srv/ro", "3")])
def test_nobody_writes_to_a_mount_that_is_to_be_read_only(server, export, version) -> None:
    assert ask(mount(server, export, version, read_only=True)).state == "ok"


def test_exports_are_named_where_one_is_missing(server) -> None:
    assert ask(mount(server, "/srv/none", "3")).evidence.endswith("it exports /srv/rw, /srv/ro")


def test_ports_of_nfs_3_are_those_that_rpcbind_names() -> None:
    row = next(row for row in CALLS if row["call"] == [100000, 2, 3])
    assert row["arguments"] == nfs.ask_port(nfs.NFS, 3).hex()
    reply = nfs.parse_reply(b"\0\0\0\x09" + bytes.fromhex(row["reply"].replace(" ", "")), 9)
    assert nfs.Reader(reply.body).number() == nfs.NFS_PORT


def test_server_without_nfs_4_names_its_versions(server) -> None:
    server.answers |= ONLY_NFS_3
    assert ask(mount(server, "/rw", "4.2")) == ("version", "3")
    other = next(row for row in CALLS if row["call"][1] == 5)
    server.answers[(100003, 4, 0, "")] = bytes.fromhex(other["reply"])
    assert ask(mount(server, "/rw", "4.2")) == ("version", "3 to 4")


@pytest.mark.parametrize("version", ["4.2", "3"])
def test_security_that_needs_keys_is_unproven(server, version) -> None:
    """The server would deny the question for a reason that a mount does not have."""
    one = mount(server, "/none", version)._replace(security="sec=krb5p")
    assert ask(one) == ("unproven", "the server answers, and only a mount can use sec=krb5p")
    number = int(version[0])
    server.answers[(100003, number, 0, "")] = struct.pack(">4I", 1, 1, 1, 5)  # not even this
    assert ask(one).state == "unproven"
    server.answers[(100003, number, 0, "")] = ACCEPTED + struct.pack(">3I", 2, 5, 5)
    assert ask(one) == ("version", "5")
    server.answers[(100003, number, 0, "")] = None
    assert ask(one, timeout_s=2).state == "unreachable"


def test_another_transport_is_unproven() -> None:
    one = Mount("127.0.0.1", "/rw", transport="proto=rdma", port=1)
    assert ask(one) == ("unproven", "only a mount can use proto=rdma")


def test_module_asks_the_ports_of_the_mount(server) -> None:
    asked = {**ASKED, "server": "127.0.0.1", "path": "/proc"}
    ports = {"port": server.port, "mount_port": server.port}
    for more in ({"export": "/rw", "version": "4.2"}, {"export": "/srv/rw", "version": "3"}):
        (row,) = nfs_export_info.run("gpu-1", [{**asked, **more, **ports}], 2)["mounts"]
        assert row["state"] == "ok"


@pytest.mark.parametrize(
    ("version", "status", "state"),
    [
        ("4.2", nfs.MINOR_VERSION, "unproven"),  # it has sessions only
        ("4", nfs.MINOR_VERSION, "unproven"),  # a mount takes the newest version that it has
        ("4.0", nfs.MINOR_VERSION, "version"),
        ("4.2", nfs.LATER, "unproven"),
    ],
)
def test_server_that_refuses_the_question(server, version, status, state) -> None:
    arguments = nfs.ask_compound(0, "/rw").hex()
    server.answers[(100003, 4, 1, arguments)] = ACCEPTED + struct.pack(">4I", 0, status, 0, 0)
    assert ask(mount(server, "/rw", version)).state == state


@pytest.mark.parametrize("name", ["nas..example", f"{'a' * 64}.example", "nas\0"])
def test_name_that_no_server_can_have(name: str) -> None:
    found = ask(Mount(name, "/rw"), timeout_s=2)
    assert found.state == "unreachable"
    assert found.evidence


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(None, id="it closes the connection"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="it is a web server"),
        pytest.param(ACCEPTED[:6], id="it stops in the middle"),
        pytest.param(ACCEPTED + struct.pack(">I", 1), id="no such program"),
        pytest.param(ACCEPTED + struct.pack(">I", 5), id="an error of its own"),
        pytest.param(struct.pack(">4I", 1, 1, 1, 5), id="it rejects the credentials"),
    ],
)
def test_server_that_is_none(server, answer: bytes | None) -> None:
    server.answers[(100003, 4, 0, "")] = answer
    found = ask(mount(server, "/rw", "4.2"), timeout_s=2)
    assert found.state == "unreachable"
    assert found.evidence


def test_nobody_listens(server) -> None:
    closed = mount(server, "/rw", "4.2")
    server.shutdown()
    server.server_close()
    found = ask(closed, timeout_s=2)
    assert (found.state, "refused" in found.evidence) == ("unreachable", True)


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (nfs_server.OK, None),
        (nfs_server.UNREACHABLE, "NFS_SERVER_SILENT"),
        (nfs_server.VERSION, "NFS_VERSION_DIFFERS"),
        (nfs_server.MISSING, "NFS_EXPORT_MISSING"),
        (nfs_server.READ_ONLY, "NFS_READ_ONLY"),
        (nfs_server.UNPROVEN, "NFS_UNPROVEN"),
    ],
)
def test_findings(state: str, code: str | None) -> None:
    row = {"server": "nas", "export": "/rw", "path": "/data", "version": "4.2", "hidden": ""}
    found = list(judge_exports([{**row, "state": state, "evidence": "words"}], "gpu-1"))
    assert [one["code"] for one in found] == ([code] if code else [])
    assert all("nas" in one["message"] for one in found)


def test_files_that_a_mount_would_hide(tmp_path) -> None:
    for number in range(5):
        (tmp_path / f"file{number}").touch()
    one = {"server": "127.0.0.1", "export": "/rw", "version": "3"}
    paths = [str(tmp_path), str(tmp_path / "none"), "/proc"]
    mounts = [{**ASKED, **one, "path": path} for path in paths]
    result = nfs_export_info.run("gpu-1", mounts, 1)
    words = "the mount would hide file0, file1, file2 and 2 more"
    assert [row["hidden"] for row in result["mounts"]] == [
        words,
        "",
        "a file system of type proc is mounted there",
    ]
    taken = finding("NFS_MOUNT_TAKEN", "gpu-1", path=str(tmp_path), evidence=words)
    assert taken in result["findings"]
    rows = nfs_export_info.run("gpu-1", mounts, 1, look_at_paths=False)["mounts"]
    assert [row["hidden"] for row in rows] == [""] * 3
