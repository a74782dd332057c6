# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from metal_lab import pod_images
from metal_lab.pod_images import write_image


def test_image_archive(tmp_path):
    path = tmp_path / "image.tar"
    write_image(path, "example/tool:1", {"bin/tool": b"program", "bin/alias": "tool"}, env=["A=b"])
    with tarfile.open(path) as archive:
        layer = archive.extractfile("layer.tar").read()
        config = json.load(archive.extractfile("config.json"))
        manifest = json.load(archive.extractfile("manifest.json"))
    assert manifest == [
        {"Config": "config.json", "RepoTags": ["example/tool:1"], "Layers": ["layer.tar"]}
    ]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    assert "A=b" in config["config"]["Env"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tree:
        assert tree.getmember("bin/alias").linkname == "tool"
        assert tree.getmember("etc").isdir()  # what the runtime mounts into


def test_cuda_image_can_run_nvidia_smi():
    program = Path("/bin/sh").resolve()
    libraries = pod_images._with_libc(pod_images._libraries_of(program))
    assert {Path(path).name for path in libraries} >= {
        *("libc.so.6", "libpthread.so.0", "libm.so.6", "libdl.so.2", "librt.so.1")
    }
    assert all(path.is_file() for path in libraries.values())


def test_images_with_programs_are_as_recorded(tmp_path):
    pod_images._write_cuda_programs(tmp_path, {"bin/sh": b"shell"}, ["A=b"])
    archive = tmp_path / "vectoradd-cuda12.5.0.tar"
    assert len(list(tmp_path.iterdir())) == 4
    with tarfile.open(archive) as image:
        config = json.load(image.extractfile("config.json"))["config"]
        layer = io.BytesIO(image.extractfile("layer.tar").read())
        assert json.load(image.extractfile("manifest.json"))[0]["RepoTags"] == [
            pod_images.VECTORADD_IMAGE
        ]
    assert config["Entrypoint"] == ["/cuda-samples/sample"]
    assert "A=b" in config["Env"]
    with tarfile.open(fileobj=layer) as tree:
        assert tree.getmember("cuda-samples/sample").linkname == "/cuda-samples/vectorAdd"
        assert tree.getmember("cuda-samples/vectorAdd").isfile()
        assert tree.getmember("lib/x86_64-linux-gnu/libc.so.6").isfile()
