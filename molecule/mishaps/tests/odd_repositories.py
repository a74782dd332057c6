# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Repositories for apt that are signed with their right key, and that apt does not accept."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from metal_lab.keys import gpg_of

_LATER = timedelta(days=400)
# What gpg gets for each repository: for its key, and for its signature.
_KEYS = {"weak": ["--cert-digest-algo=SHA1"]}
NAMES = ("half-synced", "not-yet", "signed-later", "weak")


def publish(folder: Path) -> None:
    """Write all of them. `half-synced`: the index names another size of a file.

    `not-yet`: the release has a date in the future, which is what a clock in the past sees.
    `signed-later`: so does the signature. `weak`: the key's own signature uses SHA-1.
    """
    now = datetime.now(UTC)
    for name in NAMES:
        place = folder / name
        place.mkdir()
        text = b""
        (place / "Packages").write_bytes(text)
        size = 999 if name == "half-synced" else len(text)
        date = now + _LATER if name == "not-yet" else now
        (place / "Release").write_text(
            f"Origin: {name}\nLabel: {name}\nDate: {format_datetime(date, usegmt=True)}\n"
            f"SHA256:\n {hashlib.sha256(text).hexdigest()} {size} Packages\n"
        )
        at = [f"--faked-system-time={now + _LATER:%Y%m%dT%H%M%S}!"] * (name == "signed-later")
        with TemporaryDirectory(prefix="gpg-") as home, gpg_of(Path(home)) as gpg:
            gpg(*_KEYS.get(name, []), "--quick-generate-key", name, "rsa3072", "sign", "never")
            (place / "gpgkey").write_text(gpg("--armor", "--export"))
            gpg(*at, "--clearsign", f"--output={place / 'InRelease'}", place / "Release")


@contextmanager
def served(folder: Path, address: str) -> Iterator[dict[str, dict[str, str]]]:
    """Serve a folder, and yield the address and the address of the key of each repository."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer((address, 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        url = f"http://{address}:{server.server_port}"
        try:
            yield {name: {"url": f"{url}/{name}", "key": f"{url}/{name}/gpgkey"} for name in NAMES}
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        """Say nothing: pytest shows what a test prints."""
