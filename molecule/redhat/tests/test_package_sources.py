# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The container toolkit on gpu-2 from a mirror that is out of step, and from the admin's sources.

Before the other tests, which find the node as the role would have set it up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

DOCKER = str(Path(__file__).parent.parent / "docker.yml")
OWN = ("-e", "nvidia_container_runtime_repository=false")
ABSENT = ("-e", "nvidia_container_runtime_state=absent")
SOURCES = ("site-a", "site-b")
OURS = "/etc/yum.repos.d/metal-gpu-container-toolkit.repo"
TOOLKIT = (
    *("nvidia-container-toolkit", "nvidia-container-toolkit-base"),
    *("libnvidia-container-tools", "libnvidia-container1"),
)


def written(laboratory, name, priority):
    """Write an admin's file, and return its text."""
    url = laboratory.facts["mirror"]["repositories"]["toolkit-rpm"]["url"]
    text = f"[{name}]\nname={name}\nbaseurl={url}/\nenabled=1\ngpgcheck=0\npriority={priority}\n"
    host = laboratory.host("gpu-2")
    host.check_output("printf %s > %s", text, f"/etc/yum.repos.d/{name}.repo")
    return text


@pytest.fixture(scope="module")
def host(laboratory):
    """gpu-2 without the toolkit. At the end, it is back, from the repository of the role."""
    host = laboratory.host("gpu-2")
    assert laboratory.playbook(DOCKER, *ABSENT).returncode == 0
    assert not host.file(OURS).exists
    yield host
    for name in SOURCES:
        host.check_output("rm -f %s", f"/etc/yum.repos.d/{name}.repo")
    assert laboratory.playbook(DOCKER).returncode == 0
    assert host.file(OURS).exists


@contextmanager
def without(missing: str, repository: str, address: str) -> Iterator[str]:
    """Serve a repository without the files that match a pattern. Yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if re.search(missing, self.path):
                self.send_error(404)
                return
            self.send_response(302)
            self.send_header("Location", f"{repository}{self.path}")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing: pytest shows what a test prints."""

    with ThreadingHTTPServer((address, 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{address}:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("missing", "options", "reason"),
    [
        pytest.param("-primary[.]xml", ("--check",), r"404 for [0-9a-f]+-primary", id="check"),
        pytest.param("-primary[.]xml", (), r"404 for [0-9a-f]+-primary", id="index"),
        # Check mode fetches no packages, so only the real run sees it.
        pytest.param("[.]rpm$", (), r"404 \S*nvidia-container\S*[.]rpm", id="packages"),
    ],
)
def test_mirror_whose_index_is_newer_than_its_files(laboratory, host, missing, options, reason):
    """The metadata is signed and complete, and names files that are not there yet."""
    repository = laboratory.facts["mirror"]["repositories"]["toolkit-rpm"]["url"]
    with without(missing, repository, laboratory.facts["gateway"]) as url:
        mirror = ("-e", f"nvidia_container_runtime_repository_url={url}/")
        run = laboratory.playbook(DOCKER, *mirror, *options)
    assert run.returncode != 0
    assert re.search(rf"REPOSITORY_INCOMPLETE gpu-2: .*{reason}", run.words)
    assert host.check_output("rpm -qa '*nvidia-container*'") == ""
    assert not host.file(OURS).exists


@pytest.mark.parametrize("options", [("--check",), ()], ids=["check", "run"])
def test_no_source_has_the_packages(laboratory, host, options):
    run = laboratory.playbook(DOCKER, *OWN, *options)
    assert run.returncode != 0
    assert re.search(r"PACKAGE_VERSION_MISSING gpu-2: .*nvidia-container-toolkit", run.words)
    assert "it uses the sources of the node alone" in run.words
    assert host.check_output("rpm -qa '*nvidia-container*'") == ""


def test_sources_that_compete_are_named_with_the_winner(laboratory, host):
    """The lower number wins, whatever the order of the files is."""
    texts = {name: written(laboratory, name, 90 - at) for at, name in enumerate(SOURCES)}
    names = ", ".join(TOOLKIT)
    said = f"several sources have {names}: site-a, site-b; dnf takes site-b"
    assert said in laboratory.playbook(DOCKER, *OWN, "--check").words
    run = laboratory.playbook(DOCKER, *OWN)
    assert run.returncode == 0
    assert said in run.words
    assert not host.file(OURS).exists
    listed = host.check_output("dnf --quiet list --installed")
    for name in TOOLKIT:
        assert re.search(rf"^{name}\.x86_64\s+1\.20\.1-1\s+@site-b\s", listed, re.M)

    again = laboratory.playbook(DOCKER, *OWN, "-vvv")
    assert "gpu-2" in again.unchanged
    assert again.operations()[laboratory.addresses["gpu-2"]] == 1

    assert laboratory.playbook(DOCKER, *OWN, *ABSENT).returncode == 0
    assert host.check_output("rpm -qa '*nvidia-container*'") == ""
    for name, text in texts.items():
        assert host.file(f"/etc/yum.repos.d/{name}.repo").content_string == text
