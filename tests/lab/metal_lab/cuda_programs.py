# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-ins of CUDA programs, with the recorded words, and the images that have them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from metal_lab.cache import FILES

RECORD = Path(__file__).parent / "recorded" / "cuda_programs.yml"
SOURCES = FILES / "programs" / "cuda"
INTERFACE = Path(__file__).parent / "silicon" / "nvml" / "cuda.h"

MAIN = {"vectorAdd": "vectoradd", "nvbandwidth": "nvbandwidth"}  # program → source and record


def record() -> dict[str, Any]:
    """Return the record."""
    content: dict[str, Any] = yaml.safe_load(RECORD.read_text())
    return content


def images() -> dict[str, dict[str, Any]]:
    """Return the recorded images by name."""
    return {image["name"]: image for image in record()["images"]}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def errors_source() -> str:
    """Return C source with the names and words of all recorded errors: see cuda.h."""
    rows = "".join(
        f"    {{{row['number']}, {_quoted(row['name'])}, {_quoted(row['words'])}}},\n"
        for row in record()["errors"]
    )
    rows += "    {0, 0, 0},\n"
    return f'#include "cuda.h"\n\nconst struct cuda_error cuda_errors[] = {{\n{rows}}};\n'


def words_header(program: str) -> str:
    """Return C macros with what a program prints, and its recorded numbers."""
    facts = record()[MAIN[program]]
    streams: Mapping[str, str] = {**facts["stdout"], **facts["stderr"]}
    words = {name: _quoted(text) for name, text in streams.items()}
    numbers = {name: value for name, value in facts.items() if isinstance(value, int)}
    texts = {name: _quoted(facts[name]) for name in ("test", "file_of_main") if name in facts}
    return "".join(
        f"#define {name.upper()} {value}\n" for name, value in {**words, **numbers, **texts}.items()
    )


def code(image: Mapping[str, Any], kernel: str = "vectorAdd") -> str:
    """Return what the program of an image has in place of CUDA's fat binary."""
    sms = " ".join(map(str, image["architectures"]))
    return (
        f"metal-lab-code 1\ntoolkit {image['toolkit']}\nsm {sms}\n"
        f"ptx {image['ptx']}\nkernel {kernel}\n"
    )


def build(image: Mapping[str, Any], output: Path) -> Path:
    """Compile the program of an image into the file `output`."""
    program = image["program"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "words.h").write_text(words_header(program))
        (folder / "errors.c").write_text(errors_source())
        sources = (SOURCES / f"{MAIN[program]}.c", SOURCES / "runtime.c", folder / "errors.c")
        subprocess.run(
            [
                *("gcc", "-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra", "-s"),
                *("-I", folder, "-I", INTERFACE.parent),
                *(f"-DTOOLKIT={image['toolkit']}", f"-DCODE={_quoted(code(image))}"),
                *("-o", output, *sources, "-ldl"),
            ],
            check=True,
        )
    return output
