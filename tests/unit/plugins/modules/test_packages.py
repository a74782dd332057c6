# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.modules import packages
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

PID_FILE = "/var/lib/dnf/rpmdb_lock.pid"
PROCESS = {PID_FILE: "812", "/proc/812/cmdline": "dnf\0upgrade\0"}


class Clock:
    """A clock that goes on while somebody sleeps; then another process may end."""

    def __init__(self, root: Path, ends_at: float) -> None:
        self.now, self.root, self.ends_at = 0.0, root, ends_at

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        if self.now >= self.ends_at:
            (self.root / PID_FILE.lstrip("/")).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("seconds", "ends_at", "waited", "is_held"),
    [
        pytest.param(0, 999, 0, True, id="only asked"),
        pytest.param(15, 999, 15, True, id="held"),
        pytest.param(15, 4, 4, False, id="free at once when the process ends"),
        pytest.param(15, 15, 15, False, id="free at the end"),
    ],
)
def test_wait(tmp_path: Path, seconds: float, ends_at: float, waited: float, is_held: bool) -> None:
    plant(tmp_path, PROCESS)
    clock = Clock(tmp_path, ends_at)
    lock = packages.run(tmp_path, seconds, clock, clock.sleep)["lock"]
    assert clock.now == waited
    assert lock == (
        {"path": PID_FILE, "pid": 812, "command": "dnf upgrade", "started": None}
        if is_held
        else None
    )


def test_free(tmp_path: Path) -> None:
    clock = Clock(tmp_path, 0)
    assert packages.run(tmp_path, 15, clock, clock.sleep) == {"lock": None}
    assert clock.now == 0


def test_every_operation_is_documented() -> None:
    options = yaml.safe_load(packages.DOCUMENTATION)["options"]
    operations = packages.ARGUMENT_SPEC["operation"]["choices"]
    assert options["operation"]["choices"] == operations
    text = " ".join(options["operation"]["description"])
    assert [one for one in operations if f"V({one})" not in text] == []
