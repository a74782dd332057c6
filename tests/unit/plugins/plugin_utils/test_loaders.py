# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.loaders import (
    Document,
    load_json,
    load_toml,
    load_yaml,
)


@pytest.mark.parametrize(
    ("load", "text", "content"),
    [
        (load_toml, 'a = "b"\n', {"a": "b"}),
        (load_toml, "", {}),
        (load_json, '{"a": "b"}', {"a": "b"}),
        (load_json, " \n", {}),
        (load_yaml, "a: b\n", {"a": "b"}),
        (load_yaml, "# nothing\n", {}),
    ],
)
def test_content(load, text, content):
    assert load("/f", text) == Document(content, None)


@pytest.mark.parametrize(
    ("load", "text", "error"),
    [
        pytest.param(load_toml, "a = 1\nb = \n", "/f, line 2, column 5: Invalid value", id="toml"),
        pytest.param(
            load_toml,
            'a = 1\nb = "',
            "/f, line 2, column 6: Unterminated string",
            id="toml-ends-too-early",
        ),
        pytest.param(
            load_json, '{\n "a" 1\n}', "/f, line 2, column 6: Expecting ':' delimiter", id="json"
        ),
        pytest.param(load_json, "[]", "/f: holds no mapping, but list", id="json-list"),
        pytest.param(
            load_yaml,
            "a: 1\nb: [\n",
            "/f, line 3, column 1: did not find expected node content",
            id="yaml",
        ),
        pytest.param(load_yaml, "a\x00: 1\n", "/f: ", id="yaml-control-character"),
        pytest.param(load_yaml, "- a\n", "/f: holds no mapping, but list", id="yaml-list"),
    ],
)
def test_error_names_file_and_place(load, text, error):
    document = load("/f", text)
    assert document.content == {}
    assert document.error.startswith(error)
