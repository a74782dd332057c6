# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""End a process before any of its system calls, as a power cut does.

The process is traced: the kernel stops it before each system call, and SIGKILL then ends it before
that call has an effect. What the kernel already has stays, so this does not show whether data was
on the disk.

Source: ptrace(2)
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

_TRACEME, _SYSCALL, _SETOPTIONS = 0, 24, 0x4200
_SYSCALLS_ARE_MARKED, _DIES_WITH_TRACER = 1, 1 << 20
_AT_SYSCALL = signal.SIGTRAP | 0x80

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"ptrace: {os.strerror(error)}")


def run_until(is_over: Callable[[], bool], function: Callable[[], object]) -> bool:
    """Run a function in a process that ends before its first system call for which `is_over`.

    Return whether it was ended.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            function()
            code = 0
        finally:
            os._exit(code)
    os.waitpid(pid, 0)
    _ptrace(_SETOPTIONS, pid, _SYSCALLS_ARE_MARKED | _DIES_WITH_TRACER)
    is_entry, passed_on = True, 0
    while True:
        _ptrace(_SYSCALL, pid, passed_on)
        _pid, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, "the function raised an exception"
            return False
        passed_on = 0
        if os.WSTOPSIG(status) != _AT_SYSCALL:
            passed_on = os.WSTOPSIG(status)
        elif is_entry and is_over():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return True
        else:
            is_entry = not is_entry
