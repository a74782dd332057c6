# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.read.kernel_banner import parse_compiler

# Written by hand after the kernel's format. The name of Ubuntu's compiler was seen in a build log.
UBUNTU = (
    "Linux version 6.8.0-60-generic (buildd@host) (x86_64-linux-gnu-gcc-12 (Ubuntu "
    "12.3.0-1ubuntu1~22.04) 12.3.0, GNU ld (GNU Binutils for Ubuntu) 2.38) #63~22.04.1-Ubuntu SMP"
)
DEBIAN = "Linux version 6.1.0-26-amd64 (a@b) (gcc-12 (Debian 12.2.0-14) 12.2.0, GNU ld) #1 SMP"
REDHAT = "Linux version 5.14.0-687.el9.x86_64 (a@b) (gcc (GCC) 11.5.0 20240719, GNU ld) #1 SMP"
CLANG = "Linux version 6.18.0 (a@b) (clang version 19.1.7, LLD 19.1.7) #1"
OLD = "Linux version 3.10.0 (gcc@b) (gcc version 4.8.5 (Red Hat 4.8.5-44) (GCC) ) #1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(UBUNTU, "gcc-12", id="ubuntu"),
        pytest.param(DEBIAN, "gcc-12", id="debian"),
        pytest.param(REDHAT, "gcc", id="red hat"),
        pytest.param(CLANG, "clang", id="clang"),
        pytest.param(OLD, "gcc", id="old"),
        pytest.param("", None, id="not readable"),
        pytest.param("Linux version 6.1 (gcc-12@host) (unknown) #1", None, id="unknown"),
    ],
)
def test_compiler_of_the_kernel(text: str, expected: str | None) -> None:
    assert parse_compiler(text) == expected
