#!/usr/bin/python

# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
module: nfs_export_info
short_description: Ask NFS servers whether this host can mount their exports
version_added: 1.0.0
author:
  - metal.gpu contributors (!UNKNOWN)
description:
  - Asks each server by its own protocol whether it answers this host, has the version, has the
    export for this host, and lets root write to it. Mounts nothing, so that it also works on a
    kernel without NFS. Reads no file of the export.
  - With NFS 3, it asks for the handle of the export as a mount does, and gives it back.
  - With NFS 4.1 and later, only NFS 4.0 can be asked for the export itself without a session. A
    server without it is V(unproven), unless the mount asks for 4.0 itself.
extends_documentation_fragment:
  - metal.gpu.attributes.reads
options:
  host: {description: "The name of this host, for findings.", type: str, required: true}
  mounts:
    description: The mounts.
    type: list
    elements: dict
    required: true
    suboptions:
      server: {description: Name or address of the server., type: str, required: true}
      export: {description: Path of the export on the server., type: str, required: true}
      path: {description: Where this host mounts it., type: str, required: true}
      version:
        description: Version of NFS.
        type: str
        choices: ["3", "4", "4.0", "4.1", "4.2"]
        default: "4.2"
      read_only: {description: Whether nothing is to be written., type: bool, default: false}
      squashed:
        description: Whether the server makes root of this host nobody. Then nothing shows whether
          other users may write.
        type: bool
        default: false
      port:
        description: Port of NFS. V(0) is the usual one, or for NFS 3 the one that the server names.
        type: int
        default: 0
      mount_port:
        description: Port of the mount protocol of NFS 3. V(0) is the one that the server names.
        type: int
        default: 0
      security:
        description: Security of the mount. With another one than V(sys), such as C(sec=krb5p), it
          asks only whether the server answers and has the version, and the export is V(unproven).
        type: str
        default: sys
      transport:
        description: Transport of the mount. With another one than V(tcp), such as C(proto=rdma), it
          asks nothing, and the export is V(unproven).
        type: str
        default: tcp
  timeout: {description: Seconds to wait for each answer., type: int, default: 10}
  look_at_paths:
    description: Whether to look for other mounts and links at the paths, and for files that the
      mounts would hide. It looks into no folder where something is mounted, or below a file system
      that is not of this host, because a server that is gone would block it.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Ask the server
  metal.gpu.nfs_export_info:
    host: "{{ inventory_hostname }}"
    mounts:
      - {server: nas.example, export: /srv/data, path: /srv/data}
"""

RETURN = r"""
findings:
  description: What is wrong, in the form of P(metal.gpu.finding#filter).
  returned: success
  type: list
  elements: dict
mounts:
  description: Each of O(mounts), with the answer.
  returned: success
  type: list
  elements: dict
  contains:
    server: {description: The server., type: str}
    export: {description: The export., type: str}
    path: {description: The path., type: str}
    version: {description: The version., type: str}
    state:
      description: V(ok), or V(unreachable), V(version) (the server has another one), V(missing) (it
        has no such export for this host), V(read_only) (root may not write), or V(unproven).
      type: str
    evidence: {description: What the server said., type: str}
    hidden:
      description: Why nothing should be mounted there, such as files at the path that a mount would
        hide, or a link. Empty if there is no reason, or if it did not look.
      type: str
  sample:
    - server: nas.example
      export: /srv/data
      path: /srv/data
      version: "4.2"
      state: version
      evidence: "3"
      hidden: ""
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.metal.gpu.plugins.module_utils.probe import nfs_server
from ansible_collections.metal.gpu.plugins.module_utils.probe.mount_point import read_obstacle
from ansible_collections.metal.gpu.plugins.module_utils.read.mounts import parse_mounts
from ansible_collections.metal.gpu.plugins.module_utils.verdict.nfs import judge_exports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TABLE = Path("/proc/self/mountinfo")
ARGUMENT_SPEC: dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "mounts": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "server": {"type": "str", "required": True},
            "export": {"type": "str", "required": True},
            "path": {"type": "str", "required": True},
            "version": {
                "type": "str",
                "choices": ["3", "4", "4.0", "4.1", "4.2"],
                "default": "4.2",
            },
            "read_only": {"type": "bool", "default": False},
            "squashed": {"type": "bool", "default": False},
            "port": {"type": "int", "default": 0},
            "mount_port": {"type": "int", "default": 0},
            "security": {"type": "str", "default": nfs_server.SYS},
            "transport": {"type": "str", "default": nfs_server.TCP},
        },
    },
    "timeout": {"type": "int", "default": 10},
    "look_at_paths": {"type": "bool", "default": True},
}


def run(
    host: str, mounts: Sequence[Mapping[str, Any]], timeout: float, *, look_at_paths: bool = True
) -> dict[str, Any]:
    table = parse_mounts(_TABLE.read_text(encoding="utf-8", errors="replace"))
    rows = []
    for one in mounts:
        answer = nfs_server.ask(
            nfs_server.Mount(
                one["server"],
                one["export"],
                one["version"],
                # What root may do says nothing if root is nobody.
                read_only=one["read_only"] or one["squashed"],
                port=one["port"],
                mount_port=one["mount_port"],
                security=one["security"],
                transport=one["transport"],
            ),
            timeout,
        )
        named = {key: one[key] for key in ("server", "export", "path", "version")}
        hidden = read_obstacle(one["path"], table) if look_at_paths else ""
        rows.append({**named, **answer._asdict(), "hidden": hidden})
    return {"changed": False, "mounts": rows, "findings": [*judge_exports(rows, host)]}


def main() -> None:
    module = AnsibleModule(argument_spec=ARGUMENT_SPEC, supports_check_mode=True)
    module.exit_json(**run(**module.params))


if __name__ == "__main__":
    main()
