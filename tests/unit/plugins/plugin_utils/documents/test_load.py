# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a text means, in every language, to the programs that read it.

The expectations about Go were taken from running the libraries on 2026-11-22 with Go 1.26.8:
encoding/json (dockerd), sigs.k8s.io/yaml v1.6.0 (kubelet, CDI), go-toml v1.9.5 (containerd 1) and
v2.4.3 (containerd 2). That dockerd skips a byte order mark since 23.0 is in moby@b985e231,
daemon/config/config.go.
"""

from __future__ import annotations

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.documents.load import (
    Document,
    load_json,
    load_toml,
    load_yaml,
)

MARK = "\ufeff"


@pytest.mark.parametrize(
    ("load", "text", "content"),
    [
        pytest.param(load_json, '{"a": "b"}', {"a": "b"}, id="json"),
        pytest.param(load_json, "", {}, id="json-0-bytes"),
        pytest.param(load_json, " \n", {}, id="json-blank"),
        pytest.param(load_json, "null", {}, id="json-null"),
        pytest.param(load_json, MARK + '{"a": 1}', {"a": 1}, id="json-byte-order-mark"),
        pytest.param(load_json, '{\r\n"a": 1\r\n}', {"a": 1}, id="json-crlf"),
        pytest.param(load_json, r'{"a": "\ud83d\ude00"}', {"a": "\U0001f600"}, id="json-emoji"),
        pytest.param(load_json, r'{"a": "\ud800"}', {"a": "\ufffd"}, id="json-half-an-emoji"),
        pytest.param(load_json, r'{"a": "\\ud800"}', {"a": r"\ud800"}, id="json-backslash"),
        pytest.param(
            load_json, '{"a": 12345678901234567890}', {"a": 12345678901234567890}, id="int"
        ),
        pytest.param(load_json, '{"A": 1, "a": 2}', {"A": 1, "a": 2}, id="json-case"),
        pytest.param(load_toml, 'a = "b"\n', {"a": "b"}, id="toml"),
        pytest.param(load_toml, "", {}, id="toml-0-bytes"),
        pytest.param(load_toml, MARK + "a = 1\n", {"a": 1}, id="toml-byte-order-mark"),
        pytest.param(load_toml, "a = 1\r\n", {"a": 1}, id="toml-crlf"),
        pytest.param(load_toml, "a = inf\n", {"a": float("inf")}, id="toml-infinity"),
        pytest.param(load_yaml, "a: b\n", {"a": "b"}, id="yaml"),
        pytest.param(load_yaml, "", {}, id="yaml-0-bytes"),
        pytest.param(load_yaml, "# nothing\n", {}, id="yaml-comment"),
        pytest.param(load_yaml, "---\nnull\n...\n", {}, id="yaml-null"),
        pytest.param(load_yaml, MARK + "a: 1\n", {"a": 1}, id="yaml-byte-order-mark"),
        pytest.param(load_yaml, "a: 1\r\nb:\r\n- 2\r\n", {"a": 1, "b": [2]}, id="yaml-crlf"),
        pytest.param(load_yaml, "a:\t1\nb: [1,\t2]\n", {"a": 1, "b": [1, 2]}, id="yaml-tab"),
        pytest.param(load_yaml, "a: 2026-13-01\n", {"a": "2026-13-01"}, id="yaml-bad-date"),
        pytest.param(load_yaml, "a: 2026-01-01\n", {"a": "2026-01-01"}, id="yaml-date"),
        pytest.param(
            load_yaml, "a: !x 1\nb: !y {c: 1}\n", {"a": "1", "b": {"c": 1}}, id="yaml-tag"
        ),
        pytest.param(load_yaml, 'a: !!str 1\nb: !!int "1"\n', {"a": "1", "b": 1}, id="yaml-type"),
        pytest.param(load_yaml, "a: =\nb: 1:30\n", {"a": "=", "b": "1:30"}, id="yaml-base-60"),
        pytest.param(
            load_yaml,
            "a: [0x10, 010, 0o10, 0b11, 1_000, +5, 08, 9223372036854775808]\n",
            {"a": [16, 8, 8, 3, 1000, 5, 8.0, 9223372036854775808]},
            id="yaml-integers",
        ),
        pytest.param(
            load_yaml,
            "a: [1e3, .5, 5., 1.5e+3, 1e999, _1, 0.1, 12345678901234567890123]\n",
            {"a": [1000.0, 0.5, 5.0, 1500.0, "1e999", "_1", 0.1, 12345678901234567890123.0]},
            id="yaml-numbers",
        ),
        pytest.param(
            load_yaml,
            "a: [yes, No, on, OFF, TRUE, y, ~, null, oN, nULL]\n",
            {"a": [True, False, True, False, True, True, None, None, "oN", "nULL"]},
            id="yaml-words",
        ),
        pytest.param(
            load_yaml,
            "a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2\nd: {<<: [*x, {k: 2, m: 3}]}\n",
            {"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}, "d": {"k": 1, "m": 3}},
            id="yaml-alias-and-merge",
        ),
    ],
)
def test_content(load, text, content):
    assert load("/f", text) == Document(content, None, None)


@pytest.mark.parametrize(
    ("load", "text", "content", "obstacle"),
    [
        pytest.param(
            load_json,
            '{"a": 1,\n "a": 2}',
            {"a": 2},
            '/f, line 2, column 2: key "a" appears twice',
            id="json",
        ),
        pytest.param(
            load_yaml,
            "a: 1\nb:\n  c: 1\n  c: 2\n",
            {"a": 1, "b": {"c": 2}},
            '/f, line 4, column 3: key "c" appears twice',
            id="yaml",
        ),
        pytest.param(
            load_yaml,
            "a: 1\n---\nb: [\n",
            {"a": 1},
            "/f, line 2, column 1: a second document starts here; programs read only the first one",
            id="yaml-second-document",
        ),
    ],
)
def test_what_programs_read_and_nobody_should_edit(load, text, content, obstacle):
    assert load("/f", text) == Document(content, None, obstacle)


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
        pytest.param(
            load_json, "[]", "/f, line 1, column 1: the document is not an object", id="json-list"
        ),
        pytest.param(
            load_yaml,
            "a: 1\nb: [\n",
            "/f, line 3, column 1: did not find expected node content",
            id="yaml",
        ),
        pytest.param(
            load_yaml,
            "ab\x00: 1\n",
            "/f, line 1, column 3: character U+0000 is not allowed",
            id="yaml-control-character",
        ),
        pytest.param(
            load_yaml,
            "- a\n",
            "/f, line 1, column 1: the document is not a mapping",
            id="yaml-list",
        ),
    ],
)
def test_error_names_file_and_place(load, text, error):
    document = load("/f", text)
    assert document.content == {}
    assert document.error.startswith(error)
