# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
from itertools import pairwise
from textwrap import dedent

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.documents import edit as documents
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.edit import Edits, ListEdit
from ansible_collections.metal.gpu.plugins.plugin_utils.documents.model import (
    BadPath,
    KeyConflict,
    Malformed,
    NotEditable,
)

RUNTIME = ("plugins", "io.containerd.cri.v1.runtime", "containerd", "runtimes")
NVIDIA = {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True}}


LANGUAGES = ("json", "yaml", "toml")
# Each line repeats the one before nine times: 9 ** 9 values in all.
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(9 * [f'*{old}'])}]\n" for old, new in pairwise("abcdefghi")
)


def nested(path, value):
    for key in reversed(path):
        value = {key: value}
    return value


EDITS = [
    pytest.param(
        "json",
        Edits(
            merge={"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "x", "args": []}}}
        ),
        """\
        {
            "exec-opts": ["native.cgroupdriver=systemd"],
            "log-opts": {"max-size": "100m"}
        }
        """,
        """\
        {
            "exec-opts": ["native.cgroupdriver=systemd"],
            "log-opts": {"max-size": "100m"},
            "default-runtime": "nvidia",
            "runtimes": {
                "nvidia": {
                    "path": "x",
                    "args": []
                }
            }
        }
        """,
        id="json-lists-on-one-line-stay-on-it",
    ),
    pytest.param(
        "json",
        Edits(merge={"log-opts": {"max-file": "3"}}, remove=(("a",),)),
        '{"a":1.50,"log-opts":{"max-size":"\\u00e9"},"c":1e3}',
        '{"log-opts":{"max-size":"\\u00e9","max-file":"3"},"c":1e3}',
        id="json-compact",
    ),
    pytest.param(
        "json",
        Edits(merge={"a": {"b": [1]}}),
        "",
        '{\n  "a": {\n    "b": [\n      1\n    ]\n  }\n}\n',
        id="json-empty-file",
    ),
    pytest.param(
        "json",
        Edits(merge={"a": {"b": 1}}),
        '{\n\t"a": {}\n}',
        '{\n\t"a": {\n\t\t"b": 1\n\t}\n}',
        id="json-tabs-without-final-newline",
    ),
    pytest.param(
        "json",
        Edits(merge={"b": 1}),
        '{\r\n  "a": 1\r\n}\r\n',
        '{\r\n  "a": 1,\r\n  "b": 1\r\n}\r\n',
        id="json-crlf",
    ),
    pytest.param("json", Edits(merge={"a": True}), '{"a": 1}', '{"a": true}', id="true-is-not-1"),
    pytest.param("json", Edits(merge={"a": {"b": 1}}), '{"a": null}', '{"a": {"b": 1}}', id="null"),
    pytest.param(
        "toml",
        Edits(
            merge=nested(RUNTIME, {"nvidia": NVIDIA}),
            append=(ListEdit(("imports",), ["/etc/containerd/conf.d/*.toml"]),),
            discard=(ListEdit(("disabled_plugins",), ["cri"]),),
        ),
        """\
        #   Licensed under the Apache License

        disabled_plugins = ["cri"]  # why

        #root = "/var/lib/containerd"
        """,
        """\
        #   Licensed under the Apache License

        disabled_plugins = []  # why
        imports = ["/etc/containerd/conf.d/*.toml"]

        #root = "/var/lib/containerd"

        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
        runtime_type = "io.containerd.runc.v2"

        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
        SystemdCgroup = true
        """,
        id="toml-stock-containerd",
    ),
    pytest.param(
        "toml",
        Edits(merge={**nested(RUNTIME, {"nvidia": NVIDIA}), "grpc": {"uid": 0}, "version": 3}),
        """\
        # about grpc
        [grpc]
          address = "/run/x"
          # after

        [plugins]
          [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
            runtime_type = 'io.containerd.runc.v2'

        # about the scheduler
          [plugins.'io.containerd.gc.v1.scheduler']
        """,
        """\
        version = 3

        # about grpc
        [grpc]
          address = "/run/x"
          uid = 0
          # after

        [plugins]
          [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
            runtime_type = 'io.containerd.runc.v2'

          [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
            runtime_type = "io.containerd.runc.v2"

          [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia.options]
            SystemdCgroup = true

        # about the scheduler
          [plugins.'io.containerd.gc.v1.scheduler']
        """,
        id="toml-beside-its-relatives-indented-and-quoted-like-them",
    ),
    pytest.param(
        "toml",
        Edits(remove=(("a",), ("d", "x")), merge={"p": {"q r": {"new": 2}}}),
        '[a]\nx = 1\n\n# about b\n[b]\np."q r".s = 1\n[d]\nx = 1\ny = 2\n[p]\n"q r".t = 1\n',
        '\n# about b\n[b]\np."q r".s = 1\n[d]\ny = 2\n[p]\n"q r".t = 1\n"q r".new = 2\n',
        id="toml-dotted-keys-and-the-comment-of-the-next-table",
    ),
    pytest.param(
        "toml",
        Edits(merge={"t": {"b": {"c": 1}}, "n": 2}, append=(ListEdit(("l",), ["c"]),)),
        'l = [\n  "a", # one\n  "b",\n]\nt = {a = 1}\n\n[[many]]\nx = 1\n\n[[many]]\nx = 2\n',
        'l = [\n  "a", # one\n  "b",\n  "c",\n]\nt = {a = 1, b = {c = 1}}\nn = 2\n\n'
        "[[many]]\nx = 1\n\n[[many]]\nx = 2\n",
        id="toml-inline-table-and-array-of-tables",
    ),
    pytest.param("toml", Edits(merge={"b": 1}), "a = 1", "a = 1\nb = 1\n", id="toml-no-newline"),
    pytest.param(
        "yaml",
        Edits(merge={"c": 1}),
        "b: |\n  x",
        "b: |-\n  x\nc: 1\n",
        id="yaml-literal-no-newline",
    ),
    pytest.param(
        "yaml", Edits(merge={"c": 1}), "b: >+ # x\n  x", "b: >- # x\n  x\nc: 1\n", id="yaml-folded"
    ),
    pytest.param(
        "yaml",
        Edits(merge={"c": 1}),
        "b:\n- y\n- !!str &a |2+\n    x\n   y",
        "b:\n- y\n- !!str &a |2-\n    x\n   y\nc: 1\n",
        id="yaml-literal-in-list",
    ),
    pytest.param(
        "yaml", Edits(merge={"c": 1}), "b: |-\n  x", "b: |-\n  x\nc: 1\n", id="yaml-stripped"
    ),
    pytest.param(
        "yaml", Edits(merge={"c": 1}), "b: |\n  x\n# y", "b: |\n  x\nc: 1\n# y\n", id="yaml-comment"
    ),
    pytest.param(
        "yaml", Edits(remove=(("b",),)), "a: 1\nb: |\n  x", "a: 1\n", id="yaml-literal-removed"
    ),
    pytest.param(
        "yaml", Edits(merge={"b": "y"}), "b: |\n  x", 'b: "y"\n', id="yaml-literal-replaced"
    ),
    pytest.param(
        "yaml",
        Edits(merge={"c": 1}),
        "\ufeffb: |\r\n  x",
        "\ufeffb: |-\r\n  x\r\nc: 1\r\n",
        id="yaml-literal-crlf",
    ),
    pytest.param("toml", Edits(merge={"b": 1}), "a = 1\r\n", "a = 1\r\nb = 1\r\n", id="toml-crlf"),
    pytest.param("toml", Edits(merge={"t": {"b": 1}}), "", "[t]\nb = 1\n", id="toml-empty-file"),
    pytest.param(
        "yaml",
        Edits(
            remove=(("featureGates", "DevicePlugins"),),
            merge={"evictionHard": {"nodefs.available": "10%"}, "tls": {"ciphers": ["a b", "on"]}},
            append=(ListEdit(("clusterDNS",), ["10.96.0.11"]),),
        ),
        """\
        apiVersion: kubelet.config.k8s.io/v1beta1   # aligned
        clusterDNS:
        - 10.96.0.10  # first
        # gates
        featureGates:
          DevicePlugins: true

        # eviction
        evictionHard:
          memory.available: '100Mi'  # quoted

        # kind
        kind: KubeletConfiguration
        """,
        """\
        apiVersion: kubelet.config.k8s.io/v1beta1   # aligned
        clusterDNS:
        - 10.96.0.10  # first
        - "10.96.0.11"
        # gates

        # eviction
        evictionHard:
          memory.available: '100Mi'  # quoted
          nodefs.available: "10%"

        # kind
        kind: KubeletConfiguration
        tls:
          ciphers:
          - "a b"
          - "on"
        """,
        id="yaml-kubelet",
    ),
    pytest.param(
        "yaml",
        Edits(remove=(("featureGates", "DevicePlugins"),)),
        "featureGates:\n    DevicePlugins: true # old\n    Other: false\n",
        "featureGates:\n    Other: false\n",
        id="yaml-other-gates-stay",
    ),
    pytest.param(
        "yaml",
        Edits(merge={"a": {"b": {"c": {"d": 1}}}, "f": {"h": {"i": [1]}}, "n": {"x": 1}, "s": "v"}),
        "a:\n    b: {}  # empty\n    l:\n      - 1\nf: {g: 1}\nn:\ns: |\n  text\n\n# end",
        "a:\n    b:\n        c:\n            d: 1  # empty\n    l:\n      - 1\n"
        "f: {g: 1, h: {i: [1]}}\nn:\n    x: 1\ns: v\n\n# end\n",
        id="yaml-empty-flow-null-block-scalar",
    ),
    pytest.param(
        "yaml",
        Edits(discard=(ListEdit(("l",), [1, 2]), ListEdit(("m",), ["x"]))),
        "l:\n  - 1\n  - 2\nm: [x, 'y']\nlong: " + "word " * 60 + "\n",
        "l: []\nm: ['y']\nlong: " + "word " * 60 + "\n",
        id="yaml-lists-and-a-long-line",
    ),
    pytest.param(
        "yaml", Edits(merge={"a": 1}), "# only\n---\n", "# only\n---\na: 1\n", id="yaml-none"
    ),
    pytest.param("yaml", Edits(remove=(("a",),)), "# x\na: 1\n", "# x\n{}\n", id="yaml-last-key"),
    pytest.param(
        "yaml",
        Edits(merge={"c": 1}),
        "a: &x {k: 1}\nb: *x\n",
        "a: &x {k: 1}\nb: *x\nc: 1\n",
        id="yaml-alias-elsewhere",
    ),
]


@pytest.mark.parametrize(("language", "edits", "before", "after"), EDITS)
def test_only_the_keys_in_question_are_edited(language, edits, before, after):
    before, after = dedent(before), dedent(after)
    data = documents.parse(before, language)
    untouched = copy.deepcopy(data)
    assert documents.render(before, language, documents.apply(data, edits)) == after
    assert data == untouched
    again = documents.apply(documents.parse(after, language), edits)
    assert documents.render(after, language, again) == after


def test_a_kept_newline_in_front_of_blanks_at_the_end_stays():
    edited = documents.render("b: |+\n  x\n  ", "yaml", {"b": "x\n", "c": 1})
    assert edited == "b: |\n  x\nc: 1\n  \n"


@pytest.mark.parametrize(("language", "edits", "before", "after"), EDITS)
def test_giving_back_after_a_foreign_change_keeps_that_and_every_comment(
    language, edits, before, after
):
    before, after = dedent(before), dedent(after)
    original = documents.parse(before, language)
    written = documents.parse(after, language)
    theirs = documents.render(after, language, {**written, "theirs": {"x": 1}})
    rest = documents.restore(documents.parse(theirs, language), written, original)
    assert rest == {**original, "theirs": {"x": 1}}
    text = documents.render(theirs, language, rest)
    lines = text.splitlines()
    assert [line for line in after.splitlines() if line[:1] == "#" and line not in lines] == []


def places(table, path=()):
    """Yield the path and the value of everything in a document that is not within a list."""
    for key, value in table.items():
        yield (*path, key), value
        if isinstance(value, dict):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("value", [1, "on", {"k": {"l": []}}], ids=["number", "text", "table"])
@pytest.mark.parametrize(("language", "edits", "before", "after"), EDITS)
def test_everything_everywhere_can_be_edited(language, edits, before, after, value):
    """`render` itself fails where a text would not mean what is wanted."""
    text = dedent(after)
    for path, found in [((), None), *places(documents.parse(text, language))]:
        if "*x" in text and path[:1] in [("a",), ("b",)]:
            continue
        wanted = documents.parse(text, language)
        parent = wanted
        for key in path[:-1]:
            parent = parent[key]
        if path == ():
            wanted["new key"] = value
        elif isinstance(found, dict):
            parent[path[-1]]["new.key"] = value
        else:
            parent[path[-1]] = value
        documents.render(text, language, wanted)
        if path:
            del parent[path[-1]]
            documents.render(text, language, wanted)


@pytest.mark.parametrize(
    ("language", "text", "line", "column", "problem"),
    [
        ("json", '{\n  "a": 1\n  "b": 2\n}', 3, 3, "Expecting ',' delimiter"),
        ("json", '{"a": 1}}', 1, 9, "Extra data"),
        ("json", "[1]", 1, 1, "not an object"),
        ("json", '{\n "a": NaN}', 2, 7, "NaN is not a JSON number"),
        ("json", '{"NaN": "NaN",\n "a": [1, -Infinity]}', 2, 11, "-Infinity is not a JSON number"),
        ("json", '{"1e999": 1, "a": 1e999}', 1, 19, "1e999 is not a JSON number"),
        ("json", '{"a": ' + 5000 * "1" + "}", 1, 7, "the number is too large"),
        ("json", '{\n "a": 1,\n "a": 2}', 3, 2, 'key "a" appears twice'),
        ("json", '{"b": {"a": [{}], "\\u0061": 2}}', 1, 19, 'key "a" appears twice'),
        ("json", '{"a": "b\tc"}', 1, 9, "Invalid control character"),
        ("json", '{"a": 1}\0', 1, 9, "Extra data"),
        ("json", '{"a": ' + 101 * "[" + 101 * "]" + "}", 1, 106, "more than 100 levels deep"),
        ("json", 100_000 * '{"a": ', 1, 601, "more than 100 levels deep"),
        ("toml", "a = 1\nb = \n", 2, 5, "Invalid value"),
        ("toml", "a = [\n", 2, 1, "Invalid value"),
        ("toml", "a = 1\na = 2\n", 2, 6, "Cannot overwrite a value"),
        ("toml", "a = 2026-13-01\n", 1, 9, "Expected newline"),
        ("toml", 'a = "\0"\n', 1, 6, "Illegal character"),
        ("toml", "a = 1\nb = 9223372036854775808\n", 2, 5, "the number is too large"),
        ("toml", "a = " + 5000 * "1" + "\n", 1, 5, "the number is too large"),
        ("toml", "a = '1e999'\nb = 1e999\n", 2, 5, "the number is too large"),
        ("toml", "a = " + 101 * "[" + 101 * "]" + "\n", 1, 104, "more than 100 levels deep"),
        ("toml", "a = " + 100_000 * "[", 1, 104, "more than 100 levels deep"),
        ("toml", "a." * 101 + "b = 1\n", 1, 1, "more than 100 levels deep"),
        ("yaml", "a: 1\n\tb: 2\n", 2, 1, "found a tab character"),
        ("yaml", "a: 1\n---\nb: 2\n", 2, 1, "a second document starts here"),
        ("yaml", "- 1\n", 1, 1, "not a mapping"),
        ("yaml", "a: [1\n", 2, 1, "did not find expected ',' or ']'"),
        ("yaml", "a: 1\nb: 1\na: 2\n", 3, 1, 'key "a" appears twice'),
        ("yaml", "a: \u00e9\nb: *x\n", 2, 4, "alias 'x' refers to no earlier anchor"),
        ("yaml", "a: &x [*x]\n", 1, 8, "an alias refers to a value that contains it"),
        ("yaml", "a: \u00e9\nb: \x07\n", 2, 4, "character U+0007 is not allowed"),
        ("yaml", "a: \0\n", 1, 4, "character U+0000 is not allowed"),
        ("yaml", "[a]: 1\n", 1, 1, "a key that is not a scalar"),
        ("yaml", "a: .inf\n", 1, 4, ".inf is not a number in JSON"),
        ("yaml", "a: {<<: 1}\n", 1, 9, "<< needs a table"),
        ("yaml", 'a: "\\ud83d\\ude00"\n', 1, 7, "invalid Unicode character escape code"),
        ("yaml", BOMB, 6, 8, "aliases repeat more than 100000 values"),
        ("yaml", "a: " + 500 * "[", 1, 103, "more than 100 levels deep"),
        ("yaml", "\n".join(" " * i + "a:" for i in range(102)), 101, 101, "100 levels deep"),
        *((language, "\ufffd\ufffdn\0", 1, 1, "possibly UTF-16") for language in LANGUAGES),
    ],
    ids=str,
)
def test_malformed_text_is_refused_with_its_place(language, text, line, column, problem):
    with pytest.raises(Malformed, match=rf"^line {line}, column {column}: ") as error:
        documents.parse(text, language)
    assert problem in str(error.value)


def test_yaml_of_any_depth_is_refused() -> None:
    """From PyYAML 6.0.4 on, the parser has a limit of its own: 1,000 levels."""
    with pytest.raises(Malformed, match=r"levels deep|maximum nesting depth"):
        documents.parse("a: " + 200_000 * "[", "yaml")


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        (
            Edits(merge={"s": {"k": 1}}),
            "s is a single value in the file, but the task asks for a table",
        ),
        (
            Edits(merge={"t": {"u.v": 1}}),
            't."u.v" is a list in the file, but the task asks for a single',
        ),
        (Edits(merge={"t": 1}), "t is a table in the file, but the task asks for a single value"),
        (Edits(append=(ListEdit(("s",), [1]),)), "s is a single value in the file"),
        (Edits(append=(ListEdit(("s", "x"), [1]),)), "s is a single value .* asks for a table"),
        (Edits(discard=(ListEdit(("t",), [1]),)), "t is a table in the file, .* asks for a list"),
    ],
)
def test_conflicting_kinds_name_the_key(edits, message):
    with pytest.raises(KeyConflict, match=message):
        documents.apply({"s": 1, "t": {"u.v": [1]}}, edits)


@pytest.mark.parametrize(
    ("data", "edits", "after"),
    [
        ({"a": {"b": {"c": 1}}, "d": 1}, Edits(remove=(("a", "b", "c"),)), {"d": 1}),
        ({"a": {"b": {}, "c": 1}}, Edits(remove=(("a", "c"),)), {"a": {"b": {}}}),
        ({"a": {}}, Edits(remove=(("a", "c"), ("x", "y"))), {"a": {}}),
        ({"a": 1}, Edits(remove=(("a", "b"),)), {"a": 1}),
        ({"l": [1, "1", True]}, Edits(discard=(ListEdit(("l",), [1]),)), {"l": ["1", True]}),
        ({"l": [1]}, Edits(append=(ListEdit(("l",), [1, True, True]),)), {"l": [1, True, True]}),
        ({}, Edits(discard=(ListEdit(("l", "m"), [1]),)), {}),
        ({"l": [1, 2]}, Edits(merge={"l": [2]}), {"l": [2]}),
        ({"a": 1}, Edits(remove=(("a",),), merge={"a": {"b": 1}}), {"a": {"b": 1}}),
    ],
)
def test_apply(data, edits, after):
    assert documents.apply(data, edits) == after


@pytest.mark.parametrize(
    ("original", "written", "current", "rest"),
    [
        pytest.param({"a": 1}, {"a": 2}, {"a": 2, "x": 1}, {"a": 1, "x": 1}, id="overwritten"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 3}, {"a": 3}, id="theirs-by-now"),
        pytest.param({"a": 1}, {"a": 2}, {}, {}, id="removed-since"),
        pytest.param({"a": 1}, {}, {"x": 1}, {"x": 1, "a": 1}, id="removed-by-us"),
        pytest.param({"a": {"b": 1}}, {}, {"a": {"c": 1}}, {"a": {"c": 1, "b": 1}}, id="refilled"),
        pytest.param({}, {"a": {"b": 1}}, {"a": {"b": 1}, "x": 1}, {"x": 1}, id="our-table"),
        pytest.param({}, {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}, id="shared"),
        pytest.param(
            {"a": {}}, {"a": {"b": 1}}, {"a": {"b": 1}, "x": 1}, {"a": {}, "x": 1}, id="{}"
        ),
        pytest.param(
            {"a": None}, {"a": {"b": 1}}, {"a": {"b": 1}, "x": 1}, {"a": None, "x": 1}, id="null"
        ),
        pytest.param({"l": [1, 2]}, {"l": [2, 3]}, {"l": [4, 2, 3]}, {"l": [1, 4, 2]}, id="items"),
        pytest.param({}, {"l": [3]}, {"l": [3, 4]}, {"l": [4]}, id="our-list-shared"),
        pytest.param({}, {"l": [3]}, {"l": []}, {}, id="our-list-emptied"),
        pytest.param({"l": ["cri"]}, {"l": []}, {"l": ["x"]}, {"l": ["cri", "x"]}, id="discarded"),
    ],
)
def test_restore(original, written, current, rest):
    assert documents.restore(current, written, original) == rest


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        ("a.b", ("a", "b")),
        (r"plugins.io\.containerd\.cri.x", ("plugins", "io.containerd.cri", "x")),
        (["a.b", "c"], ("a.b", "c")),
        (8080, ("8080",)),
    ],
)
def test_key_path(path, keys):
    assert documents.key_path(path) == keys


@pytest.mark.parametrize("path", ["", "a..b", [], [""], [["a"]], None])
def test_bad_key_path(path):
    with pytest.raises(BadPath):
        documents.key_path(path or [])


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("yaml", "a: &x {k: 1, l: 1}\nb: *x\n", {"a": {"k": 1, "l": 1}, "b": {"k": 1}}),
        ("yaml", "a: &x {k: 1}\nb: *x\n", {"a": {"k": 2}, "b": {"k": 1}}),
        ("yaml", "a: &x {k: 1}\nb: *x\n", {"b": {"k": 1}}),
        ("yaml", "a: |+\n  text\n\n", {"a": "text\n\n", "b": 1}),
        ("toml", "a = 1\n", {"a": None}),
        ("toml", "a = [1]\n", {"a": [1, {"b": None}]}),
    ],
)
def test_what_cannot_be_edited_alone_is_refused(language, text, wanted):
    with pytest.raises(NotEditable):
        documents.render(text, language, wanted)


TABLES = """\
# The runtimes.
[crio.runtime.runtimes.nvidia]
runtime_path = "/usr/bin/nvidia-container-runtime"
"""
DEFAULT = Edits(merge=nested(["crio", "runtime", "default_runtime"], "nvidia"))


def without_default(text):
    edits = Edits(remove=(("crio", "runtime", "default_runtime"),))
    return documents.render(text, "toml", documents.apply(documents.parse(text, "toml"), edits))


def with_default(text):
    return documents.render(text, "toml", documents.apply(documents.parse(text, "toml"), DEFAULT))


def test_the_last_value_of_a_table_takes_its_header_with_it():
    with_header = with_default(TABLES)
    assert with_header == f'{TABLES}\n[crio.runtime]\ndefault_runtime = "nvidia"\n'
    assert without_default(with_header) == TABLES
    above = '[crio.runtime]\ndefault_runtime = "nvidia"\n'
    assert without_default(f"{above}\n{TABLES.splitlines(True)[1]}") == TABLES.splitlines(True)[1]


@pytest.mark.parametrize(
    "table",
    [
        '[crio.runtime] # of the admin\ndefault_runtime = "nvidia"\n',
        '[crio.runtime]\n# log_level = "info"\ndefault_runtime = "nvidia"\n',
        '[crio.runtime]\ndefault_runtime = "nvidia"\nlog_level = "info"\n',
    ],
)
def test_a_header_with_a_comment_or_another_value_stays(table):
    line = 'default_runtime = "nvidia"\n'
    assert without_default(table + TABLES) == table.replace(line, "") + TABLES


def test_a_header_without_subtables_stays():
    """Its table would not be there without it."""
    assert without_default('[crio.runtime]\ndefault_runtime = "nvidia"\n') == ""
    rest = documents.render("[crio.runtime]\nlog_level = 1\n", "toml", {"crio": {"runtime": {}}})
    assert rest == "[crio.runtime]\n"
