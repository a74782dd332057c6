# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The roles keep an admin's Docker, add to its settings, and none of its containers stops."""

from __future__ import annotations

import json
import re

import explained
import pytest
from scenes import started

DAEMON_JSON = "/etc/docker/daemon.json"
# docker.io of Debian 13 and 12, with what they get for GPUs. 20.10 has no CDI.
KEPT = {"gpu-2": "26.1.", "gpu-3": "20.10."}
CDI = {"gpu-2": {"features": {"cdi": True}}, "gpu-3": {}}
WITH_GPUS = "docker run --rm --gpus all --entrypoint true docker.io/library/busybox:1.35"
NO_DRIVER = 'could not select device driver "" with capabilities: [[gpu]]'


@pytest.fixture(params=KEPT)
def kept(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_option_is_in_force_or_waits(laboratory, kept):
    """Converge has given both nodes the same option. Only 26.1 can check it before a reload."""
    host = laboratory.host(kept)
    settings = json.loads(host.file(DAEMON_JSON).content_string)
    labels = json.loads(host.check_output("docker info --format '{{json .Labels}}'"))
    has_option = kept == "gpu-2"
    assert ("labels" in settings) is has_option
    assert labels == (["rack=7"] if has_option else [])


def test_a_reload_is_enough_for_gpus(laboratory, kept):
    host = laboratory.host(kept)
    before, settings = started(host), json.loads(host.file(DAEMON_JSON).content_string)
    version = host.check_output("docker info --format '{{.ServerVersion}}'")
    assert version.startswith(KEPT[kept])

    run = laboratory.playbook("metal.gpu.site", f"--limit={kept}")
    assert run.returncode == 0
    assert re.search(rf"{kept} .*?(\s+1){{5}}\s+1/1\s+ok\b", run.output)
    kept_version = re.escape(KEPT[kept])
    notices = [rf"ENGINE_KEPT {kept}: .*docker\.io {kept_version}", f"DOCKER_RESTART_DUE {kept}: "]
    if kept == "gpu-3":
        notices.append(f"DOCKER_OPTIONS_WAIT {kept}: changes of labels need a restart")
    for notice in notices:
        assert re.search(notice, run.words)

    assert started(host) == before
    assert host.check_output("docker info --format '{{.ServerVersion}}'") == version
    assert host.check_output("docker info --format '{{.DefaultRuntime}}'") == "nvidia"
    now = json.loads(host.file(DAEMON_JSON).content_string)
    added = {
        "default-runtime": "nvidia",
        **CDI[kept],
        "registry-mirrors": [*settings["registry-mirrors"], laboratory.facts["registry"]["url"]],
        "runtimes": {
            **settings["runtimes"],
            "nvidia": {"path": "/usr/bin/nvidia-container-runtime"},
        },
    }
    assert now == {**settings, **added}
    assert list(now)[: len(settings)] == list(settings)  # in their order


def test_docker_run_with_gpus_waits_for_a_restart(laboratory, kept):
    """As the notice has said: Docker looks for the toolkit only when it starts."""
    said = laboratory.host(kept).run(WITH_GPUS).stderr
    assert NO_DRIVER in said
    assert "systemctl restart docker" in explained.first(said).remedy


RESTART = '{"docker_ce_restart_ok": true, "docker_ce_daemon_options": {"labels": ["rack=8"]}}'


def test_option_that_needs_a_restart_comes_with_one(laboratory):
    """The admin's container has live-restore."""
    host = laboratory.host("gpu-3")
    docker, container = started(host)
    run = laboratory.playbook(
        "metal.gpu.site", "--limit=gpu-3", "--tags=engine", f"--extra-vars={RESTART}"
    )
    assert run.returncode == 0
    assert host.check_output("docker info --format '{{json .Labels}}'") == '["rack=8"]'
    assert host.check_output("docker info --format '{{.DefaultRuntime}}'") == "nvidia"
    after = started(host)
    assert after[0] != docker
    assert after[1] == container
    assert NO_DRIVER not in host.run(WITH_GPUS).stderr


def test_value_of_the_admin_is_refused_by_name(laboratory):
    host = laboratory.host("gpu-2")
    before = host.file(DAEMON_JSON).content_string
    options = '{"docker_ce_daemon_options": {"log-opts": {"max-size": "1g"}}}'
    run = laboratory.playbook("metal.gpu.site", "--limit=gpu-2", f"--extra-vars={options}")
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    assert re.search(rf"DOCKER_OPTION_TAKEN gpu-2: {DAEMON_JSON} .* log-opts.max-size", run.words)
    assert host.file(DAEMON_JSON).content_string == before
