# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.components.nfs import plan as nfs
from ansible_collections.metal.gpu.plugins.plugin_utils.components.nfs import units
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.engines import (
    test_reload,
)
from ansible_collections.metal.gpu.tests.unit.plugins.plugin_utils.components.test_plans import (
    DONE,
    VIRGIN,
    merge,
)

FOLDER = "/etc/systemd/system"
DATA = {"server": "nas.example", "export": "/srv/data", "path": "/data"}
AUTOFS = {
    **{"path": "/data", "type": "autofs", "source": "systemd-1"},
    **{"read_only": False, "version": ""},
}
NFS = {**AUTOFS, "type": "nfs4", "source": "nas.example:/srv/data", "version": "4.2"}
SERVER = "server as a name or an address, without a port, brackets and a path"
CLIENT = {"packages": {"nfs-common": {"version": "1:2.6.2-4", "held": False}}}


def plan(node: dict[str, Any], *mounts: object, **desired: Any) -> dict[str, Any]:
    wanted = {
        "host": "gpu-1",
        "state": "present",
        "engine": "docker",
        "now": datetime(2026, 11, 23, tzinfo=UTC),
        "mounts": list(mounts),
        "options": ["hard"],
        **desired,
    }
    result: dict[str, Any] = nfs.plan(node, wanted)  # type: ignore[arg-type]
    return result


def slugs(planned: dict[str, Any]) -> list[str]:
    return [step["slug"] for step in planned["steps"]]


def codes(planned: dict[str, Any]) -> list[str]:
    return [one["code"] for one in (*planned["refusals"], *planned["notices"])]


def observed(**changes: Any) -> dict[str, Any]:
    return merge(VIRGIN, {**CLIENT, "nfs": changes})


def written(*items: dict[str, Any]) -> dict[str, list[str]]:
    mounts, _wrong = units.parse(items, ["hard"])
    return {path: lines for one in mounts for path, lines in units.files(one).items()}


READY = {
    "units": written(DATA),
    "mounted": [AUTOFS, NFS],
    "enabled": ["data.automount"],
}


def test_virgin_host() -> None:
    planned = plan(VIRGIN, DATA)
    assert slugs(planned) == ["install", "write", "start"]
    data = planned["data"]
    assert data["packages"] == ["nfs-common"]
    assert data["automounts"] == ["data.automount"]
    assert data["paths"] == ["/data"]
    mount, automount = data["units"]
    assert mount["path"] == f"{FOLDER}/data.mount"
    assert mount["block"].splitlines()[2:] == [
        "[Mount]",
        "What=nas.example:/srv/data",
        "Where=/data",
        "Type=nfs",
        "Options=vers=4.2,rw,hard",
        "TimeoutSec=30",
    ]
    assert automount["block"].splitlines()[2:] == [
        "Before=docker.service",
        *("[Automount]", "Where=/data", "TimeoutIdleSec=0"),
        *("[Install]", "WantedBy=remote-fs.target"),
    ]


def test_host_without_mounts_is_left_alone() -> None:
    planned = plan(VIRGIN)
    assert (slugs(planned), codes(planned)) == ([], [])


def test_nothing_is_left_to_do() -> None:
    planned = plan(observed(**READY), DATA)
    assert (slugs(planned), codes(planned)) == ([], [])


@pytest.mark.parametrize(
    ("changes", "steps", "found"),
    [
        ({"mounted": [AUTOFS]}, [], []),  # nobody has used it yet
        ({"mounted": []}, ["start"], []),
        ({"enabled": []}, ["start"], []),
        ({"units": {}, "mounted": []}, ["write", "start"], []),
        ({"kernel": False, "mounted": [], "enabled": []}, [], ["NFS_KERNEL_MISSING"]),
        ({"automount": False, "mounted": [], "enabled": []}, [], ["NFS_KERNEL_MISSING"]),
    ],
)
def test_what_is_missing_is_planned(changes, steps, found) -> None:
    planned = plan(observed(**{**READY, **changes}), DATA)
    assert (slugs(planned), codes(planned)) == (steps, found)


def test_changed_options_do_not_unmount_anything() -> None:
    planned = plan(observed(**READY), {**DATA, "options": ["hard", "nconnect=8"]})
    assert slugs(planned) == ["write"]
    assert codes(planned) == ["NFS_REMOUNT_DUE"]
    assert "Options=vers=4.2,rw,hard,nconnect=8" in planned["data"]["units"][0]["block"]


@pytest.mark.parametrize(
    ("wanted", "mounted", "evidence"),
    [
        ({"read_only": True}, {}, "it is mounted read-write"),
        ({}, {"read_only": True}, "it is mounted read-only"),
        ({"version": "4.1"}, {}, "it is mounted by NFS 4.2"),
        (
            {"version": "3"},
            {"read_only": True},
            "it is mounted read-only, it is mounted by NFS 4.2",
        ),
        ({"version": "4"}, {}, None),
        ({}, {"version": ""}, None),
    ],
)
def test_mount_that_is_not_as_its_units_is_noticed_in_every_run(wanted, mounted, evidence) -> None:
    mount = {**DATA, **wanted}
    node = observed(**{**READY, "units": written(mount), "mounted": [AUTOFS, {**NFS, **mounted}]})
    planned = plan(node, mount)
    assert slugs(planned) == []
    assert codes(planned) == (["NFS_REMOUNT_DUE"] if evidence else [])
    assert all(one["message"].endswith(f": {evidence}") for one in planned["notices"])


@pytest.mark.parametrize("source", ["old.example:/srv/data", "nas.example:/srv", "nas.example:/"])
@pytest.mark.parametrize("is_written", [True, False])
def test_another_export_that_is_mounted_is_refused_in_every_run(source, is_written) -> None:
    server, _colon, export = source.partition(":")
    units_of = DATA if is_written else {**DATA, "server": server, "export": export}
    mounted = [AUTOFS, NFS, {**NFS, "source": source}]
    planned = plan(observed(**{**READY, "units": written(units_of), "mounted": mounted}), DATA)
    assert (slugs(planned), codes(planned)) == ([], ["NFS_MOUNT_DIFFERS"])
    found = f"/data is mounted from {source}, expected nas.example:/srv/data"
    assert found in planned["refusals"][0]["message"]


def test_disk_that_is_mounted_upon_an_export_is_refused() -> None:
    disk = {**NFS, "type": "ext4", "source": "/dev/sdb1", "version": ""}
    planned = plan(observed(**{**READY, "mounted": [AUTOFS, NFS, disk]}), DATA)
    assert codes(planned) == ["NFS_MOUNT_DIFFERS"]
    assert "/data is mounted from /dev/sdb1" in planned["refusals"][0]["message"]


@pytest.mark.parametrize(
    ("wanted", "source"),
    [
        ({"export": "/srv/data/"}, "nas.example:/srv/data"),
        ({"export": "/srv//data"}, "nas.example:/srv/data"),
        ({"export": "/"}, "nas.example:/"),
        ({"server": "fd00::1"}, "[fd00::1]:/srv/data"),
    ],
)
def test_one_export_in_two_forms(wanted, source) -> None:
    mount = {**DATA, **wanted}
    mounted = [AUTOFS, {**NFS, "source": source}]
    planned = plan(observed(**{**READY, "units": written(mount), "mounted": mounted}), mount)
    assert (slugs(planned), codes(planned)) == ([], [])


def test_units_that_systemd_has_not_read_since_they_were_written() -> None:
    """The former run ended between the two."""
    planned = plan(observed(**READY, unread=["data.mount"]), DATA)
    assert slugs(planned) == ["write"]
    assert "systemd has not read data.mount" in planned["steps"][0]["reason"]
    assert planned["data"]["units"] == []


def test_what_is_no_longer_wanted_goes() -> None:
    planned = plan(observed(**READY, mixed=[f"{FOLDER}/data.mount"], unread=["data.mount"]))
    assert slugs(planned) == ["unmount", "stop", "delete"]
    assert planned["data"]["stale_mounts"] == ["data.mount"]
    assert planned["data"]["stale_automounts"] == ["data.automount"]
    assert planned["data"]["stale_files"] == [f"{FOLDER}/data.automount"]
    assert planned["data"]["stale_blocks"] == [f"{FOLDER}/data.mount"]


@pytest.mark.parametrize(("mounts", "state"), [([], "present"), ([DATA], "absent")])
def test_mount_that_a_container_keeps_is_not_removed(mounts, state) -> None:
    users = [f"python3 (process {number})" for number in range(7)]
    planned = plan(observed(**READY, users={"/data": users}), *mounts, state=state)
    assert (slugs(planned), codes(planned)) == ([], ["NFS_MOUNT_USED"])
    assert "(process 4) and 2 more" in planned["refusals"][0]["message"]


def test_mount_below_a_stale_one_is_not_lost_with_it() -> None:
    below = {**DATA, "path": "/data/models"}
    node = observed(**{**READY, "units": written(DATA, below), "users": {"/data/models": ["x"]}})
    planned = plan(node, below)
    assert (slugs(planned), codes(planned)) == ([], ["NFS_MOUNT_USED"])
    assert "the NFS mount at /data/models" in planned["refusals"][0]["message"]
    assert slugs(plan(node, DATA)) == []
    assert codes(plan(observed(**READY, users={"/data-2": ["x"]}))) == []


def test_mount_that_stays_may_be_used() -> None:
    planned = plan(observed(**READY, users={"/data": ["python3 (process 90)"]}), DATA)
    assert (slugs(planned), codes(planned)) == ([], [])


def test_absent_takes_everything_back() -> None:
    record = {"nfs-common": {"version": "1:2.6.2-4", "before": None}}
    path = "/var/lib/metal-gpu/packages/nfs_mounts.json"
    ours = {"packages": {"nfs_mounts": {"path": path, "packages": record, "error": None}}}
    planned = plan(merge(observed(**READY), {"ours": ours}), DATA, state="absent")
    assert slugs(planned) == ["unmount", "stop", "delete", "remove", "forget"]
    assert planned["data"]["packages"] == ["nfs-common"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fstab": ["/", "/data"]}, "/etc/fstab has it"),
        ({"others": [f"{FOLDER}/data.mount"]}, f"{FOLDER}/data.mount has it"),
        ({"mounted": [{**NFS, "source": "/dev/sdb1", "type": "ext4"}]}, "/dev/sdb1 is mounted"),
        ({"mounted": [AUTOFS]}, "systemd-1 is mounted there"),
        ({"mounted": [{**AUTOFS, "source": "/etc/auto.direct"}]}, "/etc/auto.direct is mounted"),
        ({"others": ["/run/systemd/generator/data.automount"]}, "data.automount has it"),
    ],
)
def test_path_of_somebody_else_is_refused(changes, words) -> None:
    planned = plan(observed(**changes), DATA)
    assert codes(planned) == ["NFS_MOUNT_TAKEN"]
    assert words in planned["refusals"][0]["message"]


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ([], {}),
        (["hard", "nconnect=8", "proto=tcp", "tcp", "proto=tcp6"], {}),
        (["sec=sys", "xprtsec=none", "port=0"], {}),
        (["port=20490"], {"port": 20490}),
        (["port=1", "port=20490", "mountport=20048"], {"port": 20490, "mount_port": 20048}),
        (["sec=krb5p"], {"security": "sec=krb5p"}),
        (["sec=krb5:krb5i"], {"security": "sec=krb5:krb5i"}),
        (["sec=krb5:sys"], {}),
        (["sec=sys", "xprtsec=mtls"], {"security": "xprtsec=mtls"}),
        (["proto=rdma", "port=20049"], {"transport": "proto=rdma", "port": 20049}),
        (["rdma"], {"transport": "rdma"}),
        (["mountproto=udp"], {"transport": "mountproto=udp"}),
    ],
)
def test_server_is_asked_as_it_is_mounted(options, asked) -> None:
    (found,) = plan(VIRGIN, {**DATA, "options": options})["data"]["mounts"]
    usual = {"port": 0, "mount_port": 0, "security": "sys", "transport": "tcp"}
    assert {key: found[key] for key in usual} == {**usual, **asked}


def test_path_below_a_map_of_autofs_is_refused() -> None:
    above = {**AUTOFS, "path": "/net"}
    item = {**DATA, "path": "/net/data"}
    planned = plan(observed(mounted=[{**above, "source": "/etc/auto.net"}]), item)
    assert codes(planned) == ["NFS_MOUNT_TAKEN"]
    assert "/etc/auto.net automounts what is below /net" in planned["refusals"][0]["message"]
    assert codes(plan(observed(mounted=[above]), item)) == []


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("nas:/srv", "a mapping with server, export and path"),
        ({**DATA, "path": "data"}, "path as an absolute path"),
        ({**DATA, "path": "/a/../b"}, "path as an absolute path"),
        ({**DATA, "path": "//data"}, "path as an absolute path"),
        ({**DATA, "path": "/"}, "path below /"),
        ({**DATA, "export": "data"}, "export as an absolute path of the server"),
        ({**DATA, "server": "nas example"}, "server as a text without blanks"),
        ({**DATA, "server": "nas\nOptions=x"}, "server as a text without blanks"),
        ({**DATA, "server": "[fd00::1]"}, SERVER),
        ({**DATA, "server": "nas.example:/srv"}, SERVER),
        ({**DATA, "server": "nas.example:2049"}, SERVER),
        ({**DATA, "server": "fd00::1::2"}, SERVER),
        ({**DATA, "path": "/a%n"}, "path as a text without blanks"),
        ({**DATA, "version": 4.2}, "version as one of 3, 4, 4.0, 4.1, 4.2, in quotes"),
        ({**DATA, "read_only": "yes"}, "read_only as true or false"),
        ({**DATA, "options": "hard"}, "options as a list such as [hard, nconnect=8]"),
        ({**DATA, "options": ["ro"]}, "no option ro: version and read_only decide it"),
        ({**DATA, "options": ["port=x"]}, "port as a number up to 65535"),
        ({**DATA, "options": ["port"]}, "port as a number up to 65535"),
        ({**DATA, "options": ["mountport=65536"]}, "mountport as a number up to 65535"),
        ({**DATA, "mode": "0777"}, "no key mode"),
        ({"server": "nas", "export": "/srv"}, "path as a text without blanks"),
    ],
)
def test_wrong_mount_is_named(item, expected) -> None:
    planned = plan(VIRGIN, {**DATA, "path": "/other"}, item)
    assert {*codes(planned)} == {"VARIABLE_INVALID"}
    texts = " ".join(one["message"] for one in planned["refusals"])
    assert f"nfs_mounts_mounts is wrong in item 2, expected {expected}" in texts


def test_path_below_another_one() -> None:
    """systemd mounts the upper one before the automount of the lower one starts."""
    items = [{**DATA, "path": f"/data{more}"} for more in ("/models", "", "-2", "/models/new")]
    texts = [one["message"] for one in plan(VIRGIN, *items)["refusals"]]
    assert len(texts) == 3
    for text, place in zip(texts, ("models", "models/new", "models/new"), strict=True):
        assert f"a list with /data/{place} below /data" in text
        assert "expected no path below another" in text


def test_path_twice() -> None:
    (found,) = plan(VIRGIN, DATA, {**DATA, "server": "other"})["refusals"]
    assert "a list with /data twice, expected each path once" in found["message"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data", "data"),
        ("/srv/my-data", r"srv-my\x2ddata"),
        ("/srv/.hidden", "srv-.hidden"),
        ("/.hidden", r"\x2ehidden"),
        ("/srv/a@b", r"srv-a\x40b"),
    ],
)
def test_names_of_units_are_those_of_systemd_escape(path: str, name: str) -> None:
    assert units.name(path) == name


def test_address_of_ip_version_6() -> None:
    (mount,), _wrong = units.parse([{**DATA, "server": "fd00::1"}], [])
    assert mount.what == "[fd00::1]:/srv/data"


def test_reload_of_systemd_names_who_loses_gpus() -> None:
    node = merge(merge(DONE, test_reload.UNLINKED), test_reload.NVIDIA)
    assert codes(plan(node)) == []
    (notice,) = [one for one in plan(node, DATA)["notices"] if one["code"] == "GPUS_LOST_BY_RELOAD"]
    assert "Write the units of the NFS mounts; " in notice["message"]
