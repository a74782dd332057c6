# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The volume driver of nvidia-docker 1.0, with the calls that Docker uses.

Source: https://docs.docker.com/engine/extend/plugins_volume/
"""

import json
import socketserver
from http.server import BaseHTTPRequestHandler
from pathlib import Path

SOCKET = Path("/run/docker/plugins/nvidia-docker.sock")
VOLUMES = Path("/run/nvidia-docker/volumes")


def answer(question, name):
    volume = VOLUMES / name
    if question == "/Plugin.Activate":
        return {"Implements": ["VolumeDriver"]}
    if question == "/VolumeDriver.Create":
        volume.mkdir(parents=True, exist_ok=True)
    elif question == "/VolumeDriver.Remove":
        volume.rmdir()
    elif question == "/VolumeDriver.List":
        return {"Volumes": [row(each) for each in VOLUMES.iterdir()]}
    elif question == "/VolumeDriver.Get":
        return {"Volume": row(volume)} if volume.is_dir() else {"Err": "no such volume"}
    return {"Mountpoint": str(volume)}


def row(volume):
    return {"Name": volume.name, "Mountpoint": str(volume)}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["Content-Length"] or 0)
        asked = json.loads(self.rfile.read(length) or "{}")
        body = json.dumps(answer(self.path, asked.get("Name", ""))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        """Say nothing: there is no address to name."""


SOCKET.parent.mkdir(parents=True, exist_ok=True)
SOCKET.unlink(missing_ok=True)
VOLUMES.mkdir(parents=True, exist_ok=True)
with socketserver.UnixStreamServer(str(SOCKET), Handler) as server:
    server.serve_forever()
