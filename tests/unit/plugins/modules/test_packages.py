# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.read import nvidia_driver
from ansible_collections.metal.gpu.plugins.modules import node_info, packages
from ansible_collections.metal.gpu.plugins.plugin_utils.components.observation import interpret
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
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


ROWS = {"a": {"version": "1-1", "before": None}, "b": {"version": "", "before": "2-1"}}
FOUND = "b\t3-1\tinstalled\thold\tall\n"


def test_record_is_extended_and_completed(tmp_path: Path) -> None:
    request = {"path": str(tmp_path / "packages" / "role.json"), "packages": ROWS}
    created = {"a": str(tmp_path / "a.toml"), "b": str(tmp_path / "missing"), "c": __file__}
    plant(tmp_path, {"/a.toml": "x"})

    def recorded(**more: Any) -> Any:
        changed = packages.note({"path": request["path"], **more}, lambda _names: FOUND)["changed"]
        if not changed:
            return None
        record = json.loads(Path(request["path"]).read_text())
        assert record.pop("version") == 1
        return record

    assert recorded(packages=ROWS) == ROWS
    assert recorded(packages=ROWS, files={str(tmp_path / "apt.conf"): "x\n"}) is None
    assert (tmp_path / "apt.conf").read_text() == "x\n"
    complete = recorded(installed=["b", "gone"], created=created)
    assert complete["b"] == {"version": "3-1", "before": "2-1"}
    assert complete["a"] == {**ROWS["a"], "config_sha256": sha256(b"x").hexdigest()}
    assert [*complete] == ["a", "b"]
    assert recorded(packages={"a": {"version": "4-1"}})["a"]["config_sha256"]
    # An interrupted run leaves a plan that does not know the version that was installed.
    assert recorded(packages={"b": ROWS["b"]}) is None
    assert [path.name for path in Path(request["path"]).parent.iterdir()] == ["role.json"]


def test_created_configuration_is_recorded_as_it_is_observed(tmp_path: Path) -> None:
    config, record = nvidia_driver.TOOLKIT_CONFIG, "/var/lib/metal-gpu/packages/role.json"
    plant(tmp_path, {config: '[a]\nb = "\u00fc"\n', record: json.dumps(ROWS)})
    created = {"a": f"{tmp_path}{config}"}
    packages.note({"path": f"{tmp_path}{record}", "created": created}, lambda _names: "")
    programs = Programs({})
    node = node_info.Node(tmp_path, programs.run, programs.find)
    observed = interpret(json.loads(json.dumps(node_info.run(node, [], [])["raw"])))
    expected = observed["toolkit"]["config_sha256"]
    assert observed["ours"]["packages"]["role"]["packages"]["a"]["config_sha256"] == expected


@pytest.mark.parametrize("found", ["damaged", '{"a": {'])
def test_damaged_record_is_left_alone(tmp_path: Path, found: str) -> None:
    plant(tmp_path, {"/role.json": found})
    with pytest.raises(ValueError, match="line 1"):
        packages.note({"path": str(tmp_path / "role.json"), "packages": ROWS}, lambda _names: "")
    assert (tmp_path / "role.json").read_text() == found


def test_every_operation_is_documented() -> None:
    options = yaml.safe_load(packages.DOCUMENTATION)["options"]
    operations = packages.ARGUMENT_SPEC["operation"]["choices"]
    assert options["operation"]["choices"] == operations
    text = " ".join(options["operation"]["description"])
    assert [one for one in operations if f"V({one})" not in text] == []


DRIVER_URL = "https://user:pass@developer.example/cuda/repos/debian12/x86_64/"
DRIVER_FILE = "developer.example_cuda_repos_debian12_x86%5f64_InRelease"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param([], False, id="none"),
        pytest.param([DRIVER_FILE, "lock"], False, id="of the new repository alone"),
        pytest.param(
            [DRIVER_FILE, "deb.debian.org_debian_dists_bookworm_InRelease"],
            True,
            id="of the system",
        ),
        pytest.param(["mirror.local_dists_bookworm_Release"], True, id="not signed"),
    ],
)
def test_index_besides_that_of_a_repository(
    tmp_path: Path, files: list[str], expected: bool
) -> None:
    """The names are formed as apt forms those in /var/lib/apt/lists."""
    for name in files:
        (tmp_path / name).touch()
    assert packages.has_index(tmp_path, DRIVER_URL) is expected


def test_systems_without_apt_read_indexes_themselves(tmp_path: Path) -> None:
    assert packages.has_index(tmp_path / "none", DRIVER_URL)
