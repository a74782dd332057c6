# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""site.yml keeps an admin's Docker and adds the runtime to it. None of its containers stops."""

from __future__ import annotations

import json
import re
from typing import Any

from scenes import ADMINS_SERVICE

DAEMON_JSON = "/etc/docker/daemon.json"


def started(host: Any) -> list[str]:
    """Return when Docker and the admin's container started."""
    commands = (
        "systemctl show --value -p ActiveEnterTimestampMonotonic docker.service",
        "docker inspect --format '{{.Id}} {{.State.StartedAt}} {{.State.Status}}' "
        + ADMINS_SERVICE,
    )
    return [host.check_output(command) for command in commands]


def test_a_reload_is_enough_for_gpus(laboratory):
    host = laboratory.host("gpu-2")
    before, settings = started(host), json.loads(host.file(DAEMON_JSON).content_string)
    version = host.check_output("docker info --format '{{.ServerVersion}}'")
    assert version.startswith("26.1.")  # of Debian 13

    run = laboratory.playbook("metal.gpu.site", "--limit=gpu-2")
    assert run.returncode == 0
    assert re.search(r"gpu-2 .*?(\s+1){5}\s+1/1\s+ok\b", run.output)
    for notice in (r"ENGINE_KEPT gpu-2: .*docker\.io 26\.1\.", "DOCKER_RESTART_DUE gpu-2: "):
        assert re.search(notice, run.words)

    assert started(host) == before
    assert host.check_output("docker info --format '{{.ServerVersion}}'") == version
    assert host.check_output("docker info --format '{{.DefaultRuntime}}'") == "nvidia"
    now = json.loads(host.file(DAEMON_JSON).content_string)
    added = {
        "default-runtime": "nvidia",
        "features": {"cdi": True},
        "runtimes": {
            **settings["runtimes"],
            "nvidia": {"path": "/usr/bin/nvidia-container-runtime"},
        },
    }
    assert now == {**settings, **added}
    assert list(now)[: len(settings)] == list(settings)  # in their order
