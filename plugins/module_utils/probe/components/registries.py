# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""What to read about registries, mirrors and logins in the files of container engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Probe
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    docker,
    document_history_files,
    registries,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.command_line import value_of

if TYPE_CHECKING:
    from ansible_collections.metal.gpu.plugins.module_utils.probe.node_files import NodeFiles
    from ansible_collections.metal.gpu.plugins.module_utils.probe.probe import Reading


class Values(TypedDict):
    """What only this component reads."""

    files: list[str]  # the files of interest, whether they exist or not
    modes: dict[str, str | None]  # of these, and of our keys
    folders: dict[str, list[str]]


def _roots(reading: Reading) -> list[str]:
    """Return the folders of folders of registries, also those that containerd names or has named.

    containerd reports its configuration in one form, and also what its files have in another one.
    """
    texts = [text for path, text in reading.files.texts.items() if path.endswith(".toml")]
    if "containerd_dump" in reading.outputs:
        texts.append(reading.outputs["containerd_dump"].stdout)
    named = [one for text in texts for one in registries.mentioned_folders(text)]
    roots = [*dict.fromkeys((*registries.CERTIFICATES, *named))]
    return [*roots, *_former(reading.files, roots)]


def _former(files: NodeFiles, roots: list[str]) -> list[str]:
    """Return the folders in which the role wrote before the admin has chosen others.

    A history has the real path of its file, which can be below a link that is still in use.
    """
    known = {files.real(path) for root in roots for path in (root, *files.find(f"{root}/*"))}
    edited = map(document_history_files.parse_file_name, files.find(document_history_files.PATTERN))
    folders = [
        one.path.rpartition("/")[0]
        for one in edited
        if one.actor == registries.ACTOR and one.path.endswith(f"/{registries.HOSTS}")
    ]
    left = {folder: folder.rpartition("/")[0] for folder in folders if folder not in known}
    return [root for root in dict.fromkeys(left.values()) if root not in known]


def _logins(reading: Reading) -> list[str]:
    texts = [text for path, text in reading.files.texts.items() if path.startswith("/etc/crio/")]
    return [one for text in texts for one in registries.mentioned_logins(text)]


def _read(reading: Reading) -> None:
    reading.files.read_all(_logins(reading))
    _read_folders(reading)


def _read_folders(reading: Reading) -> None:
    files = reading.files
    for root in _roots(reading):
        for name in (registries.HOSTS, *registries.OWN):
            for path in files.find(f"{root}/*/{name}"):
                if path not in files.texts:
                    files.read(path)


def _late_values(reading: Reading) -> Values:
    _read_folders(reading)
    files, roots = reading.files, _roots(reading)
    daemon_json = (
        value_of(reading.services[docker.UNIT].in_force, *docker.CONFIG_FLAGS)
        or docker.DEFAULT_CONFIG
    )
    found = [
        *(path for pattern in registries.FILES for path in files.find(pattern)),
        *_logins(reading),
        *(path for root in roots for path in files.find(f"{root}/*/{registries.HOSTS}")),
        daemon_json,
        registries.CRIO_DROP_IN,
    ]
    keys = [path for root in roots for path in files.find(f"{root}/*/{registries.KEY}")]
    return {
        "files": [*dict.fromkeys(found)],
        "modes": {path: files.mode(path) for path in dict.fromkeys((*found, *keys))},
        "folders": {
            **{
                above: []
                for root in roots
                for above in registries.folders_above(root)
                if files.is_folder(above)
            },
            **{
                folder: [path.rpartition("/")[2] for path in files.find(f"{folder}/*")]
                for root in roots
                for folder in (root, *files.find(f"{root}/*"))
                if files.is_folder(folder)
            },
        },
    }


PROBE = Probe(files=registries.FILES, read=_read, late_values=_late_values)
