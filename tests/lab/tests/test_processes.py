# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from metal_lab.processes import is_alive, start, stop, wait_until


def test_start_and_stop(tmp_path):
    process = start(["sleep", "60"], tmp_path / "log")
    assert is_alive(process)
    stop([process])
    assert not is_alive(process)


def test_a_reused_process_id_is_another_process(tmp_path):
    process = start(["sleep", "60"], tmp_path / "log")
    other = process._replace(started=process.started - 1)
    assert not is_alive(other)
    stop([other])
    assert is_alive(process)
    stop([process])


def test_wait_shows_why_a_program_ended(tmp_path):
    log = tmp_path / "log"
    process = start(["sh", "-c", "echo port 6443 is taken; sleep 0.05"], log)
    with pytest.raises(SystemExit, match="port 6443 is taken"):
        wait_until(lambda: False, "kube-apiserver", process, log)
