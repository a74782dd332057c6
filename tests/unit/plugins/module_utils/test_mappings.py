# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.module_utils import mappings

DOCUMENT = {"a": {"text": "x", "flag": True, "number": 3, "texts": ["x", 1, "y"], "none": None}}


@pytest.mark.parametrize(
    ("getter", "values"),
    [
        (mappings.text, {"text": "x"}),
        (mappings.flag, {"flag": True}),
        (mappings.number, {"number": 3}),
        (mappings.texts, {"texts": ["x", "y"]}),
        (mappings.section, {}),
    ],
)
def test_a_value_of_another_kind_is_none(getter, values):
    nothing = {mappings.texts: [], mappings.section: {}}.get(getter)
    for key in (*DOCUMENT["a"], "missing"):
        assert getter(DOCUMENT, "a", key) == values.get(key, nothing), key


@pytest.mark.parametrize("document", [None, 1, "a", [], ["a"], {"a": None}, {"a": ["text"]}])
@pytest.mark.parametrize("getter", [mappings.text, mappings.flag, mappings.number])
def test_nothing_is_below_what_is_no_mapping(getter, document):
    assert getter(document, "a", "text") is None
