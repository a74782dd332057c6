# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import gzip
import hashlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import pytest

from metal_lab import mirror, records
from metal_lab.debs import Package, build_deb
from metal_lab.mirror import Repository

FINGERPRINT = "0123456789ABCDEF0123456789ABCDEF01234567"


@pytest.mark.parametrize(
    ("pool", "line", "key"),
    [
        ("docker/trixie", "http://m/docker/ trixie stable", "docker/gpg"),
        (
            "nvidia",
            "http://m/nvidia/debian12/x86_64/ /",
            "nvidia/debian12/x86_64/01234567.pub",
        ),
        ("toolkit", "http://m/toolkit/stable/deb/amd64/ /", "toolkit/gpgkey"),
        (
            "kubernetes",
            "http://m/kubernetes/core:/stable:/v1.37/deb/ /",
            "kubernetes/core:/stable:/v1.37/deb/Release.key",
        ),
        ("debian", "http://m/debian/ /", "debian/gpg"),
    ],
)
def test_repositories_lie_where_upstream_has_them(pool: str, line: str, key: str) -> None:
    repository = next(r for r in mirror.repositories(FINGERPRINT) if r.pool == pool)
    assert repository.source("http://m", "/k.asc") == f"deb [arch=amd64 signed-by=/k.asc] {line}"
    assert repository.key == key


def test_stanza_adds_the_file_to_the_control_fields() -> None:
    assert mirror.stanza("Package: some\nDescription: x\n more\n\n", "some.deb", b"abc") == (
        "Package: some\n"
        "Description: x\n"
        " more\n"
        "Filename: some.deb\n"
        "Size: 3\n"
        "SHA256: ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n"
    )


@pytest.mark.parametrize(
    ("repository", "head"),
    [
        pytest.param(
            Repository("debian", "debian", "debian", "debian/gpg"),
            "Label: debian\nDate: Fri, 20 Nov 2026 12:00:00 GMT\nArchitectures: amd64\nSHA256:\n",
            id="flat",
        ),
        pytest.param(
            Repository("docker", "docker/trixie", "docker", "docker/gpg", "trixie"),
            "Label: docker\nSuite: trixie\nCodename: trixie\nDate: Fri, 20 Nov 2026 12:00:00 GMT\n"
            "Architectures: amd64\nComponents: stable\nSHA256:\n",
            id="with a suite",
        ),
    ],
)
def test_release_names_every_index(repository: Repository, head: str) -> None:
    indices = {"Packages": b"abc", "Packages.gz": b""}
    assert mirror.release(repository, indices, datetime(2026, 11, 20, 12, tzinfo=UTC)) == (
        f"Origin: metal-lab\n{head}"
        " ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad 3 Packages\n"
        " e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 Packages.gz\n"
    )


@pytest.mark.parametrize("row", [*records.about(("toolkit-deb", "debian12"), "index")])
def test_flat_repositories_have_the_recorded_files(row, tmp_path: Path) -> None:
    published = mirror.publish({}, tmp_path / "out", tmp_path / "gpg").repositories
    names = {row.get("repository"), *row.get("repositories", ())}
    places = [one.path for one in published if one.of in names]
    assert places
    for place in places:
        files = {path.name for path in (tmp_path / "out" / place).iterdir()}
        assert {name for name in files if not name.endswith(".pub")} == {*records.values(row)}


def test_published_chain_of_trust_holds(tmp_path: Path) -> None:
    pool, out, home = tmp_path / "pool", tmp_path / "out", tmp_path / "gpg"
    deb = build_deb(Package("some", "1-1", "does something"), pool / "some")
    other = build_deb(Package("other", "1-1", "does something"), pool / "other")
    file = build_deb(Package("cri-dockerd", "1~3-0", "does something"), pool / "file")
    pools = {"docker/trixie": [pool / "some", pool / "other"], "cri-dockerd": [pool / "file"]}
    published = mirror.publish(pools, out, home)
    assert mirror.fingerprint(home) == published.fingerprint

    root = out / "docker/dists/trixie"
    keyring = tmp_path / "key.gpg"
    subprocess.run(["gpg", "--dearmor", "-o", keyring, out / "docker/gpg"], check=True)
    for signed in (["InRelease"], ["Release.gpg", "Release"]):
        command = ["gpgv", "--quiet", "--keyring", keyring, *(root / name for name in signed)]
        subprocess.run(command, check=True, capture_output=True)

    index = (root / "stable/binary-amd64/Packages").read_bytes()
    assert f" {hashlib.sha256(index).hexdigest()} " in (root / "Release").read_text()
    assert gzip.decompress((root / "stable/binary-amd64/Packages.gz").read_bytes()) == index
    for stanza, expected in zip(index.decode().split("\n\n"), (other, deb), strict=True):
        fields = dict(line.partition(": ")[::2] for line in stanza.splitlines())
        assert (out / "docker" / fields["Filename"]).read_bytes() == expected.read_bytes()
        assert fields["SHA256"] == hashlib.sha256(expected.read_bytes()).hexdigest()

    (place,) = (out / mirror.FILES["cri-dockerd"]).iterdir()
    assert place.name == "cri-dockerd_1.3-0_amd64.deb"
    assert place.read_bytes() == file.read_bytes()

    for repository, why in ((mirror.EXPIRED, "EXPKEYSIG"), (mirror.STRANGER, "NO_PUBKEY")):
        untrusted = tmp_path / f"{why}.gpg"
        subprocess.run(["gpg", "--dearmor", "-o", untrusted, out / repository.key], check=True)
        refusal = subprocess.run(
            ["gpgv", "--status-fd=1", "--keyring", untrusted, out / repository.path / "InRelease"],
            check=False,
            capture_output=True,
            text=True,
        ).stdout
        assert why in refusal

    # An empty pool is an empty repository, signed all the same.
    assert (out / "toolkit/stable/deb/amd64/Packages").read_bytes() == b""
    assert (out / "toolkit/stable/deb/amd64/InRelease").exists()


def _get(url: str) -> bytes:
    """Fetch what a server that is just starting serves."""
    for _try in range(100):
        try:
            with urllib.request.urlopen(url) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.02)
    raise TimeoutError(url)


def test_serves_until_terminated_and_logs_each_request(tmp_path: Path) -> None:
    (tmp_path / "core:").mkdir()
    (tmp_path / "core:" / "Release").write_text("content")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "metal_lab.mirror_server", tmp_path, "127.0.0.1", str(port)]
    lab = Path(mirror.__file__).parent.parent
    with subprocess.Popen(command, cwd=lab, stderr=subprocess.PIPE, text=True) as server:
        assert _get(f"http://127.0.0.1:{port}/core:/Release") == b"content"
        server.send_signal(signal.SIGTERM)
        _output, log = server.communicate(timeout=5)
    assert server.returncode == 0
    assert '"GET /core:/Release HTTP/1.1" 200' in log
