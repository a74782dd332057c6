# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: BSD-2-Clause

"""For which version of CUDA is an image?

Its CUDA_VERSION says it. An image without it can say it by NVIDIA_REQUIRE_CUDA, whose terms are
alternatives. A term for another brand of GPUs says nothing about a machine.

Source: tests/recorded/image_needs.yml
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.read.version import release

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION, REQUIRE = "CUDA_VERSION", "NVIDIA_REQUIRE_CUDA"
_BRAND = "brand="
_LEAST = re.compile(r"cuda(?P<sign>>=|>|=)(?P<value>[0-9][0-9.]*)", re.ASCII)


class Cuda(NamedTuple):
    """A version of CUDA, or the ones after it."""

    version: tuple[int, ...]  # major and minor
    is_later: bool = False  # only later versions are meant

    def __str__(self) -> str:
        """Return it for people."""
        return f"{'later than ' if self.is_later else ''}{'.'.join(map(str, self.version))}"

    def is_newer(self, supported: str) -> bool:
        """Tell whether a driver that supports this version of CUDA is too old for it."""
        has = _short(supported)
        return self.version > has or (self.is_later and self.version == has)


def of_image(environment: Mapping[str, str], brand: str) -> Cuda | None:
    """Return the version that an image is for; None: it does not say it.

    `brand` is that of the GPUs, in nvidia-smi's words; empty: unknown.
    """
    text = environment.get(VERSION, "")
    if release(text):
        return Cuda(_short(text))
    terms = [term.split(",") for term in environment.get(REQUIRE, "").split()]
    found = [one for term in terms if (one := _least(term, plain_brand(brand)))]
    return min(found, default=None)


def plain_brand(brand: str) -> str:
    """Return a brand of nvidia-smi in the words of requirements: GeForce RTX is geforcertx."""
    return re.sub(r"[^a-z0-9]", "", brand.lower())


def _least(factors: Sequence[str], brand: str) -> Cuda | None:
    """Return the first version with which all factors of a term can hold; None: it names none."""
    brands = [one[len(_BRAND) :] for one in factors if one.startswith(_BRAND)]
    if brand and any(one != brand for one in brands):
        return None
    matches = (_LEAST.fullmatch(one) for one in factors)
    found = [Cuda(_short(one["value"]), one["sign"] == ">") for one in matches if one]
    return max(found, default=None)


def _short(text: str) -> tuple[int, ...]:
    return (*release(text), 0, 0)[:2]
