# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What installs and removes the driver of a `.run` file, and which lines of its logs are shown."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.packages import operations, runfile
from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import Request

FOLDER = "/var/lib/metal-gpu/packages/nvidia_driver.run"


def request(url: str) -> Request:
    record = {
        "path": "/var/lib/metal-gpu/packages/nvidia_driver.json",
        "packages": {".run": {"version": "580.178.04", "before": None}},
    }
    options = {"operation": "runfile", "url": url, "checksum": "AB", "record": record}
    return Request({**options, "names": None, "arguments": ["--silent", "--dkms"]})


@pytest.mark.parametrize("family", ["debian", "redhat"])
@pytest.mark.parametrize(
    ("url", "module"),
    [("https://x/y.run", "ansible.builtin.get_url"), ("/srv/y.run", "ansible.builtin.copy")],
)
def test_file_is_fetched_and_checked(family: str, url: str, module: str) -> None:
    steps = operations.steps("fetch_runfile", family, request(url))
    # What an earlier run left goes.
    assert [call.options for call in steps.first] == [{"path": FOLDER, "state": "absent"}]
    parent, folder, fetch, check, _gone = steps.work
    assert parent.options["mode"] == "0755"
    assert folder.options == {"path": FOLDER, "state": "directory", "mode": "0700"}
    assert (fetch.module, fetch.finding) == (module, "RUNFILE_UNAVAILABLE")
    assert fetch.options["dest"] == f"{FOLDER}/fetched"
    assert (check.options["checksum"], check.finding) == ("sha256:ab", "RUNFILE_CHECKSUM")
    # Not in the home of a user, or in /tmp.
    assert check.options["tmp_dest"] == fetch.options.get("tmp_dest", FOLDER) == FOLDER
    assert check.options["url"] == f"file://{FOLDER}/fetched"
    # It stays for the installation, unless something is wrong with it.
    assert (steps.last, steps.undo[0].options) == ((), {"path": FOLDER, "state": "absent"})


@pytest.mark.parametrize("family", ["debian", "redhat"])
def test_checked_file_is_run_and_deleted(family: str) -> None:
    steps = operations.steps("runfile", family, request(""))
    # The record comes first.
    assert [call.module for call in steps.first] == ["metal.gpu.packages"]
    (run,) = steps.work
    checked = operations.steps("fetch_runfile", family, request("")).work[3].options["dest"]
    assert run.options["argv"][-3:] == [checked, "--silent", "--dkms"]
    assert f"TMPDIR={FOLDER}" in run.options["argv"]
    (last,) = steps.last
    assert last.options == {"path": FOLDER, "state": "absent"}


def test_uninstaller() -> None:
    first, *logs = operations.steps("no_runfile", "debian", request("")).work
    assert first.options["argv"][-2:] == ["/usr/bin/nvidia-uninstall", "--silent"]
    assert [call.options["path"] for call in logs] == [
        "/var/log/nvidia-installer.log",
        "/var/log/nvidia-uninstall.log",
    ]


def test_logs_are_shown_after_a_failure(tmp_path: Path) -> None:
    """The words of the driver's and of DKMS's log, and not those of an earlier driver."""
    log = tmp_path / "installer.log"
    script = runfile._RUN.replace(runfile.LOG, str(log)).replace(
        runfile._BUILD_LOGS, str(tmp_path / "make*.log")
    )
    file = tmp_path / "driver.run"
    file.write_text(f'echo "ERROR: $1" > {log}; exit 3\n')
    (tmp_path / "make.log").write_text("nv.c:1: error: of an earlier driver\n")
    subprocess.run(["touch", "-d", "2020-01-01", tmp_path / "make.log"], check=True)
    subprocess.run(["touch", "-d", "2021-01-01", file], check=True)
    done = subprocess.run(
        ["sh", "-c", script, "sh", file, "no compiler"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, "ERROR: no compiler\n")


# The forms are those of failures/quotes: DKMS 3, gcc, and nvidia-installer's own sentences.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "non-zero return code\n\nERROR: Failed to run `/usr/sbin/dkms build`:\n"
            "make[1]: Entering directory\nnv-mm.h:80:5: error: too many arguments to function\n"
            "Error! Bad return status for module build on kernel: 6.1.0-26-amd64 (x86_64)\n",
            "ERROR: Failed to run `/usr/sbin/dkms build`:; "
            "nv-mm.h:80:5: error: too many arguments to function; "
            "Error! Bad return status for module build on kernel: 6.1.0-26-amd64 (x86_64)",
        ),
        ("non-zero return code\nkilled\n", "non-zero return code; killed"),
        ("ERROR: a\n" * 20, "ERROR: a"),
    ],
)
def test_telling_lines(text: str, expected: str) -> None:
    assert runfile.telling(text) == expected
