# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The package manager fails on virgin nodes: the message says why, and nothing stays behind."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import odd_repositories
import pytest

NODE = str(Path(__file__).parent.parent / "node.yml")
NODES = ("gpu-1", "gpu-2", "gpu-3")
ROLE = "nvidia_container_runtime"
PACKAGES = "find /etc/apt -type f -exec sha256sum {} +; dpkg-query --show"


def packages(laboratory: Any) -> list[str]:
    return [laboratory.host(node).check_output(PACKAGES) for node in NODES]


def repository(offered: dict[str, str], gpg_home: Path) -> dict[str, str]:
    """Return the variables of a user who pins the key that the repository offers."""
    with urllib.request.urlopen(offered["key"]) as answer:
        listing = subprocess.run(
            ["gpg", f"--homedir={gpg_home}", "--show-keys", "--with-colons"],
            input=answer.read(),
            check=True,
            stdout=subprocess.PIPE,
        ).stdout.decode()
    fields = next(line.split(":") for line in listing.splitlines() if line.startswith("fpr:"))
    return {
        f"{ROLE}_repository_url": f"{offered['url']}/",
        f"{ROLE}_repository_key": offered["key"],
        f"{ROLE}_repository_fingerprint": fields[9],
    }


@pytest.fixture
def failures(laboratory: Any, tmp_path: Path) -> Any:
    """Return a function that runs the role on nodes with different variables.

    It asserts that the role fails on all of them, and returns the message of each on one line.
    """

    def run(variables: dict[str, dict[str, str]], *options: str) -> dict[str, str]:
        def edit(group: Any) -> None:
            for node, values in variables.items():
                group["hosts"][node] |= values

        inventory = laboratory.inventory_with(tmp_path / "inventory.yml", edit)
        result = laboratory.playbook(
            NODE, "--tags=runtime", f"--limit={','.join(variables)}", *options, inventory=inventory
        )
        assert result.returncode == 2
        printed = re.findall(r"^fatal: \[(\S+)\]: FAILED! => (.*)$", result.output, re.M)
        words = dict(printed)  # the last message counts
        assert set(words) == set(variables)
        return words

    return run


def test_repositories_that_cannot_be_used(laboratory, failures, tmp_path):
    """Signed by an unknown key, signed by an expired key, and unreachable."""
    untrusted = laboratory.facts["mirror"]["untrusted"]
    before = packages(laboratory)

    stranger, expired = (repository(untrusted[name], tmp_path) for name in ("stranger", "expired"))
    found = failures({"gpu-1": stranger, "gpu-2": expired, "gpu-3": expired})
    found |= {
        f"{node} again": words
        for node, words in failures(
            {
                "gpu-1": {f"{ROLE}_repository_fingerprint": "0" * 40},
                "gpu-2": {f"{ROLE}_repository_url": f"http://{laboratory.facts['gateway']}:9/"},
                "gpu-3": stranger,
            }
        ).items()
    }
    codes = {case: re.findall(r"REPOSITORY_\w+", words) for case, words in found.items()}
    assert codes == {
        "gpu-1": ["REPOSITORY_UNTRUSTED", "REPOSITORY_REMOVED"],
        # An expired key is refused before anything is written.
        "gpu-2": ["REPOSITORY_UNTRUSTED"],
        "gpu-3": ["REPOSITORY_UNTRUSTED"],
        "gpu-1 again": ["REPOSITORY_UNTRUSTED"],
        "gpu-2 again": ["REPOSITORY_UNREACHABLE", "REPOSITORY_REMOVED"],
        "gpu-3 again": ["REPOSITORY_UNTRUSTED", "REPOSITORY_REMOVED"],
    }
    for case, evidence in {
        "gpu-1": stranger[f"{ROLE}_repository_fingerprint"],  # the expected key
        "gpu-2": "expired on 2020-01-02",
        "gpu-3": "expired on 2020-01-02",
        "gpu-1 again": "0" * 40,
        "gpu-2 again": "Connection refused",
        "gpu-3 again": stranger[f"{ROLE}_repository_fingerprint"],
    }.items():
        assert evidence in found[case], case
    assert packages(laboratory) == before


def test_mirrors_that_apt_does_not_accept_today(laboratory, failures, tmp_path):
    """Half-synced, later than the clock of the node, and with a key that sqv finds too weak."""
    before = packages(laboratory)
    folder = tmp_path / "odd"
    folder.mkdir()
    odd_repositories.publish(folder)
    with odd_repositories.served(folder, laboratory.facts["gateway"]) as offered:
        odd = {name: repository(one, tmp_path) for name, one in offered.items()}
        # Only gpu-3 has Debian 13, whose apt checks signatures with sqv.
        found = failures(
            {"gpu-1": odd["half-synced"], "gpu-2": odd["not-yet"], "gpu-3": odd["signed-later"]}
        )
        found |= {"gpu-3 again": failures({"gpu-3": odd["weak"]})["gpu-3"]}
    assert {case: re.findall(r"REPOSITORY_\w+", words) for case, words in found.items()} == {
        "gpu-1": ["REPOSITORY_INCOMPLETE", "REPOSITORY_REMOVED"],
        "gpu-2": ["REPOSITORY_CLOCK", "REPOSITORY_REMOVED"],
        "gpu-3": ["REPOSITORY_CLOCK", "REPOSITORY_REMOVED"],
        "gpu-3 again": ["REPOSITORY_KEY_WEAK", "REPOSITORY_REMOVED"],
    }
    for case, evidence in {
        "gpu-1": "Hash Sum mismatch",
        "gpu-2": "is not valid yet",
        "gpu-3": "Not live until",
        "gpu-3 again": "SHA1 is not considered secure",
    }.items():
        assert evidence in found[case], case
    assert packages(laboratory) == before


# A package of the admin that conflicts with one of the role's.
CONFLICTING = """
mkdir -p /tmp/tool/DEBIAN
printf '%s\\n' 'Package: admin-tool' 'Version: 1' 'Architecture: all' \\
  'Maintainer: x <x@y.invalid>' 'Conflicts: libnvidia-container1' 'Description: x' \\
  > /tmp/tool/DEBIAN/control
dpkg-deb --build /tmp/tool /tmp/tool.deb && dpkg --install /tmp/tool.deb
rm -r /tmp/tool /tmp/tool.deb
"""
# Names, times and sizes of what belongs to the package manager.
STATE = "find /etc/apt /var/lib/apt /var/cache/apt /var/lib/dpkg -printf '%p %T@ %s %l\\n' | sort"


@pytest.fixture
def conflicting(laboratory: Any) -> Iterator[None]:
    host = laboratory.host("gpu-3")
    host.check_output(CONFLICTING)
    yield
    host.check_output("dpkg --purge admin-tool")


@pytest.mark.usefixtures("conflicting")
def test_check_mode_finds_it_first_and_touches_nothing(laboratory, failures, tmp_path):
    """The same findings as of a real run, and no file of the package manager changes."""
    stranger = repository(laboratory.facts["mirror"]["untrusted"]["stranger"], tmp_path)
    before = {node: laboratory.host(node).check_output(STATE) for node in NODES}
    found = failures(
        {"gpu-1": stranger, "gpu-2": {f"{ROLE}_version": "1.20.99"}, "gpu-3": {}}, "-C"
    )
    assert "REPOSITORY_UNTRUSTED" in found["gpu-1"]
    assert "REPOSITORY_REMOVED" not in found["gpu-1"]
    assert "PACKAGE_VERSION_MISSING" in found["gpu-2"]
    assert "in version 1.20.99-1; available versions: 1.20.1-1" in found["gpu-2"]
    assert "PACKAGES_DISPLACED" in found["gpu-3"]
    assert "does not name: admin-tool" in found["gpu-3"]
    assert {node: laboratory.host(node).check_output(STATE) for node in NODES} == before
    left = [laboratory.host(node).run("ls -d /var/tmp/metal-gpu-*") for node in NODES]
    assert [one.stdout for one in left] == ["", "", ""]


# The runs that are cut off start here: below, only gpu-3 needs to be virgin.
@pytest.mark.usefixtures("cut_runs")
def test_repository_that_exists_with_another_key(laboratory, failures):
    """With both, apt reads no source at all. So the role removes its own again."""
    host, path = laboratory.host("gpu-3"), "/etc/apt/sources.list.d/mirror.list"
    url = laboratory.group["vars"][f"{ROLE}_repository_url"]
    source = f"deb-src [signed-by=/usr/share/keyrings/mirror.gpg] {url} /"
    host.check_output("echo %s > %s", source, path)
    try:
        (words,) = failures({"gpu-3": {}}).values()
    finally:
        host.check_output("rm %s", path)
    assert re.findall(r"REPOSITORY_\w+", words) == ["REPOSITORY_TWICE", "REPOSITORY_REMOVED"]
    assert not host.file("/etc/apt/sources.list.d/metal-gpu-container-toolkit.sources").exists


def test_version_that_the_repository_does_not_have(laboratory, failures):
    (words,) = failures({"gpu-3": {f"{ROLE}_version": "1.20.99"}}).values()
    assert "PACKAGE_VERSION_MISSING" in words
    assert "in version 1.20.99-1; available versions: 1.20.1-1" in words
    assert "nvidia-container-toolkit" not in laboratory.host("gpu-3").check_output("dpkg-query -W")


@pytest.mark.usefixtures("conflicting")
def test_nothing_of_the_admin_is_removed_besides(laboratory, failures):
    (words,) = failures({"gpu-3": {}}).values()
    assert "PACKAGES_DISPLACED" in words
    installed = laboratory.host("gpu-3").check_output("dpkg-query --show")
    assert "admin-tool" in installed
    assert "nvidia-container-toolkit" not in installed


@pytest.fixture
def locked(laboratory: Any) -> Iterator[Any]:
    """Let another process hold the package manager's lock on gpu-3; return a function to end it."""
    laboratory.lab("fault", "gpu-3", "lock-packages")
    ended = []

    def end() -> None:
        if not ended:
            ended.append(laboratory.lab("fault", "gpu-3", "free-packages"))

    yield end
    end()


def test_locked_package_manager_is_reported(laboratory, failures, locked):
    (words,) = failures({"gpu-3": {"metal_gpu_lock_timeout": "20"}}).values()
    assert "PACKAGE_MANAGER_LOCKED" in words
    assert re.search(
        r"unattended-upgrade \(process \d+\) held the package manager's lock for more than 20 s",
        words,
    )
    _command, output = laboratory.printed[-1]
    progress = re.findall(
        r"^gpu-3: .*unattended-upgrade \(process \d+, started [\d-]+ [\d:]+ UTC\) holds the "
        r"package manager's lock; the run waits (\d+) s more$",
        output,
        re.M,
    )
    assert progress[0] == "20"
    assert len(progress) == 2


def test_run_waits_for_the_package_manager(laboratory, locked):
    def end_it_once_the_run_waits(line: str) -> None:
        if "PACKAGE_MANAGER_BUSY" in line:
            locked()

    run = laboratory.playbook(
        NODE, "--tags=driver", "--limit=gpu-3", watch=end_it_once_the_run_waits
    )
    assert run.returncode == 0
    holder = r"unattended-upgrade \(process \d+\) holds the package manager's lock"
    assert re.search(rf"{holder}; the run waits up to \d+ s", run.words)
