# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the registry serves: the images of the pods. They are pushed to a registry without login.

A mirror is asked for an image in one of two ways. Each image is in both repositories:

- `nvidia/cuda`: the mirror stands for one registry, and the client leaves its name out;
- `nvcr.io/nvidia/cuda`: the mirror has a folder for each registry.

Like upstream's, a tag is a list of images by platform. Each tag has a second list, which nobody
can find by its name, without an image for this machine: see registry_faults.

Source: https://github.com/opencontainers/distribution-spec/blob/v1.1.1/spec.md (pushing)
        https://distribution.github.io/distribution/spec/manifest-v2-2/ (the media types)
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import socket
import tarfile
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from metal_lab import processes, registry
from metal_lab.cache import built, digest

_TYPE = "application/vnd.docker"
LIST = f"{_TYPE}.distribution.manifest.list.v2+json"
MANIFEST = f"{_TYPE}.distribution.manifest.v2+json"
CONFIG = f"{_TYPE}.container.image.v1+json"
LAYER = f"{_TYPE}.image.rootfs.diff.tar.gzip"


class Reference(NamedTuple):
    """The name of an image, as pods have it."""

    host: str
    repository: str
    tag: str

    @property
    def repositories(self) -> tuple[str, str]:
        """The repositories of the laboratory's registry that have it."""
        return self.repository, f"{self.host}/{self.repository}"


def parse(image: str) -> Reference:
    """Return the parts of a name with host and tag: nvcr.io/nvidia/cuda:1.0."""
    host, _, rest = image.partition("/")
    repository, _, tag = rest.rpartition(":")
    return Reference(host, repository, tag)


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket in a folder. Nobody else can take it, unlike a port."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


class Client:
    """Pushes to a registry that listens on a socket."""

    def __init__(self, path: Path) -> None:
        self._connection = _Connection(path)

    def _ask(
        self, method: str, path: str, status: int, body: bytes = b"", kind: str = ""
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": kind or "application/octet-stream"}
        self._connection.request(method, path, body, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != status:
            raise SystemExit(f"the registry: {method} {path}: {answer.status} {text.decode()}")
        return answer

    def blob(self, repositories: tuple[str, ...], content: bytes) -> str:
        """Put a blob into all repositories. Return its digest."""
        name = sha256(content)
        first, *others = repositories
        upload = self._ask("POST", f"/v2/{first}/blobs/uploads/", 202).headers["Location"]
        separator = "&" if "?" in upload else "?"
        self._ask("PUT", f"{upload}{separator}{urlencode({'digest': name})}", 201, content)
        for other in others:
            mount = urlencode({"mount": name, "from": first})
            self._ask("POST", f"/v2/{other}/blobs/uploads/?{mount}", 201)
        return name

    def manifest(
        self, repositories: tuple[str, ...], content: dict[str, Any], tag: str = ""
    ) -> dict[str, Any]:
        """Put a manifest into all repositories. Return how a list refers to it."""
        body = json.dumps(content).encode()
        name, kind = sha256(body), content["mediaType"]
        for repository in repositories:
            self._ask("PUT", f"/v2/{repository}/manifests/{tag or name}", 201, body, kind)
        return {"mediaType": kind, "size": len(body), "digest": name}


def _read(archive: Path) -> tuple[str, bytes, bytes]:
    """Return the name, the configuration and the layer of an archive of pod_images."""
    with tarfile.open(archive) as tar:

        def content(name: str) -> bytes:
            member = tar.extractfile(name)
            assert member is not None, f"{archive}: {name} is not a file"
            return member.read()

        (image,) = json.loads(content("manifest.json"))
        (layer,) = image["Layers"]
        return image["RepoTags"][0], content(image["Config"]), content(layer)


def push(client: Client, archive: Path) -> tuple[str, dict[str, str]]:
    """Push an image. Return its name, and the digests of its tag and its layer."""
    name, config, layer = _read(archive)
    reference = parse(name)
    packed = gzip.compress(layer, mtime=0)
    described = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _described(CONFIG, config),
        "layers": [_described(LAYER, packed)],
    }
    for blob in (config, packed):
        client.blob(reference.repositories, blob)
    image = client.manifest(reference.repositories, described)

    def listed(architecture: str, tag: str = "") -> str:
        platform = {"os": "linux", "architecture": architecture}
        content = {
            "schemaVersion": 2,
            "mediaType": LIST,
            "manifests": [{**image, "platform": platform}],
        }
        found: str = client.manifest(reference.repositories, content, tag)["digest"]
        return found

    return name, {
        "digest": listed("amd64", reference.tag),
        "foreign": listed("arm64"),
        "layer": sha256(packed),
    }


def _described(kind: str, content: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "size": len(content), "digest": sha256(content)}


def fill(program: Path, images: Path, out: Path) -> None:
    """Fill the storage `out`, and write `images.json` about it."""
    with tempfile.TemporaryDirectory(prefix="registry-") as temporary:
        place = Path(temporary)
        config, log, path = place / "config.yml", place / "log", place / "socket"
        config.write_text(registry.configuration(out, str(path), "unix"))
        process = processes.start(registry.command(program, config), log)
        try:
            processes.wait_until(path.exists, "the registry", process, log)
            client = Client(path)
            known = dict(push(client, archive) for archive in sorted(images.glob("*.tar")))
        finally:
            processes.stop([process])
    (out / "images.json").write_text(json.dumps(known, indent=2))


def build(program: Path, images: Path) -> Path:
    """Return a storage with the images. The first call fills it."""
    key = digest(program.name, images.name, Path(__file__), Path(registry.__file__))
    what = "the content of the registry"
    return built("registry-content", key, what, partial(fill, program, images))
