# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Serves a mirror over HTTP: `python -m metal_lab.mirror_server DIRECTORY ADDRESS PORT`.

The access log goes to standard error.
"""

from __future__ import annotations

import argparse
import io
import signal
import socketserver
import sys
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO


class _Handler(SimpleHTTPRequestHandler):
    # apt fetches many small files over one connection.
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, only: Sequence[str] = (), **options: Any) -> None:
        self._only = only or ("",)
        super().__init__(*arguments, **options)

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """Find a file of the folders that are there."""
        asked = Path(self.translate_path(self.path))
        if not any(asked.is_relative_to(Path(self.directory, one)) for one in self._only):
            self.send_error(404)
            return None
        return super().send_head()


class _Server(ThreadingHTTPServer):
    # A disconnected client must not keep the server from ending.
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without the inherited DNS look-up of this host, which takes seconds without DNS."""
        socketserver.TCPServer.server_bind(self)


def serve(directory: Path, address: str, port: int, only: Sequence[str] = ()) -> None:
    """Serve the directory, or some folders of it, until SIGTERM. Log requests to standard error."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    handler = partial(_Handler, directory=str(directory), only=only)
    with _Server((address, port), handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m metal_lab.mirror_server")
    parser.add_argument("directory", type=Path)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--only", action="append", default=[], metavar="FOLDER")
    serve(**vars(parser.parse_args()))
