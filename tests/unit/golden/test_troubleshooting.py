# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The generated part of docs/troubleshooting.md: the CUDA errors.

To write it anew: `python -m pytest tests/unit/golden --update-golden`
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ansible_collections.metal.gpu.plugins.module_utils.findings import DOCUMENT
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_errors
from ansible_collections.metal.gpu.tests.unit.golden.documents import assert_documented, table
from ansible_collections.metal.gpu.tests.unit.golden.nodes import ROOT


def causes(*, is_of_images: bool) -> Iterator[list[str]]:
    """Yield the rows about CUDA errors; those with the same cause are one."""
    yield ["CUDA error", "likely cause"]
    numbers: dict[str, list[int]] = {}
    for number, error in sorted(cuda_errors.ERRORS.items()):
        if (error.fault == cuda_errors.IMAGE) is is_of_images:
            numbers.setdefault(error.cause, []).append(number)
    for cause, found in numbers.items():
        yield [", ".join(map(str, found)), cause]


@pytest.mark.parametrize(
    ("part", "is_of_images"), [("cuda-errors", False), ("cuda-errors-of-images", True)]
)
def test_cuda_errors_are_documented(part: str, is_of_images: bool, is_update: bool) -> None:
    rows = table(causes(is_of_images=is_of_images))
    assert_documented(ROOT / DOCUMENT, part, rows, is_update=is_update)
