# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compute on each GPU, and use CUDA wrongly, by the driver's library alone.

usage: python3 cuda.py CASE      prints one JSON document

Each case is a process of its own, because some errors stay in a process. It needs nothing but the
standard library, so that it can run in a container, too.
"""

from __future__ import annotations

import array
import ctypes
import json
import os
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

SIZE = 1 << 16
# c[i] = a[i] + b[i]; every GPU since Maxwell takes it.
PTX = """.version 6.0
.target sm_50
.address_size 64
.visible .entry add(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u32 pn)
{
  .reg .pred %p; .reg .b32 %r<6>; .reg .f32 %f<4>; .reg .b64 %d<8>;
  ld.param.u64 %d1, [pa]; ld.param.u64 %d2, [pb]; ld.param.u64 %d3, [pc]; ld.param.u32 %r1, [pn];
  mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p, %r5, %r1;
  @%p bra done;
  mul.wide.u32 %d4, %r5, 4;
  add.u64 %d5, %d1, %d4; add.u64 %d6, %d2, %d4; add.u64 %d7, %d3, %d4;
  ld.global.f32 %f1, [%d5]; ld.global.f32 %f2, [%d6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%d7], %f3;
done:
  ret;
}
"""


class Failed(Exception):
    """A call returned an error."""

    def __init__(self, call: str, number: int) -> None:
        super().__init__(f"{call}: {number}")
        self.call, self.number = call, number


class Cuda:
    """libcuda.so.1, whose errors are exceptions."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def __getattr__(self, name: str) -> Callable[..., None]:
        function = getattr(self.library, name)

        def call(*arguments: Any) -> None:
            if number := function(*arguments):
                raise Failed(name, number)

        return call

    def error(self, number: int) -> tuple[str, str]:
        """Return the name and the words of an error; empty if the library has none."""
        name, words = c_char_p(), c_char_p()
        self.library.cuGetErrorName(number, byref(name))
        self.library.cuGetErrorString(number, byref(words))
        return (name.value or b"").decode(), (words.value or b"").decode()

    def context(self, ordinal: int) -> c_int:
        device, context = c_int(), c_void_p()
        self.cuDeviceGet(byref(device), ordinal)
        self.cuCtxCreate_v2(byref(context), 0, device)
        return device

    def memory(self, size: int) -> c_uint64:
        memory = c_uint64()
        self.cuMemAlloc_v2(byref(memory), c_size_t(size))
        return memory

    def function(self, ptx: str, name: str) -> c_void_p:
        module, function = c_void_p(), c_void_p()
        self.cuModuleLoadData(byref(module), ptx.encode())
        self.cuModuleGetFunction(byref(function), module, name.encode())
        return function

    def launch(self, function: c_void_p, *values: Any) -> None:
        pointers = (c_void_p * len(values))(
            *(ctypes.cast(byref(value), c_void_p) for value in values)
        )
        self.cuLaunchKernel(function, SIZE // 256, 1, 1, 256, 1, 1, 0, None, pointers, None)
        self.cuCtxSynchronize()


def _started() -> Cuda:
    cuda = Cuda()
    cuda.cuInit(0)
    return cuda


def _add(cuda: Cuda, a: c_uint64, b: c_uint64, c: c_uint64) -> None:
    cuda.launch(cuda.function(PTX, "add"), a, b, c, ctypes.c_uint32(SIZE))


def _compute() -> dict[str, Any]:
    """Add two vectors on each GPU, and compare every element."""
    cuda = _started()
    version, count = c_int(), c_int()
    cuda.cuDriverGetVersion(byref(version))
    cuda.cuDeviceGetCount(byref(count))
    gpus = [_compute_on(cuda, ordinal) for ordinal in range(count.value)]
    return {"version": version.value, "gpus": gpus}


def _compute_on(cuda: Cuda, ordinal: int) -> dict[str, Any]:
    device = cuda.context(ordinal)
    name, address = (ctypes.create_string_buffer(100) for _ in range(2))
    identity = ctypes.create_string_buffer(16)
    capability, total = [c_int(), c_int()], c_size_t()
    cuda.cuDeviceGetName(name, 100, device)
    cuda.cuDeviceGetPCIBusId(address, 100, device)
    cuda.cuDeviceGetUuid_v2(identity, device)
    cuda.cuDeviceTotalMem_v2(byref(total), device)
    for value, attribute in zip(capability, (75, 76), strict=True):
        cuda.cuDeviceGetAttribute(byref(value), attribute, device)
    a, b = (array.array("f", (index * factor for index in range(SIZE))) for factor in (1, 2))
    out = array.array("f", bytes(4 * SIZE))
    memories = [cuda.memory(4 * SIZE) for _ in range(3)]
    for memory, content in zip(memories, (a, b), strict=False):
        cuda.cuMemcpyHtoD_v2(memory, content.tobytes(), c_size_t(4 * SIZE))
    _add(cuda, *memories)
    buffer = ctypes.create_string_buffer(4 * SIZE)
    cuda.cuMemcpyDtoH_v2(buffer, memories[2], c_size_t(4 * SIZE))
    out = array.array("f", buffer.raw)
    raw = identity.raw.hex()
    return {
        "name": name.value.decode(),
        "pci_address": address.value.decode().lower(),
        "uuid": "GPU-" + "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])),
        "memory_mib": total.value >> 20,
        "capability": f"{capability[0].value}.{capability[1].value}",
        "wrong": sum(out[index] != 3 * index for index in range(SIZE)),
    }


def _errors() -> dict[str, Any]:
    cuda = Cuda()
    return {str(number): cuda.error(number) for number in range(1, 1000) if any(cuda.error(number))}


def _init() -> None:
    _started()


def _beyond() -> None:
    cuda = _started()
    cuda.cuDeviceGet(byref(c_int()), 999)


def _in_context(use: Callable[[Cuda], object]) -> Callable[[], None]:
    def case() -> None:
        cuda = _started()
        cuda.context(0)
        use(cuda)

    return case


CASES: dict[str, Callable[[], dict[str, Any] | None]] = {
    "compute": _compute,
    "errors": _errors,
    "init": _init,
    "not-initialised": lambda: Cuda().cuDeviceGetCount(byref(c_int())),
    "beyond": _beyond,
    "no-ptx": _in_context(lambda cuda: cuda.function("no program", "add")),
    "bad-ptx": _in_context(lambda cuda: cuda.function(PTX.replace("add.f32", "add.f33"), "add")),
    "newer-ptx": _in_context(
        lambda cuda: cuda.function(PTX.replace(".version 6.0", ".version 99.0"), "add")
    ),
    "newer-gpu": _in_context(lambda cuda: cuda.function(PTX.replace("sm_50", "sm_999"), "add")),
    "no-function": _in_context(lambda cuda: cuda.function(PTX, "subtract")),
    "much-memory": _in_context(lambda cuda: cuda.memory(1 << 50)),
    "no-memory": _in_context(lambda cuda: _add(cuda, *(c_uint64(8) for _ in range(3)))),
}


def run(case: str) -> dict[str, Any]:
    """Return what the case returns, or the call that failed and its error."""
    try:
        return {"error": 0, **(CASES[case]() or {})}
    except Failed as failed:
        return {"error": failed.number, "call": failed.call}
    except OSError as missing:  # no library
        return {"error": -1, "call": f"{missing}"}


if __name__ == "__main__":
    os.environ["CUDA_CACHE_DISABLE"] = "1"  # nothing is left in the home folder
    print(json.dumps(run(sys.argv[1])))
