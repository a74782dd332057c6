# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parameters of the module nvidia: from modprobe.d, and in /proc/driver/nvidia/params.

Source: tests/recorded/parameters.yml of the project
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# The defaults of some parameters, by their names in the file.
# With ModifyDeviceFiles 1, the default of real drivers, the NVIDIA runtime would mount a changed
# copy over this file in containers. It cannot: without a real driver, their own /proc does not have
# the file.
NUMBERS = {
    "ModifyDeviceFiles": 0,
    "DeviceFileUID": 0,
    "DeviceFileGID": 0,
    "DeviceFileMode": 0o666,
    "EnableMSI": 1,
    "EnableStreamMemOPs": 0,
    "RmProfilingAdminOnly": 1,
    "PreserveVideoMemoryAllocations": 0,
    "EnablePCIERelaxedOrderingMode": 0,
}
TEXTS = ("RegistryDwords", "TemporaryFilePath")
# The parameter's name, where the file has another one.
NAMES = {"RmProfilingAdminOnly": "RestrictProfilingToAdminUsers"}
_32_BITS = 2**32


def of_options(texts: Iterable[str], modules: Iterable[str]) -> dict[str, str]:
    """Return the parameters that modprobe.d sets for a module of these names.

    kmod gives the options of a name with an `install` rule to the rule's command, and the file that
    this loads has options of its own.
    """
    lines = [line.split() for text in texts for line in text.splitlines()]
    return {
        name: value
        for module in dict.fromkeys(modules)
        for words in lines
        if len(words) > 2 and words[0] == "options" and _is_same(words[1], module)
        for name, separator, value in (word.partition("=") for word in words[2:])
        if separator
    }


def _is_same(name: str, other: str) -> bool:
    return name.replace("-", "_") == other.replace("-", "_")


def text(loaded: Mapping[str, str]) -> str:
    """Return the file: numbers are unsigned and decimal, texts come last and have quotation marks.

    It lists neither what the module does not have, nor what it never shows.
    """
    given = {name: loaded.get(f"NVreg_{NAMES.get(name, name)}") for name in (*NUMBERS, *TEXTS)}
    numbers = [
        f"{name}: {default if given[name] is None else _number(str(given[name])) % _32_BITS}\n"
        for name, default in NUMBERS.items()
    ]
    return "".join(numbers + [f'{name}: "{given[name] or ""}"\n' for name in TEXTS])


def _number(value: str) -> int:
    """Return a number as the kernel reads it: octal if it begins with 0."""
    return int(value, 8 if re.fullmatch("0[0-7]+", value) else 0)
