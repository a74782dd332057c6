# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the documentation that the installed collection carries."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ansible_collections.metal.gpu.plugins.module_utils import findings
from metal_gpu.explanations.explain import Explainer
from metal_gpu.explanations.index import parse

PLACE = Path(findings.__file__).parents[2] / findings.DOCUMENT


class CatalogueMissing(Exception):
    """The installation has no documentation."""


@cache
def explainer() -> Explainer:
    """Return what explains lines. Raises CatalogueMissing."""
    try:
        text = PLACE.read_text(encoding="utf-8")
    except OSError as error:
        raise CatalogueMissing(
            f"{PLACE} cannot be read: {error.strerror}. Install metal-gpu again; the page is part "
            "of the collection metal.gpu"
        ) from error
    return Explainer(parse(text, str(PLACE)))
