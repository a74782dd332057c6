# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values that count as true and false are those of ansible-core."""

from __future__ import annotations

import pytest
from ansible.module_utils.parsing import convert_bool

from ansible_collections.metal.gpu.plugins.module_utils import booleans

VALUES = ["yes", "No", " on ", "T", "0", "", "maybe", b"true", b"off", 0, 1, 1.0, 2, None, [], {}]


def test_same_values():
    assert booleans.TRUE == convert_bool.BOOLEANS_TRUE
    assert booleans.FALSE == convert_bool.BOOLEANS_FALSE
    assert booleans.BOOLEANS == convert_bool.BOOLEANS


@pytest.mark.parametrize("value", [*VALUES, *booleans.BOOLEANS])
def test_same_answers(value):
    try:
        expected = convert_bool.boolean(value)
    except TypeError:
        with pytest.raises(TypeError):
            booleans.boolean(value)
    else:
        assert booleans.boolean(value) is expected
