# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the documentation that the installed collection carries."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from ansible_collections.metal.gpu.plugins.module_utils import findings
from metal_gpu.explanations.explain import Explainer
from metal_gpu.explanations.index import parse
from metal_gpu.explanations.symptoms import parse as parse_symptoms

PLACE = Path(findings.__file__).parents[2] / findings.DOCUMENT
SYMPTOMS = PLACE.with_name("symptoms.txt")


class CatalogueMissing(Exception):
    """The installation has no documentation."""


@cache
def explainer() -> Explainer:
    """Return what explains lines. Raises CatalogueMissing."""
    try:
        page, symptoms = (one.read_text(encoding="utf-8") for one in (PLACE, SYMPTOMS))
    except OSError as error:
        raise CatalogueMissing(
            f"{error.filename} cannot be read: {error.strerror}. Install metal-gpu again; the file "
            "is part of the collection metal.gpu"
        ) from error
    return Explainer(parse(page, str(PLACE)), parse_symptoms(symptoms))
