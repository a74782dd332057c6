# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container images for pods, written as archives that `ctr images import` and `docker load` read.

Source: https://github.com/moby/docker-image-spec/blob/main/v1.2.md (combined image JSON and layers)
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from metal_lab import cuda_programs
from metal_lab.cache import FILES, built, digest
from metal_lab.silicon.build import NEEDED_BY_NVIDIA_SMI
from metal_lab.versions import DEVICE_PLUGIN

PAUSE_IMAGE = "registry.k8s.io/pause:3.10"
# What containerd 2.4.2 takes if its settings name no sandbox image.
DEFAULT_PAUSE_IMAGE = "registry.k8s.io/pause:3.10.2"
PLUGIN_IMAGE = f"nvcr.io/nvidia/k8s-device-plugin:v{DEVICE_PLUGIN}"
CUDA_IMAGE = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
# The same image without the variable that every CUDA image sets.
BUSYBOX_IMAGE = "docker.io/library/busybox:1.35"
# NVIDIA's programs that compute and copy, as recorded.
VECTORADD_IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
OLD_VECTORADD_IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda11.7.1"
OLDEST_VECTORADD_IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda10.2"
NVBANDWIDTH_IMAGE = "ghcr.io/nvidia/k8s-samples:nvbandwidth-v0.7-8d103163"

PAUSE = FILES / "programs" / "pause.c"

BUSYBOX_APPLETS = (
    *("sh", "sleep", "ls", "cat", "env", "true", "false", "grep", "sort", "head", "wc"),
    *("tail", "cut", "tr", "sed", "timeout"),
)

Tree = Mapping[str, Path | bytes | str]  # a file to copy, a content, or the target of a link


def _layer(tree: Tree) -> bytes:
    """Return a tar archive; text values become symbolic links, folders come first."""
    buffer = io.BytesIO()
    folders = {str(parent) for name in tree for parent in Path(name).parents} - {"."}
    folders |= {"dev", "etc", "proc", "root", "run", "sys", "tmp", "var"}
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in sorted(folders):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, content in sorted(tree.items()):
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                archive.addfile(entry)
                continue
            data = content if isinstance(content, bytes) else content.read_bytes()
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def write_image(
    path: Path,
    name: str,
    tree: Tree,
    env: Sequence[str] = (),
    command: Sequence[str] = ("/bin/sh",),
) -> None:
    """Write an image archive of one layer to `path`."""
    layer = _layer(tree)
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", *env],
            "Entrypoint": list(command),
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
        },
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        for file, data in (
            ("config.json", json.dumps(config).encode()),
            ("layer.tar", layer),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(file)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _libraries_of(program: Path) -> dict[str, Path]:
    """Return what the dynamic loader would load for `program`, keyed by path in the image."""
    words = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    paths = [word for word in words.split() if word.startswith("/")]
    return {path.lstrip("/"): Path(path).resolve() for path in paths}


def _with_libc(libraries: Mapping[str, Path]) -> dict[str, Path]:
    """Return `libraries` and the other libraries of the C library."""
    (libc,) = (Path(path) for path in libraries if Path(path).name == "libc.so.6")
    others = {str(libc.with_name(name)) for name in NEEDED_BY_NVIDIA_SMI}
    return {**libraries, **{path: Path("/", path).resolve() for path in others}}


def _busybox() -> dict[str, Path | str]:
    return {
        "bin/busybox": Path("/bin/busybox"),
        **{f"bin/{applet}": "busybox" for applet in BUSYBOX_APPLETS},
    }


def _write_cuda_programs(out: Path, base: Tree, env: Sequence[str]) -> None:
    """Write the images with programs that compute. `base` is what the other CUDA image has."""
    for name, facts in cuda_programs.images().items():
        program = cuda_programs.build(facts, out / "program")
        tree = {
            **base,
            **_libraries_of(program),
            facts["path"].lstrip("/"): program,
            **{link.lstrip("/"): target for link, target in facts.get("links", {}).items()},
        }
        archive = out / f"{name.rpartition(':')[2]}.tar"
        write_image(archive, name, tree, env=env, command=facts["entrypoint"])
        program.unlink()


def build(plugin: Path | None) -> Path:
    """Return the folder of image archives. The first call builds them.

    `plugin` is the folder with NVIDIA's device plugin. Without it, its image is left out.
    """

    def build_all(out: Path) -> None:
        pause = out / "pause"
        subprocess.run(["gcc", "-static", "-O2", "-s", "-o", pause, PAUSE], check=True)
        for name, image in (("pause", PAUSE_IMAGE), ("default-pause", DEFAULT_PAUSE_IMAGE)):
            write_image(out / f"{name}.tar", image, {"pause": pause}, command=["/pause"])
        pause.unlink()
        write_image(out / "busybox.tar", BUSYBOX_IMAGE, _busybox())
        visible = ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
        libraries = _with_libc(_libraries_of(Path("/bin/sh")))
        base = {**_busybox(), **libraries}
        write_image(out / "cuda.tar", CUDA_IMAGE, base, env=visible)
        _write_cuda_programs(out, base, visible)
        if plugin:
            program = plugin / "nvidia-device-plugin"
            write_image(
                out / "device-plugin.tar",
                PLUGIN_IMAGE,
                {"usr/bin/nvidia-device-plugin": program, **_libraries_of(program)},
                env=visible,
                command=["nvidia-device-plugin"],
            )

    made_of = (PAUSE, cuda_programs.SOURCES, cuda_programs.RECORD, cuda_programs.INTERFACE)
    made_by = (Path(__file__), Path(cuda_programs.__file__))
    plugin_name = plugin.name if plugin else "no plugin"
    key = digest(repr(NEEDED_BY_NVIDIA_SMI), *made_by, *made_of, plugin_name)
    return built("images", key, "the images of the pods", build_all)
