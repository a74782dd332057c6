# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import json
import socketserver
import tarfile
import threading
from urllib.parse import parse_qs, urlsplit

import pytest

from metal_lab.pod_images import write_image
from metal_lab.registry_content import Client, parse, push, sha256

IMAGE = "nvcr.io/nvidia/k8s/tool:v1"


class _Server(socketserver.ThreadingUnixStreamServer):
    """The part of a registry that takes what is pushed, as the specification has it."""

    daemon_threads = True
    blobs: dict[tuple[str, str], bytes]
    manifests: dict[tuple[str, str], bytes]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_words: object) -> None:
        pass

    def _answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        url = urlsplit(self.path)
        repository = url.path.removeprefix("/v2/").removesuffix("/blobs/uploads/")
        query = parse_qs(url.query)
        if query:
            (digest,), (source,) = query["mount"], query["from"]
            self.server.blobs[repository, digest] = self.server.blobs[source, digest]
            self._answer(201)
        else:
            self._answer(202, Location=f"/upload/{repository}?state=1")

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        url = urlsplit(self.path)
        if url.path.startswith("/upload/"):
            (digest,) = parse_qs(url.query)["digest"]
            correct = digest == sha256(body)
            self.server.blobs[url.path.removeprefix("/upload/"), digest] = body
            self._answer(201 if correct else 400)
            return
        repository, _, name = url.path.removeprefix("/v2/").partition("/manifests/")
        content = json.loads(body)
        parts = [content["config"], *content["layers"]] if "config" in content else []
        known = all((repository, part["digest"]) in self.server.blobs for part in parts)
        listed = all(
            (repository, image["digest"]) in self.server.manifests
            for image in content.get("manifests", [])
        )
        correct = content["mediaType"] == self.headers["Content-Type"]
        for key in (name, sha256(body)):
            self.server.manifests[repository, key] = body
        self._answer(201 if known and listed and correct else 404)


@pytest.fixture
def server(tmp_path):
    with _Server(str(tmp_path / "socket"), _Handler) as running:
        running.blobs, running.manifests = {}, {}
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("image", "repositories", "tag"),
    [
        (
            "nvcr.io/nvidia/cuda:13.0.2-base",
            ("nvidia/cuda", "nvcr.io/nvidia/cuda"),
            "13.0.2-base",
        ),
        ("registry.k8s.io/pause:3.10", ("pause", "registry.k8s.io/pause"), "3.10"),
    ],
)
def test_image_is_in_the_repositories_that_a_mirror_is_asked_for(image, repositories, tag):
    reference = parse(image)
    assert (reference.repositories, reference.tag) == (repositories, tag)


@pytest.mark.parametrize("repository", ["nvidia/k8s/tool", "nvcr.io/nvidia/k8s/tool"])
def test_pushed_image_is_complete(tmp_path, server, repository):
    archive = tmp_path / "tool.tar"
    write_image(archive, IMAGE, {"bin/tool": b"program"}, env=["A=b"])
    name, digests = push(Client(tmp_path / "socket"), archive)
    assert name == IMAGE

    tag = server.manifests[repository, "v1"]
    assert sha256(tag) == digests["digest"]
    (image,) = json.loads(tag)["manifests"]
    assert image["platform"] == {"os": "linux", "architecture": "amd64"}
    body = server.manifests[repository, image["digest"]]
    assert image["size"] == len(body)
    manifest = json.loads(body)
    config = json.loads(server.blobs[repository, manifest["config"]["digest"]])
    (layer,) = manifest["layers"]
    assert layer["digest"] == digests["layer"]
    packed = server.blobs[repository, layer["digest"]]
    assert layer["size"] == len(packed)
    unpacked = gzip.decompress(packed)
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]
    assert "A=b" in config["config"]["Env"]
    with tarfile.open(fileobj=io.BytesIO(unpacked)) as tree:
        assert tree.getmember("bin/tool").isfile()

    (foreign,) = json.loads(server.manifests[repository, digests["foreign"]])["manifests"]
    assert foreign["platform"]["architecture"] == "arm64"


def test_refusal_of_the_registry_is_shown(tmp_path, server):
    client = Client(tmp_path / "socket")
    manifest = {"mediaType": "some/type", "config": {"digest": "sha256:0"}, "layers": []}
    with pytest.raises(SystemExit, match="PUT /v2/some/manifests/v1: 404"):
        client.manifest(("some",), manifest, "v1")
