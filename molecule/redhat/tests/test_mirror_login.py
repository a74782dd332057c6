# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container toolkit on gpu-2 from a mirror that wants a password.

Before the other tests, which find the node as the role would have set it up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest
from private_mirror import PORT, READER, private_mirror

DOCKER = str(Path(__file__).parent.parent / "docker.yml")
ABSENT = ("-e", "nvidia_container_runtime_state=absent")
OURS = "/etc/yum.repos.d/metal-gpu-container-toolkit.repo"
LOG = "/var/log/dnf.librepo.log"
PASSWORD = "Canary4mirror@:/%#"
LOGIN = f"{READER}:{quote(PASSWORD, safe='')}"
# It does not match itself: commands are in the journal, by sudo.
PATTERN = "[C]anary4mirror"
FILES = f"""
    find / /tmp /run /var -xdev \\( -path '*/log/journal' -o -path /usr \\) -prune -o \\
        -type f -size -64M -print0 |
    xargs -0 grep --text --files-with-matches --no-messages --regexp='{PATTERN}' | sort -u |
    xargs --no-run-if-empty --delimiter='\\n' stat --format='%a %U %n'
"""
JOURNAL = "journalctl --no-pager --all --output=verbose | grep --text --quiet"
SEEN = "/run/metal-lab-seen"
WATCH = f"""
: > {SEEN}
while sleep 0.2; do
    grep --text --files-with-matches --no-messages --regexp='{PATTERN}' \\
        /proc/[0-9]*/cmdline >> {SEEN}
done
"""


@pytest.fixture(scope="module")
def host(laboratory):
    """gpu-2 without the toolkit. At the end, it is back, from the mirror without a password."""
    host = laboratory.host("gpu-2")
    assert laboratory.playbook(DOCKER, *ABSENT).returncode == 0
    assert not host.file(OURS).exists
    yield host
    assert laboratory.playbook(DOCKER).returncode == 0
    assert "username" not in host.file(OURS).content_string


def files(host) -> list[str]:
    """Return the files that have the password, with mode and owner. Not the journal."""
    return host.check_output(FILES).splitlines()


@contextmanager
def watched(host) -> Iterator[None]:
    """Assert that no process of the node has the password among its arguments."""
    host.check_output("systemd-run --quiet --unit=metal-lab-watch /bin/sh -c %s", WATCH)
    try:
        yield
    finally:
        host.check_output("systemctl stop metal-lab-watch")
    assert host.check_output(f"cat {SEEN}") == ""


def test_password_of_a_mirror_is_only_in_a_file_of_root(laboratory, host, tmp_path):
    gateway, mirror = laboratory.facts["gateway"], laboratory.facts["mirror"]["url"]
    address = laboratory.facts["mirror"]["repositories"]["toolkit-rpm"]["url"]
    place = f"{address.replace(mirror, f'{gateway}:{PORT}')}/"
    variables = tmp_path / "variables.json"
    url = f"http://{LOGIN}@{place}"
    variables.write_text(json.dumps({"nvidia_container_runtime_repository_url": url}))
    options = ("-e", f"@{variables}", "-vvvv", "--diff")
    with private_mirror(gateway, mirror, [PASSWORD]) as readers, watched(host):
        check = laboratory.playbook(DOCKER, *options, "--check")
        assert check.returncode == 0
        assert readers == {laboratory.addresses["gpu-2"]}  # the rehearsal has logged in
        assert files(host) == []

        readers.clear()
        run = laboratory.playbook(DOCKER, *options)
        assert run.returncode == 0
        assert readers == {laboratory.addresses["gpu-2"]}
        assert host.package("nvidia-container-toolkit").is_installed
        text = host.file(OURS).content_string
        assert f"baseurl = http://{place}\n" in text
        assert f"password = {PASSWORD}\n" in text
        again = laboratory.playbook(DOCKER, *options)
        assert "gpu-2" in again.unchanged

    assert files(host) == [f"600 root {OURS}"]
    assert place in host.file(LOG).content_string
    assert host.run(f"{JOURNAL} '[I]nvoked with'").rc == 0  # the modules of Ansible
    assert host.run(f"{JOURNAL} '{PATTERN}'").rc == 1
    absent = laboratory.playbook(DOCKER, *ABSENT, *options)
    assert absent.returncode == 0
    assert files(host) == []
    runs = (check, run, again, absent)
    assert [one.output.count("Canary4mirror") for one in runs] == [0] * len(runs)
