# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin together with its module, which runs here instead of on a node."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.metal.gpu.plugins.action.config_document import ActionModule
from ansible_collections.metal.gpu.plugins.modules import config_document
from ansible_collections.metal.gpu.tests.unit.support.module_args import patch_module_args

BEFORE = '{\n  "log-driver": "json-file"\n}\n'
AFTER = '{\n  "log-driver": "json-file",\n  "default-runtime": "nvidia"\n}\n'
WISH = {"merge": {"default-runtime": "nvidia"}}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "daemon.json"
    path.write_text(BEFORE)
    return path


@pytest.fixture
def act(path, tmp_path, capsys):
    """Run the action on `path`, and return its result with the number of remote operations."""

    def run(*, check=False, **options):
        operations = []

        def execute_module(module_name, module_args, task_vars):
            operations.append(module_args)
            args = {**json.loads(json.dumps(module_args)), "_ansible_check_mode": check}
            with patch_module_args(args), pytest.raises(SystemExit):
                config_document.main()
            return json.loads(capsys.readouterr().out)

        args = {"path": str(path), "state_dir": str(tmp_path / "state"), **options}
        task = SimpleNamespace(
            args=args, check_mode=check, async_val=0, diff=True, action="x", environment=[]
        )
        mocks = (MagicMock() for _mock in range(5))
        action = ActionModule(task, *mocks)
        action._load_name = "metal.gpu.config_document"  # as the loader of plugins does
        action._execute_module = execute_module
        return action.run(task_vars={}), len(operations)

    return run


def everything(tmp_path):
    return {p.name: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("existing", [True, False])
def test_check_real_check_real(act, path, tmp_path, existing):
    before, after = (BEFORE, AFTER) if existing else ("", '{\n  "default-runtime": "nvidia"\n}\n')
    if not existing:
        path.unlink()
    forward = {"before": before, "after": after}
    rhythm = [
        # options, check, changed, operations, diff
        (WISH, True, True, 1, forward),
        (WISH, False, True, 2, forward),
        (WISH, True, False, 1, {"before": after, "after": after}),
        (WISH, False, False, 1, {"before": after, "after": after}),
        ({"state": "absent"}, True, True, 1, {"before": after, "after": before}),
        ({"state": "absent"}, False, True, 2, {"before": after, "after": before}),
        ({"state": "absent"}, True, False, 1, {"before": before, "after": before}),
        ({"state": "absent"}, False, False, 1, {"before": before, "after": before}),
    ]
    untouched = everything(tmp_path)
    for options, check, changed, operations, diff in rhythm:
        found = everything(tmp_path)
        result, count = act(check=check, **options)
        assert result["changed"] is changed
        assert count == operations
        headers = {"before_header": str(path), "after_header": str(path)}
        assert result["diff"] == {**diff, **headers}
        assert (everything(tmp_path) == found) is (check or not changed)
    assert everything(tmp_path) == untouched


def test_two_owners_and_a_person(act, path):
    act(merge={"log-driver": "journald", "runtimes": {"nvidia": {"path": "x"}}}, owner="one")
    act(append=[{"path": "features.list", "items": ["a"]}], owner="two")
    path.write_text(path.read_text().replace('"log-driver"', '"debug": true, "log-driver"'))
    act(state="absent", owner="one")
    assert json.loads(path.read_text()) == {
        "debug": True,
        "log-driver": "json-file",
        "features": {"list": ["a"]},
    }
    act(state="absent", owner="two")
    assert json.loads(path.read_text()) == {"debug": True, "log-driver": "json-file"}


def test_tasks_of_one_owner_add_up(act, path):
    for _time in range(2):
        act(**WISH)
        act(discard=[{"path": ["hosts"], "items": ["x"]}], remove=["log-driver"])
    assert json.loads(path.read_text()) == {"default-runtime": "nvidia"}
    act(state="absent")
    assert path.read_text() == BEFORE


def test_only_the_last_change_is_given_back(act, path, tmp_path):
    untouched = everything(tmp_path)
    act(**WISH)
    once = everything(tmp_path)
    act(merge={"debug": True})
    for check, operations, changed in [(True, 1, True), (False, 2, True), (False, 1, False)]:
        result, count = act(state="previous", check=check)
        assert (result["changed"], count) == (changed, operations)
    assert path.read_text() == AFTER
    assert set(everything(tmp_path)) == set(once)
    act(state="absent")
    assert everything(tmp_path) == untouched


def test_the_first_change_is_given_back_whole(act, tmp_path):
    untouched = everything(tmp_path)
    act(**WISH)
    act(state="previous")
    assert everything(tmp_path) == untouched


def test_what_is_kept_is_not_given_back(act, path, tmp_path):
    act(**WISH)
    for operations in (2, 1):
        result, count = act(state="kept")
        assert (result["changed"], count) == (False, operations)
    act(state="absent")
    assert set(everything(tmp_path)) == {"daemon.json", "daemon.json.metal.gpu-orig"}
    assert path.read_text() == AFTER


def test_the_backup_is_of_the_first_change_only(act, path):
    first, _count = act(**WISH)
    assert first["backup_file"] == f"{path}.metal.gpu-orig"
    second, _count = act(merge={"debug": True})
    assert "backup_file" not in second
    assert path.with_name("daemon.json.metal.gpu-orig").read_text() == BEFORE


def test_no_backup(act, tmp_path):
    act(**WISH, backup=False)
    assert "daemon.json.metal.gpu-orig" not in everything(tmp_path)


def test_nothing_to_give_back_but_a_state(act, path, tmp_path):
    act(**WISH)
    path.unlink()
    result, count = act(state="absent")
    assert (result["changed"], count) == (False, 2)
    assert set(everything(tmp_path)) == {"daemon.json.metal.gpu-orig"}


@pytest.mark.parametrize("check", [True, False], ids=["check", "real"])
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        pytest.param('{\n "a": 1\n "b": 2}', WISH, "PATH: line 3, column 2: ", id="malformed"),
        pytest.param('{"a": "\ufffd"}', WISH, "PATH: line 1, column 8: not UTF-8", id="encoding"),
        pytest.param(
            '{"runtimes": []}', {"merge": {"runtimes": {"x": 1}}}, "runtimes is a", id="kind"
        ),
        pytest.param(None, {**WISH, "create": False}, "PATH: no such file", id="create"),
    ],
)
def test_failure_changes_nothing(act, path, tmp_path, text, options, message, check):
    path.unlink()
    if text is not None:
        path.write_bytes(text.encode().replace("\ufffd".encode(), b"\xff"))
    found = everything(tmp_path)
    with pytest.raises(AnsibleActionFail) as error:
        act(check=check, **options)
    assert message.replace("PATH", str(path)) in str(error.value)
    assert everything(tmp_path) == found


def test_a_refused_file_does_not_land(act, path, tmp_path):
    found = everything(tmp_path)
    result, count = act(**WISH, validate="false %s")
    assert (result["failed"], count) == (True, 2)
    assert "false refuses the new" in result["msg"]
    assert everything(tmp_path) == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "state is present but any of the following are missing: merge, append"),
        ({"state": "absent", **WISH}, "state: absent takes no merge"),
        ({"state": "previous", **WISH}, "state: previous takes no merge"),
        (
            {**WISH, "path": "/etc/x.conf"},
            "/etc/x.conf: the suffix tells no language, so set format",
        ),
        ({**WISH, "validate": ["dockerd"]}, "validate has no %s"),
        ({"remove": ["a..b"]}, "not a key path: 'a..b'"),
        ({**WISH, "merges": {}}, "Unsupported parameters"),
    ],
)
def test_a_wrong_task_fails_before_it_reaches_the_node(act, options, message):
    with pytest.raises(AnsibleActionFail, match=message):
        act(**options)


@pytest.mark.parametrize(
    ("name", "options", "after"),
    [
        ("c.toml", {"merge": {"a": 1}}, "a = 1\n"),
        ("c.yml", {"merge": {"a": 1}}, "a: 1\n"),
        ("c.conf", {"merge": {"a": 1}, "format": "yaml"}, "a: 1\n"),
    ],
)
def test_the_suffix_tells_the_language(act, tmp_path, name, options, after):
    act(path=str(tmp_path / name), **options)
    assert (tmp_path / name).read_text() == after
