# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVML itself says, by ctypes: the values that our readers take from nvidia-smi's texts.

Source: nvml.h; names and numbers are those of NVIDIA's interface.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

_MEBI = 1 << 20


class _Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("device_id", c_uint),
        ("subsystem_id", c_uint),
        ("address", c_char * 32),
    ]


class Nvml:
    """libnvidia-ml.so.1. A value that NVML refuses is None."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        if number := self._library.nvmlInit_v2():
            raise OSError(f"nvmlInit_v2: {number}")

    def _text(self, function: str, *before: Any, size: int = 96) -> str | None:
        buffer = ctypes.create_string_buffer(size)
        failed = getattr(self._library, function)(*before, buffer, c_uint(size))
        return None if failed else buffer.value.decode()

    def _number(self, function: str, *before: Any) -> int | None:
        value = c_uint()
        failed = getattr(self._library, function)(*before, byref(value))
        return None if failed else value.value

    def _large(self, function: str, *before: Any) -> int | None:
        value = c_ulonglong()
        failed = getattr(self._library, function)(*before, byref(value))
        return None if failed else value.value

    def _two(self, function: str, device: c_void_p) -> tuple[int, int] | tuple[None, None]:
        one, other = c_uint(), c_uint()
        failed = getattr(self._library, function)(device, byref(one), byref(other))
        return (None, None) if failed else (one.value, other.value)

    def system(self) -> dict[str, Any]:
        cuda = c_int()
        self._library.nvmlSystemGetCudaDriverVersion_v2(byref(cuda))
        return {
            "driver_version": self._text("nvmlSystemGetDriverVersion"),
            "cuda_version": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
            "count": self._number("nvmlDeviceGetCount_v2"),
        }

    def gpu(self, index: int) -> dict[str, Any]:
        """Return the values of a GPU in the form of our observation."""
        device = c_void_p()
        if number := self._library.nvmlDeviceGetHandleByIndex_v2(index, byref(device)):
            return {"error": number}
        memory, pci = _Memory(), _Pci()
        self._library.nvmlDeviceGetMemoryInfo(device, byref(memory))
        self._library.nvmlDeviceGetPciInfo_v3(device, byref(pci))
        mig, pending = self._two("nvmlDeviceGetMigMode", device)
        corrected, uncorrected, waiting, failure = (c_uint() for _ in range(4))
        rows = not self._library.nvmlDeviceGetRemappedRows(
            device, byref(corrected), byref(uncorrected), byref(waiting), byref(failure)
        )
        return {
            "index": index,
            "uuid": self._text("nvmlDeviceGetUUID", device),
            "name": self._text("nvmlDeviceGetName", device),
            "memory_mib": memory.total // _MEBI,
            "pci_address": f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
            "device_id": f"{pci.device_id >> 16:04x}",
            "minor": self._number("nvmlDeviceGetMinorNumber", device),
            "persistence_mode": _flag(self._number("nvmlDeviceGetPersistenceMode", device)),
            "compute_mode": {0: "Default", 2: "Prohibited", 3: "Exclusive_Process"}.get(
                self._number("nvmlDeviceGetComputeMode", device) or 0
            ),
            "mig": _switch(mig),
            "mig_pending": _switch(pending),
            "uncorrected": self._large("nvmlDeviceGetTotalEccErrors", device, c_uint(1), c_uint(0)),
            "uncorrected_ever": self._large(
                "nvmlDeviceGetTotalEccErrors", device, c_uint(1), c_uint(1)
            ),
            "remapped": corrected.value + uncorrected.value if rows else None,
            "remap_pending": bool(waiting.value) if rows else None,
            "remap_failed": bool(failure.value) if rows else None,
            "link.width": self._number("nvmlDeviceGetCurrPcieLinkWidth", device),
            "link.max_width": self._number("nvmlDeviceGetMaxPcieLinkWidth", device),
            "link.max_generation": self._number("nvmlDeviceGetMaxPcieLinkGeneration", device),
        }


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _switch(value: int | None) -> str | None:
    return None if value is None else ("Enabled" if value else "Disabled")
