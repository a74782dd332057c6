# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the stand-in driver userland for one driver version: NVML, CUDA and nvidia-smi.

    python -m metal_lab.silicon.build --driver-version 580.178.04 --output DIRECTORY

It needs gcc and NVIDIA's nvml.h, from --header or from the Go module go-nvml. `go mod download`
fetches that module if the cache does not have it. This repository does not contain the header.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from metal_lab.cache import CACHE
from metal_lab.cuda_programs import errors_source
from metal_lab.silicon.nvml.stubs import parse_functions, weak_functions

SOURCES = Path(__file__).resolve().parent
MODULES = CACHE / "go" / "mod"
GO_NVML = "github.com/NVIDIA/go-nvml@v0.13.4-0"

# The newest CUDA version of a driver branch, as nvidia-smi prints it.
CUDA_VERSIONS = {
    390: 9010,
    470: 11040,
    535: 12020,
    550: 12040,
    570: 12080,
    580: 13000,
    590: 13010,
    595: 13020,
}

# Libraries besides libc that the real nvidia-smi (550.163.01) is linked with. Images of all
# distributions have them. In an image without them, nvidia-smi does not start.
NEEDED_BY_NVIDIA_SMI = ("libpthread.so.0", "libm.so.6", "libdl.so.2", "librt.so.1")

C_FLAGS = (
    *("-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra"),
    "-Wno-deprecated-declarations",  # old callers use NVML's deprecated functions
)


def cuda_version(driver_version: str) -> int:
    """CUDA version of the newest known branch up to the driver's: 13000 is CUDA 13.0."""
    branch = int(driver_version.split(".")[0])
    known = [number for number in CUDA_VERSIONS if number <= branch]
    return CUDA_VERSIONS[max(known, default=min(CUDA_VERSIONS))]


def nvml_header() -> Path:
    """NVIDIA's nvml.h in the laboratory's Go module cache. The first call fetches it."""
    module = re.sub(r"[A-Z]", lambda letter: "!" + letter.group().lower(), GO_NVML)
    header = MODULES / module / "gen" / "nvml" / "nvml.h"
    if not header.is_file():
        subprocess.run(
            ["go", "mod", "download", GO_NVML],
            check=True,
            env={**os.environ, "GOMODCACHE": str(MODULES), "GOFLAGS": "-modcacherw"},
            cwd=tempfile.gettempdir(),  # outside of any module
        )
    return header


def build(
    driver_version: str, output: Path, header: Path | None = None, definitions: Sequence[str] = ()
) -> list[Path]:
    """Compile everything into `output`. Returns the files."""
    header = header or nvml_header()
    output.mkdir(parents=True, exist_ok=True)
    flags = [
        *C_FLAGS,
        f'-DDRIVER_VERSION="{driver_version}"',
        f"-DCUDA_VERSION={cuda_version(driver_version)}",
        *(f"-D{definition}" for definition in definitions),
    ]

    def compile_(target: str, sources: Sequence[Path], *options: str) -> Path:
        path = output / target
        path.unlink(missing_ok=True)
        subprocess.run(
            ["gcc", *flags, "-I", header.parent, "-o", path, *sources, *options, "-ldl"],
            check=True,
        )
        return path

    def library(name: str, soname: str, sources: Sequence[Path], *options: str) -> Path:
        shared = ("-shared", "-fPIC", "-s", f"-Wl,-soname,{soname}")
        return compile_(f"{name}.so.{driver_version}", sources, *shared, *options)

    nvml = SOURCES / "nvml"
    with tempfile.TemporaryDirectory() as temporary:
        stubs = Path(temporary, "stubs.c")
        stubs.write_text(weak_functions(parse_functions(header.read_text())))
        errors = Path(temporary, "errors.c")
        errors.write_text(errors_source())
        return [
            library(
                "libnvidia-ml",
                "libnvidia-ml.so.1",
                [nvml / f"{name}.c" for name in ("nvml", "health", "mig", "machine")] + [stubs],
                "-fvisibility=hidden",
                "-Wmissing-prototypes",
                "-pthread",
            ),
            library(
                "libcuda",
                "libcuda.so.1",
                [nvml / "cuda.c", nvml / "cuda_run.c", nvml / "machine.c", errors],
                "-fvisibility=hidden",
                f"-I{nvml}",
            ),
            # A different soname than NVIDIA's library, to avoid confusion. Nothing links to it.
            library(
                "libnvidia-sandboxutils",
                f"libnvidia-sandboxutils.so.{driver_version}",
                [nvml / "sandboxutils.c"],
            ),
            compile_(
                "nvidia-smi",
                [SOURCES / "nvidia-smi/main.c", SOURCES / "nvidia-smi/xml.c"],
                *("-s", "-Wl,--no-as-needed", *(f"-l:{name}" for name in NEEDED_BY_NVIDIA_SMI)),
            ),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver-version", required=True)
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--header", type=Path)
    arguments = parser.parse_args()
    for path in build(arguments.driver_version, arguments.output, arguments.header):
        print(path)


if __name__ == "__main__":
    main()
