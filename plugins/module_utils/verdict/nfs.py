# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""Can a host mount the NFS exports that it needs? From the answers of the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.probe import nfs_server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_CODES = {
    nfs_server.UNREACHABLE: "NFS_SERVER_SILENT",
    nfs_server.VERSION: "NFS_VERSION_DIFFERS",
    nfs_server.MISSING: "NFS_EXPORT_MISSING",
    nfs_server.READ_ONLY: "NFS_READ_ONLY",
    nfs_server.UNPROVEN: "NFS_UNPROVEN",
}


def judge_exports(rows: Iterable[Mapping[str, str]], host: str) -> Iterator[dict[str, str]]:
    """Yield what the servers say about mounts: rows of metal.gpu.nfs_export_info."""
    for row in rows:
        evidence = {key: row[key] for key in ("server", "export", "path", "version", "evidence")}
        if row["hidden"]:
            yield finding("NFS_MOUNT_TAKEN", host, path=row["path"], evidence=row["hidden"])
        if row["state"] in _CODES:
            yield finding(_CODES[row["state"]], host, **evidence)
