# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options and the proxy of an admin's Docker, set and taken back; its container never stops."""

from __future__ import annotations

import json
import re
from typing import Any

import installed
import pytest
from scenes import ADMINS_SERVICE, started

NODE = "gpu-2"
DAEMON_JSON = "/etc/docker/daemon.json"
ENGINE = ("metal.gpu.site", f"--limit={NODE}", "--tags=engine")
DROP_IN = "/etc/systemd/system/docker.service.d/metal-gpu-proxy.conf"
VALUES = DROP_IN.replace(".conf", ".env")
LABELS = {"labels": ["rack=7"]}  # what the inventory says
PASSWORD = "s3cret%2Fword"
PROXY = {"http": f"http://user:{PASSWORD}@127.0.0.1:3128", "no_proxy": ".example.org"}


@pytest.fixture
def host(laboratory: Any) -> Any:
    return laboratory.host(NODE)


def engine(laboratory: Any, *options: str, **variables: Any) -> Any:
    run = laboratory.playbook(*ENGINE, "-e", json.dumps(variables), *options)
    assert run.returncode == 0
    return run


def info(host: Any) -> Any:
    return json.loads(host.check_output("docker info --format '{{json .}}'"))


def log_options(host: Any) -> Any:
    """Return the options that a new container gets."""
    host.check_output("docker create --name probe docker.io/library/busybox:1.35")
    try:
        form = "{{json .HostConfig.LogConfig.Config}}"
        return json.loads(host.check_output("docker inspect --format %s probe", form))
    finally:
        host.check_output("docker rm probe")


def test_options_are_set_changed_and_taken_back(laboratory, host):
    """One needs a restart, the other a reload. The table of the first one is the admin's."""
    before, (_docker, container) = host.file(DAEMON_JSON).content_string, started(host)
    admins = log_options(host)
    for compress, downloads in (("true", 5), ("false", 6)):
        options = {"log-opts": {"compress": compress}, "max-concurrent-downloads": downloads}
        wanted = {"docker_ce_daemon_options": {**LABELS, **options}, "docker_ce_restart_ok": True}
        run = engine(laboratory, **wanted)
        assert "Restart Docker" in run.words
        assert log_options(host) == {**admins, "compress": compress}
        text = host.file(DAEMON_JSON).content_string
        assert json.loads(text)["max-concurrent-downloads"] == downloads
        lines = [line.rstrip(",") for line in text.splitlines()]
        others = [line.rstrip(",") for line in before.splitlines() if "log-opts" not in line]
        assert [line for line in lines if line in others] == others
        assert NODE in engine(laboratory, **wanted).unchanged

    waiting = engine(laboratory)  # without a permission, everything stays as it is
    assert re.search(rf"DOCKER_OPTIONS_WAIT {NODE}: changes of \S*log-opts.compress", waiting.words)
    assert log_options(host) == {**admins, "compress": "false"}
    engine(laboratory, docker_ce_restart_ok=True)
    assert host.file(DAEMON_JSON).content_string == before
    assert log_options(host) == admins
    assert started(host)[1] == container


def test_run_that_was_cut_off_before_the_reload(laboratory, host):
    """It has written the option as the role does, and Docker does not know it yet."""
    before = started(host)
    edit = {
        "path": DAEMON_JSON,
        "actor": "metal.gpu.docker_ce",
        "merge": {"labels": ["rack=9"]},
    }
    command = ["ansible", NODE, "--become", "-m", "metal.gpu.config_document", "-a"]
    written = installed.run([*command, json.dumps(edit)], laboratory.inventory, laboratory.folder)
    assert written.returncode == 0
    assert info(host)["Labels"] == ["rack=7"]

    options = {"docker_ce_daemon_options": {"labels": ["rack=9"]}}
    run = engine(laboratory, **options)
    assert "an interrupted run has changed labels" in run.words
    assert info(host)["Labels"] == ["rack=9"]
    assert started(host) == before
    assert NODE in engine(laboratory, **options).unchanged

    engine(laboratory)
    assert info(host)["Labels"] == ["rack=7"]


def test_proxy_is_in_force_and_its_password_is_not_shown(laboratory, host):
    (_docker, container), settings = started(host), host.file(DAEMON_JSON).content_string
    wanted = {"docker_ce_proxy": PROXY, "docker_ce_restart_ok": True}
    # Its value is in the variables of this run, so a file gives them.
    variables = laboratory.folder / "proxy.yml"
    variables.write_text(json.dumps(wanted))
    run = laboratory.playbook(*ENGINE, "-vvv", "--diff", "-e", f"@{variables}")
    assert run.returncode == 0
    assert PASSWORD not in run.output
    assert PASSWORD.replace("%", "%%") not in run.output
    found = info(host)
    assert re.fullmatch(r"http://\S+@127\.0\.0\.1:3128/?", found["HttpProxy"])
    assert found["NoProxy"] == ".example.org"
    # What the process has, without systemd's specifiers.
    environment = host.check_output("tr '\\0' '\\n' < /proc/$(pidof dockerd)/environ").splitlines()
    assert f"HTTP_PROXY={PROXY['http']}" in environment
    # Every user can see the settings of a unit.
    assert host.file(VALUES).mode == 0o600
    assert PASSWORD not in host.check_output("sudo -u nobody systemctl show docker.service")
    assert NODE in laboratory.playbook(*ENGINE, "-e", f"@{variables}").unchanged

    engine(laboratory, docker_ce_restart_ok=True)
    assert not any(host.file(path).exists for path in (DROP_IN, VALUES))
    assert info(host)["HttpProxy"] == ""
    assert host.file(DAEMON_JSON).content_string == settings
    assert started(host)[1] == container


def test_proxy_that_docker_has_not_read(laboratory, host):
    """The run was cut off before the restart."""
    wanted = {"docker_ce_proxy": {"http": "http://127.0.0.1:3129"}, "docker_ce_restart_ok": True}
    engine(laboratory, **wanted)
    host.check_output("sleep 0.1 && touch %s", VALUES)
    run = engine(laboratory, **wanted)
    assert "the proxy was written after Docker started" in run.words
    assert NODE in engine(laboratory, **wanted).unchanged
    engine(laboratory, docker_ce_restart_ok=True)
    assert not any(host.file(path).exists for path in (DROP_IN, VALUES))
    state = host.check_output("docker inspect --format '{{.State.Status}}' %s", ADMINS_SERVICE)
    assert state == "running"
