# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A mirror that wants a password, in front of that of the laboratory."""

from __future__ import annotations

import base64
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.error import HTTPError

READER = "reader"
PORT = 8081


@contextmanager
def private_mirror(address: str, upstream: str, passwords: Iterable[str]) -> Iterator[set[str]]:
    """Serve the laboratory's mirror to who has a password; give the addresses that have read."""
    logins = {
        f"Basic {base64.b64encode(f'{READER}:{password}'.encode()).decode()}"
        for password in passwords
    }
    readers: set[str] = set()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Authorization") not in logins:
                self._answer(401, b"", "WWW-Authenticate", 'Basic realm="mirror"')
                return
            try:
                with opener.open(upstream + self.path) as answer:
                    content = answer.read()
            except HTTPError as error:
                self._answer(error.code, b"")
                return
            readers.add(self.client_address[0])
            self._answer(200, content)

        def _answer(self, code: int, content: bytes, *header: str) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            if header:
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_words: Any) -> None:
            pass

    with ThreadingHTTPServer((address, PORT), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield readers
        finally:
            server.shutdown()
            thread.join()
