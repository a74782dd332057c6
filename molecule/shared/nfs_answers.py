# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A server that answers what a real one has answered (tests/recorded/nfs.yml).

Nothing can be mounted from it: it knows only the calls of the record.
"""

from __future__ import annotations

import contextlib
import socketserver
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

RECORD = Path(__file__).resolve().parents[2] / "tests/recorded/nfs.yml"
CALLS = yaml.safe_load(RECORD.read_text())["calls"]
ANSWERS = {
    (*row["call"], row["arguments"]): bytes.fromhex(row["reply"].replace(" ", "")) for row in CALLS
}
# Answers that this server did not give: an accepted call with another state.
ACCEPTED = struct.pack(">4I", 1, 0, 0, 0)
ONLY_NFS_3 = {(100003, 4, 0, ""): ACCEPTED + struct.pack(">3I", 2, 3, 3)}
_LAST = 1 << 31  # in the length of a message's last part


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while head := self.request.recv(4, 0x100):  # all of them
            (length,) = struct.unpack(">I", head)
            message = self.request.recv(length & ~_LAST, 0x100)
            identity, _call, _rpc, *call = struct.unpack(">6I", message[:24])
            (credential,) = struct.unpack(">I", message[28:32])
            arguments = message[32 + credential + 8 :].hex()
            answer = self.server.answers.get((*call, arguments))  # type: ignore[attr-defined]
            if answer is None:
                return
            record = struct.pack(">I", identity) + answer
            # In two parts, as servers may send it.
            for part, last in ((record[:8], 0), (record[8:], _LAST)):
                self.request.sendall(struct.pack(">I", last | len(part)) + part)


class Server(socketserver.ThreadingTCPServer):
    """NFS and its mount protocol, at one port."""

    daemon_threads = True
    allow_reuse_address = True
    answers: dict[Any, Any]

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@contextlib.contextmanager
def serve(address: str = "127.0.0.1") -> Iterator[Server]:
    """Run a server at a free port. Its answers can be changed."""
    with Server((address, 0), _Handler) as server:
        server.answers = dict(ANSWERS)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()
