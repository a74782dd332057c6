# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to nodes that do not exist. It answers at once, from what a real node answered."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any
from zlib import crc32

from ansible.errors import AnsibleError
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: recorded
short_description: Answer observations from a record
description:
  - Answers M(metal.gpu.node_info) with the content of the file C(METAL_BENCH_RECORD), in which the
    host's name replaces the name of the recorded node, C(METAL_BENCH_NODE), and the UUIDs of the
    GPUs differ. Fails for everything else.
author: [metal.gpu contributors]
options: {}
"""


class Connection(ConnectionBase):
    transport = "recorded"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        if in_data is None or b"modules.node_info" not in in_data:
            raise AnsibleError(f"only observations are recorded, not: {cmd}")
        record = Path(os.environ["METAL_BENCH_RECORD"]).read_bytes()
        node, host = os.environ["METAL_BENCH_NODE"], str(self._play_context.remote_addr)
        own = f"GPU-{crc32(host.encode()):08x}"  # each machine has GPUs of its own
        record = re.sub(rb"GPU-[0-9a-f]{8}", own.encode(), record)
        return 0, record.replace(node.encode(), host.encode()), b""

    def put_file(self, in_path: str, out_path: str) -> Any:
        raise AnsibleError(f"there is no node to put {in_path} on")

    def fetch_file(self, in_path: str, out_path: str) -> Any:
        raise AnsibleError(f"there is no node to fetch {in_path} from")

    def close(self) -> None:
        self._connected = False
