# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NFS client and the units on a host whose kernel has no NFS, so nothing is mounted.

The server only answers what a real one has answered. test_teardown.py removes the client.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from nfs_answers import ONLY_NFS_3, Server, serve

HOST = "gpu-1"
FOLDER = "/etc/systemd/system"
OURS = ["srv-nfs.automount", "srv-nfs.mount"]
# systemd escapes the minus of /srv/more-data.
OTHERS = [rf"srv-more\x2ddata.{kind}" for kind in ("automount", "mount")]
PACKAGE = "dpkg-query --show --showformat '${db:Status-Status}' nfs-common"
STATE = (
    "find /etc /var/lib/metal-gpu -type f -exec sha256sum {} + | sort; dpkg-query --show; ls /srv"
)
# Molecule's own recorder of runs.
RECORDER = ("ANSIBLE_CALLBACK_PLUGINS", "ANSIBLE_CALLBACKS_ENABLED", "RUN_RECORD")


def play(laboratory: Any, mounts: list[dict[str, Any]], *options: str) -> Any:
    wanted = json.dumps({"nfs_mounts_mounts": mounts})
    return laboratory.playbook(
        *("metal.gpu.docker_hosts", "--tags=nfs", f"--limit={HOST}", *options),
        f"--extra-vars={wanted}",
        **{name: os.environ[name] for name in RECORDER},
    )


def mount(server: Server, export: str, path: str) -> dict[str, Any]:
    address, port = server.server_address[:2]
    return {
        **{"server": str(address), "export": export, "path": path},
        "options": ["hard", f"port={port}"],
    }


@pytest.fixture(scope="module")
def host(laboratory: Any) -> Iterator[Any]:
    """A host whose kernel has no NFS, also where that of this machine has it."""
    found, systems = laboratory.host(HOST), "/run/filesystems"
    found.check_output(f"grep --invert-match nfs /proc/filesystems > {systems}")
    found.check_output(f"mount --bind {systems} /proc/filesystems")
    yield found
    found.check_output(f"umount /proc/filesystems && rm {systems}")


@pytest.fixture(scope="module")
def server(laboratory: Any) -> Iterator[Server]:
    with serve(laboratory.facts["gateway"]) as found:
        yield found


@pytest.fixture(scope="module")
def mounts(server: Server) -> list[dict[str, Any]]:
    return [mount(server, "/rw", path) for path in ("/srv/nfs", "/srv/more-data")]


def test_exports_that_cannot_be_used_change_nothing(laboratory, host, server):
    before = host.check_output(STATE)
    with serve(laboratory.facts["gateway"]) as old:
        old.answers |= ONLY_NFS_3
        wrong = [mount(server, "/none", "/srv/none"), mount(server, "/ro", "/srv/ro")]
        run = play(laboratory, [*wrong, mount(old, "/rw", "/srv/old")])
    assert run.returncode != 0
    for words in (
        rf"NFS_EXPORT_MISSING {HOST}: \S+ does not export /none to this host: .*\(error 2\)",
        rf"NFS_READ_ONLY {HOST}: root of this host may not write to \S+:/ro,",
        rf"NFS_VERSION_DIFFERS {HOST}: .* at /srv/old needs: it has 3, expected 4\.2",
    ):
        assert re.search(words, run.words)
    assert host.check_output(STATE) == before


@pytest.fixture(scope="module")
def written(laboratory: Any, host: Any, mounts: list[dict[str, Any]]) -> Any:
    """Return the run that writes the units. A run in check mode has changed nothing before."""
    before = host.check_output(STATE)
    check = play(laboratory, mounts, "--check")
    assert check.returncode == 0
    assert host.check_output(STATE) == before
    run = play(laboratory, mounts)
    assert run.returncode == 0
    return run


def test_check_announced_what_the_run_did(written, runs):
    check, run = runs[-2:]
    assert (check.check, run.check) == (True, False)
    assert {task for _host, task in check.announced} >= {
        "Install the NFS client",
        "Write the units of the NFS mounts",
    }
    assert check.announced == run.announced
    assert check.announced <= run.ran
    assert run.unannounced == set()


def test_client_is_that_of_the_system(host, written):
    assert host.check_output(PACKAGE) == "installed"
    assert host.run("mount.nfs -V").rc == 0


def test_systemd_of_the_host_accepts_the_units(host, written, server):
    units = [f"{FOLDER}/{name}" for name in (*OURS, *OTHERS)]
    # Without the option, the exit code says nothing about warnings.
    verify = "systemd-analyze verify --recursive-errors=no"
    found = host.run(f"{verify} {' '.join(['%s'] * len(units))}", *units)
    assert (found.rc, re.findall(r".*srv-.*", found.stderr)) == (0, [])
    keys = ("What", "Where", "Type", "Options", "LoadState")
    loaded = host.check_output("systemctl show --property=%s %s", ",".join(keys), OTHERS[1])
    address, port = server.server_address[:2]
    assert {*loaded.splitlines()} == {
        f"What={address}:/rw",
        "Where=/srv/more-data",
        "Type=nfs",
        f"Options=vers=4.2,rw,hard,port={port}",
        "LoadState=loaded",
    }


def test_kernel_without_nfs_starts_nothing(host, written):
    assert re.search(rf"NFS_KERNEL_MISSING {HOST}: .* are written, and not started", written.words)
    states = host.run("systemctl is-active %s %s", *OURS).stdout.split()
    assert states == ["inactive", "inactive"]
    assert host.run("systemctl is-enabled %s", OURS[0]).stdout.strip() == "disabled"
    assert host.run("ls /srv/nfs").rc != 0


def test_second_run_changes_no_unit(laboratory, host, written, mounts):
    run = play(laboratory, mounts)
    assert HOST in run.unchanged
    assert f"NFS_KERNEL_MISSING {HOST}: " in run.words


def test_mount_that_is_no_longer_in_the_list_goes(laboratory, host, written, mounts):
    run = play(laboratory, mounts[:1])
    assert run.returncode == 0
    there = host.check_output(f"ls {FOLDER}").split()
    assert [name for name in there if name.startswith("srv-")] == OURS
    for name in OTHERS:
        state = host.check_output("systemctl show --value --property=LoadState %s", name)
        assert state == "not-found"
    assert host.check_output(PACKAGE) == "installed"  # until nfs_mounts_state is absent
    assert HOST in play(laboratory, mounts[:1]).unchanged
