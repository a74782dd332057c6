# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A connection to this machine, which is observed as another one."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.plugins.connection.local import Connection as Local

DOCUMENTATION = """
name: answering
short_description: Answer observations from a record, and run everything else here
description:
  - Answers M(metal.gpu.node_info) with the content of the file C(ANSWER), in which the host's name
    replaces the name of the recorded node, and its last character the start of the GPUs' UUIDs.
    Commands find the host's name in C(ANSWERED_HOST).
author: [metal.gpu contributors]
extends_documentation_fragment: [connection_pipelining]
options: {}
"""


class Connection(Local):  # type: ignore[misc] # it has no types
    transport = "answering"

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        host = str(self._play_context.remote_addr)
        if in_data and b"modules.node_info" in in_data:
            answer = Path(os.environ["ANSWER"]).read_text().replace("gpu-1", host)
            return 0, answer.replace("GPU-0", f"GPU-{host[-1]}").encode(), b""
        command = f"ANSWERED_HOST={host} {cmd}"
        code, output, errors = super().exec_command(command, in_data, sudoable)
        return code, output, errors
