# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What installs and removes a driver with NVIDIA's `.run` file, and what its failure says.

The same on all systems. No function does I/O.

Source: nvidia-installer(1); the places of the logs: DEFAULT_LOG_FILE_NAME and
DEFAULT_UNINSTALL_LOG_FILE_NAME of NVIDIA/nvidia-installer
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from ansible_collections.metal.gpu.plugins.plugin_utils.packages.calls import (
    Call,
    Request,
    Steps,
    absent,
    record,
    tidied,
)

LOG = "/var/log/nvidia-installer.log"
_UNINSTALL_LOG = "/var/log/nvidia-uninstall.log"
_CHECKED = "driver.run"
# Nothing is written there in check mode, but the module wants the folder to exist.
_NOWHERE = "/var/lib/metal-gpu.run"
_UNINSTALLER = "/usr/bin/nvidia-uninstall"
_BUILD_LOGS = "/var/lib/dkms/nvidia*/*/build/make.log"
# Logs that are older than the file are about an earlier driver.
_RUN = (
    'file=$1; shift; sh "$file" "$@" && exit; code=$?; '
    f"for log in {LOG} {_BUILD_LOGS}; do "
    '[ "$log" -nt "$file" ] && tail -n 200 "$log" >&2; done; exit $code'
)
_TELLING = re.compile(
    r"^ERROR:|\berror:|\bfatal error\b|^Error!|Bad return status|No space left|Key was rejected"
    r"|Required key not available|undefined!|is not able to|Unknown option|unrecognized option"
)
_LINES = 8


def _folder(request: Request) -> PurePosixPath:
    return PurePosixPath(request.record["path"]).with_suffix(".run")


def fetch(request: Request) -> Steps:
    """Fetch the file into a folder that only root can enter, and check it.

    The second copy is the checked one: until then, the file has no name that anything runs. The
    folder is beside the record, so a run that was cut off leaves nothing that the next one does not
    replace or delete.
    """
    folder = _folder(request)
    fetched, checked = str(folder / "fetched"), str(folder / _CHECKED)
    # The module's own temporary folder would be in the home of the user, or in /var/tmp.
    temporary = {"tmp_dest": str(folder), "mode": "0600", "force": True}
    url, checksum = request.options["url"], request.options["checksum"]
    if "://" in url:
        get = Call(
            "ansible.builtin.get_url",
            {"url": url, "dest": fetched, **temporary},
            explains=False,
            finding="RUNFILE_UNAVAILABLE",
        )
    else:
        get = Call(
            "ansible.builtin.copy",
            {"src": url, "dest": fetched, "mode": "0600"},
            explains=False,
            finding="RUNFILE_UNAVAILABLE",
        )
    check = Call(
        "ansible.builtin.get_url",
        {
            "url": f"file://{fetched}",
            "dest": checked,
            **temporary,
            "checksum": f"sha256:{checksum.lower()}",
        },
        explains=False,
        finding="RUNFILE_CHECKSUM",
    )
    return Steps(
        first=(absent(str(folder), explains=False, changes=False),),
        work=(
            # Otherwise, the folders above it would get its mode.
            _directory(folder.parent, "0755"),
            _directory(folder, "0700"),
            get,
            check,
            absent(fetched, explains=False, changes=False),
        ),
        undo=(absent(str(folder), explains=False, changes=False), tidied()),
    )


def question(url: str) -> Call:
    """Return the call by which the node, in check mode, asks a server for the head of the file."""
    options = {"url": url, "dest": _NOWHERE, "mode": "0600", "force": True}
    return Call("ansible.builtin.get_url", options, explains=False, changes=False)


def _directory(path: PurePosixPath, mode: str) -> Call:
    options = {"path": str(path), "state": "directory", "mode": mode}
    return Call("ansible.builtin.file", options, explains=False)


def install(request: Request) -> Steps:
    """Run the file that was fetched and checked, and delete it. It unpacks itself in its folder."""
    folder = _folder(request)
    run = ["env", "LC_ALL=C", f"TMPDIR={folder}", "sh", "-c", _RUN, "sh", str(folder / _CHECKED)]
    return Steps(
        first=record(request),
        work=(
            Call(
                "ansible.builtin.command",
                {"argv": [*run, *request.options["arguments"]]},
                explains=False,
                finding="RUNFILE_FAILED",
            ),
        ),
        last=(absent(str(folder), explains=False, changes=False),),
    )


def uninstall(_request: Request) -> Steps:
    """Let the driver's own uninstaller remove it, and remove the logs of both."""
    argv = ["env", "LC_ALL=C", _UNINSTALLER, "--silent"]
    return Steps(
        work=(
            Call(
                "ansible.builtin.command",
                {"argv": argv, "removes": _UNINSTALLER},
                explains=False,
                finding="RUNFILE_NOT_REMOVED",
            ),
            absent(LOG, explains=False, changes=False),
            absent(_UNINSTALL_LOG, explains=False, changes=False),
        )
    )


OPERATIONS = {"fetch_runfile": fetch, "runfile": install, "no_runfile": uninstall}


def telling(error: str) -> str:
    """Return the lines of an error that say what went wrong; all of it if none of them does."""
    lines = [" ".join(line.split()) for line in error.splitlines()]
    found = [line for line in dict.fromkeys(lines) if line and _TELLING.search(line)]
    return "; ".join(found[:_LINES]) or "; ".join([line for line in lines if line][:_LINES])
