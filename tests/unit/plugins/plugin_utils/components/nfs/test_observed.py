# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.probe.components import nfs
from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import (
    Node,
    Reading,
    Request,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.components.nfs.observed import observe
from ansible_collections.metal.gpu.plugins.plugin_utils.components.raw import Raw
from ansible_collections.metal.gpu.tests.unit.plugins.module_utils.read.test_mounts import (
    HOST,
    container,
)
from ansible_collections.metal.gpu.tests.unit.support import healthy
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

FOLDER = "/etc/systemd/system"
FTP = {"path": "/ftp", "type": "fuse.curlftpfs"}
AUTOFS, NFS4 = ({"path": "/data", "type": kind} for kind in ("autofs", "nfs4"))
BLOCK = """\
# BEGIN managed by Ansible, role metal.gpu.nfs_mounts
[Mount]
Where=/data
# END managed by Ansible, role metal.gpu.nfs_mounts
"""
TEXTS = {
    f"{FOLDER}/data.mount": BLOCK,
    f"{FOLDER}/secret.mount": "[Mount]\nOptions=password=canary\n",
    "/usr/lib/systemd/system/tmp.mount": "[Mount]\n",
    f"{FOLDER}/remote-fs.target.wants/data.automount": "",
    "/etc/fstab": "# /dev/sda1 /no ext4\nUUID=1 / ext4 rw 0 1\n"
    "//nas/x /my\\040files cifs password=canary\nUUID=2 none swap sw 0 0\n",
    "/proc/self/mountinfo": (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "23 22 0:5 / /proc rw - proc proc rw\n"
        "24 22 0:40 / /data rw - autofs systemd-1 rw,fd=51,timeout=0\n"
        "26 22 0:42 / /ftp rw - fuse.curlftpfs curlftpfs#ftp://u:canary@x/ rw\n"
        "25 24 0:41 / /data ro - nfs4 nas:/srv/data rw,hard,vers=4.2\n"
    ),
    "/proc/filesystems": "nodev\tproc\n\text4\n",
    "/proc/sys/kernel/osrelease": "6.1.0-50-amd64\n",
}


def read(folder: Path, **texts: str) -> Reading:
    plant(folder, {**TEXTS, **texts})
    node = Node(folder, lambda *_: (0, "", ""), lambda _name: None)
    files = NodeFiles(folder)
    files.read("/proc/sys/kernel/osrelease")
    return Reading(node, Request(), {}, {}, files, NodeFiles(folder))


def values(folder: Path, **texts: str) -> dict[str, Any]:
    return dict(nfs.PROBE.values(read(folder, **texts)))


def test_what_is_read(tmp_path: Path) -> None:
    found = values(tmp_path)
    assert found == {
        "units": {f"{FOLDER}/data.mount": ["[Mount]", "Where=/data"]},
        "mixed": [],
        "others": [f"{FOLDER}/secret.mount", "/usr/lib/systemd/system/tmp.mount"],
        "fstab": ["/", "/my files"],
        "mounted": [
            {"path": "/", "type": "ext4", "source": "/dev/sda1", "read_only": False, "version": ""},
            {**AUTOFS, "source": "systemd-1", "read_only": False, "version": ""},
            {**FTP, "source": "fuse.curlftpfs", "read_only": False, "version": ""},
            {**NFS4, "source": "nas:/srv/data", "read_only": True, "version": "4.2"},
        ],
        "users": {},
        "enabled": ["data.automount"],
        "kernel": False,
        "automount": False,
    }
    assert "canary" not in str(found)


@pytest.mark.parametrize(
    "folder",
    [
        *("/run/systemd/generator", "/run/systemd/system", "/run/systemd/transient"),
        *("/usr/local/lib/systemd/system", "/etc/systemd/system.control"),
    ],
)
def test_units_of_others_are_found_wherever_systemd_reads_them(tmp_path, folder) -> None:
    unit = f"{folder}/srv-data.automount"
    assert unit in values(tmp_path, **{unit: ""})["others"]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("nas:/x /data/ nfs noauto,x-systemd.automount", "/data"),
        ("nas:/x //data//sub nfs defaults", "/data/sub"),
        ("nas:/x /data/./sub nfs", "/data/sub"),
        ("nas:/x /data", "/data"),
    ],
)
def test_paths_of_fstab_are_those_that_the_kernel_has(tmp_path, line, path) -> None:
    assert values(tmp_path, **{"/etc/fstab": f"{line}\n"})["fstab"] == [path]


@pytest.mark.parametrize("more", ["[Mount]\nLazyUnmount=yes\n", "# mine\n"])
def test_units_with_lines_of_the_admin_beside_ours(tmp_path: Path, more: str) -> None:
    path = f"{FOLDER}/data.mount"
    assert values(tmp_path, **{path: f"{BLOCK}{more}"})["mixed"] == [path]
    assert values(tmp_path, **{path: f"\n{BLOCK}\n"})["mixed"] == []


def test_systemd_is_asked_whether_it_has_read_our_units(tmp_path: Path) -> None:
    reading = read(tmp_path)
    reading = reading._replace(values={"nfs": nfs.PROBE.values(reading)})
    (command,) = nfs.PROBE.commands(reading).values()
    assert command.argv[-2:] == ("--", "data.mount")
    nothing = reading._replace(values={"nfs": {"units": {}}})
    assert nfs.PROBE.commands(nothing) == {}
    shown = "Id=data.mount\nNeedDaemonReload=yes\n\nId=data.automount\nNeedDaemonReload=no\n"
    raw = healthy.docker_node().raw
    outputs = {**raw["outputs"], "nfs_units": {"rc": 0, "stdout": shown, "stderr": ""}}
    assert observe(Raw({**raw, "outputs": outputs}))["nfs"]["unread"] == ["data.mount"]
    assert observe(Raw(raw))["nfs"]["unread"] == []


def test_who_keeps_a_mount_of_ours(tmp_path: Path) -> None:
    texts = {"mountinfo": HOST, "comm": "init\n", "cgroup": "0::/\n"}
    plant(tmp_path, {f"/proc/1/{name}": text for name, text in texts.items()})
    texts |= {"mountinfo": container("nas:/srv/data"), "comm": "python3\n"}
    plant(tmp_path, {f"/proc/90/{name}": text for name, text in texts.items()})
    for number in ("1", "90"):
        (tmp_path / f"proc/{number}/ns").mkdir()
        (tmp_path / f"proc/{number}/ns/mnt").symlink_to(f"mnt:[{number}]")
    assert values(tmp_path)["users"] == {"/data": ["python3 (process 90)"]}


@pytest.mark.parametrize(
    ("path", "text", "kernel", "automount"),
    [
        ("/proc/filesystems", "nodev\tnfs\nnodev\tnfs4\nnodev\tautofs\n", True, True),
        ("/lib/modules/6.1.0-50-amd64/kernel/fs/nfs/nfsv4.ko.xz", "", True, False),
        ("/lib/modules/6.1.0-50-amd64/kernel/fs/autofs/autofs4.ko", "", False, True),
        ("/lib/modules/6.1.0-49-amd64/kernel/fs/nfs/nfsv4.ko", "", False, False),
    ],
)
def test_what_the_kernel_can_mount(tmp_path, path, text, kernel, automount) -> None:
    found = values(tmp_path, **{path: text})
    assert (found["kernel"], found["automount"]) == (kernel, automount)
