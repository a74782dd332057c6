# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated kernels, and what Debian's dkms builds for them."""

from __future__ import annotations

import hashlib
import subprocess

import pytest

from metal_lab import build_faults, debian_archive, debs, faults, kernel_packages, kernels, packages
from metal_lab.debs import EMPTY
from metal_lab.description import Node

OFFERED = {"6.1.0-51-amd64": True, "6.1.0-52-amd64": False}


def test_a_kernel_has_headers_or_none():
    made = {(one.name, one.version) for one in kernel_packages.kernels(OFFERED)}
    assert made == {
        ("linux-image-6.1.0-51-amd64", "6.1.151-1"),
        ("linux-image-amd64", "6.1.151-1"),
        ("linux-image-6.1.0-52-amd64", "6.1.152-1"),
        ("linux-image-amd64", "6.1.152-1"),
        ("linux-headers-6.1.0-51-amd64", "6.1.151-1"),
        ("linux-headers-amd64", "6.1.151-1"),
        ("linux-kbuild-6.1", "6.1.1-1"),
        ("base-files", "1-1"),
    }


def test_release_of_another_form():
    with pytest.raises(SystemExit, match=r"not of the form 6\.1\.0-51-amd64"):
        kernel_packages.parse("6.18.44")


def test_what_dkms_looks_for(tmp_path):
    headers, _meta = kernel_packages.headers(kernel_packages.parse("6.1.0-51-amd64"))
    deb = headers.build(tmp_path)
    listed = subprocess.run(
        ["dpkg-deb", "--contents", deb], check=True, capture_output=True, text=True
    ).stdout
    assert "/usr/src/linux-headers-6.1.0-51-amd64/include/" in listed
    assert "/usr/lib/modules/6.1.0-51-amd64/build -> " in listed
    assert "header_postinst.d" in debs.control_files(headers)["postinst"]


def test_driver_leaves_the_build_to_dkms(tmp_path, monkeypatch):
    monkeypatch.setattr("metal_lab.cache.CACHE", tmp_path)
    made = {
        one.name: one
        for one in kernel_packages.with_dkms(packages.driver("580.178.04", EMPTY))
        if "-dkms" in one.name
    }
    package = made["nvidia-kernel-open-dkms"]
    assert package.depends[-1] == "dkms"
    files = {path.rpartition("/")[2] for path in package.binaries}
    assert files == {"dkms.conf", *(f"{name}.text" for name in kernel_packages.MODULES)}
    postinst = debs.control_files(package)["postinst"]
    assert "/usr/lib/dkms/common.postinst nvidia 580.178.04" in postinst


def test_uname_of_a_simulated_kernel(tmp_path, monkeypatch):
    """The library compiles, and programs still get the rest of the answer."""
    monkeypatch.setattr("metal_lab.cache.CACHE", tmp_path)
    assert kernels.files(Node("gpu-1", "debian12", "t4x1")) == {}
    files = kernels.files(Node("gpu-1", "debian12", "t4x1", kernel="6.1.0-51-amd64"))
    library = tmp_path / "uname.so"
    library.write_bytes(files["usr/local/lib/metal-lab/uname.so"])
    command = ["uname", "--kernel-name"]
    run = subprocess.run(
        command, env={"LD_PRELOAD": str(library)}, check=True, capture_output=True, text=True
    )
    assert (run.stdout, run.stderr) == ("Linux\n", "")


@pytest.mark.parametrize("cause", build_faults.words())
def test_words_of_a_failed_build(tmp_path, cause, monkeypatch):
    script = faults.SCRIPTS["build-fails"].text.replace(
        "/usr/local/lib/metal-lab/build-fails", str(tmp_path / "words")
    )
    subprocess.run(["sh", "-euc", script, "build-fails", cause], check=True)
    assert (tmp_path / "words").read_text() == build_faults.words()[cause]


INDEX = """\
Package: dkms-noautoinstall
Filename: pool/other.deb
SHA256: 00

Package: dkms
Filename: pool/main/d/dkms/dkms_3.0.10-8_all.deb
SHA256: {checksum}
"""


def test_package_of_debians_archive():
    checksum = hashlib.sha256(b"content").hexdigest()
    entry = debian_archive.entry_of("dkms", INDEX.format(checksum=checksum))
    assert entry == ("pool/main/d/dkms/dkms_3.0.10-8_all.deb", checksum)
    release = f"MD5Sum:\n 0 1 main/x\nSHA256:\n {checksum}      12 {debian_archive.INDEX}\n"
    assert debian_archive.checksum_of(debian_archive.INDEX, release) == checksum
    with pytest.raises(SystemExit, match="no package nothing"):
        debian_archive.entry_of("nothing", INDEX)
