# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The action plugin together with its module, which runs here instead of on a node."""

from __future__ import annotations

import json
import stat
from types import SimpleNamespace
from unittest.mock import MagicMock
from urllib.parse import quote

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.metal.gpu.plugins.action.config_document import ActionModule
from ansible_collections.metal.gpu.plugins.modules import config_document
from ansible_collections.metal.gpu.tests.unit.support import config_files
from ansible_collections.metal.gpu.tests.unit.support.module_args import patch_module_args

BEFORE = '{\n  "log-driver": "json-file"\n}\n'
AFTER = '{\n  "log-driver": "json-file",\n  "default-runtime": "nvidia"\n}\n'
WISH = {"merge": {"default-runtime": "nvidia"}}
COLLECTED = list(config_files.collected())
HAS_IT_ALL = "crio/02-nvidia.conf"  # this file has what is merged


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

        args = {"path": str(path), "history_dir": str(tmp_path / "state"), **options}
        task = SimpleNamespace(
            args=args, check_mode=check, async_val=0, diff=True, action="x", environment=[]
        )
        mocks = (MagicMock() for _mock in range(5))
        action = ActionModule(task, *mocks)
        action._load_name = "metal.gpu.config_document"  # as the loader of plugins does
        action._execute_module = execute_module
        return action.run(task_vars={}), len(operations)

    return run


def backup_of(path):
    return f"{quote(str(path), safe='')}@metal.gpu.orig"


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


@pytest.mark.parametrize("file", COLLECTED, ids=[file.name for file in COLLECTED])
def test_collected_file_goes_through_the_module_and_comes_back(act, path, tmp_path, file):
    """On disk, with line ends and byte order marks as they are. What stays is tested elsewhere."""
    path.write_bytes(file.text.encode())
    path.chmod(0o640)
    untouched = everything(tmp_path)
    edits = {
        "format": file.language,
        "merge": file.edits.merge,
        "remove": [list(key) for key in file.edits.remove],
        "discard": [
            {"path": list(one.path), "items": list(one.items)} for one in file.edits.discard
        ],
    }
    changes = file.name != HAS_IT_ALL
    assert act(**edits)[0]["changed"] is changes
    written = everything(tmp_path)
    assert (written[path.name] != untouched[path.name]) is changes
    assert act(**edits)[0]["changed"] is False
    assert everything(tmp_path) == written
    assert act(state="absent", format=file.language)[0]["changed"] is changes
    assert everything(tmp_path) == untouched
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_two_actors_and_a_person(act, path):
    act(merge={"log-driver": "journald", "runtimes": {"nvidia": {"path": "x"}}}, actor="one")
    act(append=[{"path": "features.list", "items": ["a"]}], actor="two")
    path.write_text(path.read_text().replace('"log-driver"', '"debug": true, "log-driver"'))
    act(state="absent", actor="one")
    assert json.loads(path.read_text()) == {
        "debug": True,
        "log-driver": "json-file",
        "features": {"list": ["a"]},
    }
    act(state="absent", actor="two")
    assert json.loads(path.read_text()) == {"debug": True, "log-driver": "json-file"}


def test_tasks_of_one_actor_add_up(act, path):
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


def test_edits_that_take_the_place_of_earlier_ones_are_one_edit(act, path, tmp_path):
    """A service that does not start with them gets what it had, and not what the admin had."""
    untouched = everything(tmp_path)
    act(**WISH)
    for check, operations, changed in [(True, 1, True), (False, 2, True), (False, 1, False)]:
        result, count = act(merge={"debug": True}, replace=True, check=check)
        assert (result["changed"], count) == (changed, operations)
    assert json.loads(path.read_text()) == {**json.loads(BEFORE), "debug": True}
    act(state="previous")
    assert path.read_text() == AFTER
    act(merge={"debug": True}, replace=True)
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
    assert set(everything(tmp_path)) == {"daemon.json", backup_of(path)}
    assert path.read_text() == AFTER


def test_the_backup_is_of_the_first_change_only(act, path, tmp_path):
    first, _count = act(**WISH)
    backup = tmp_path / "state" / backup_of(path)
    assert first["backup_file"] == str(backup)
    second, _count = act(merge={"debug": True})
    assert "backup_file" not in second
    assert backup.read_text() == BEFORE


def test_no_backup(act, path, tmp_path):
    act(**WISH, backup=False)
    assert backup_of(path) not in everything(tmp_path)


def test_nothing_to_give_back_but_a_state(act, path, tmp_path):
    act(**WISH)
    path.unlink()
    result, count = act(state="absent")
    assert (result["changed"], count) == (False, 2)
    assert set(everything(tmp_path)) == {backup_of(path)}


@pytest.mark.parametrize("check", [True, False], ids=["check", "real"])
@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        pytest.param('{\n "a": 1\n "b": 2}', WISH, "PATH: line 3, column 2: ", id="malformed"),
        pytest.param(
            '{"a": 1,\n "a": 2}', WISH, 'PATH: line 2, column 2: key "a" appears', id="twice"
        ),
        pytest.param("UTF-16", WISH, "PATH: line 1, column 1: the file is in UTF-16", id="UTF-16"),
        pytest.param(
            '{"runtimes": {"x": {"Path": "a"}}}',
            {"merge": {"runtimes": {"x": {"path": "b"}}}},
            "the file has runtimes.x.Path, but the task asks for runtimes.x.path",
            id="case",
        ),
        pytest.param('{"a": "\ufffd"}', WISH, "PATH: line 1, column 8: not UTF-8", id="encoding"),
        pytest.param(
            '{"runtimes": []}', {"merge": {"runtimes": {"x": 1}}}, "runtimes is a", id="kind"
        ),
        pytest.param(None, {**WISH, "create": False}, "PATH: the file does not exist", id="create"),
    ],
)
def test_failure_changes_nothing(act, path, tmp_path, text, options, message, check):
    path.unlink()
    if text is not None:
        raw = text.encode("utf-16") if text == "UTF-16" else text.encode()
        path.write_bytes(raw.replace("\ufffd".encode(), b"\xff"))
    found = everything(tmp_path)
    with pytest.raises(AnsibleActionFail) as error:
        act(check=check, **options)
    assert message.replace("PATH", str(path)) in str(error.value)
    assert everything(tmp_path) == found


def test_a_refused_file_does_not_land(act, path, tmp_path):
    found = everything(tmp_path)
    result, count = act(**WISH, validate="false %s")
    assert (result["failed"], count) == (True, 2)
    assert "false rejects the new" in result["msg"]
    assert everything(tmp_path) == found


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "state is present but any of the following are missing: merge, append"),
        ({"state": "absent", **WISH}, "state: absent does not accept merge"),
        ({"state": "previous", **WISH}, "state: previous does not accept merge"),
        (
            {**WISH, "path": "/etc/x.conf"},
            "/etc/x.conf: the suffix of the file does not determine its language: set format",
        ),
        ({**WISH, "validate": ["dockerd"]}, "validate must contain %s"),
        ({"remove": ["a..b"]}, "not a key path: 'a..b'"),
        ({**WISH, "merges": {}}, "Unsupported parameters"),
    ],
)
def test_a_wrong_task_fails_before_it_reaches_the_node(act, options, message):
    with pytest.raises(AnsibleActionFail, match=message):
        act(**options)


def test_the_way_back_knows_the_language(act, tmp_path):
    path = tmp_path / "c.conf"
    path.write_text("a: 1  # one\n")
    act(path=str(path), format="yaml", merge={"b": 2})
    path.write_text("theirs: 1\n" + path.read_text())
    act(path=str(path), state="absent")
    assert path.read_text() == "theirs: 1\na: 1  # one\n"


def test_a_byte_order_mark_stays(act, path):
    path.write_bytes(b"\xef\xbb\xbf" + BEFORE.encode())
    act(**WISH)
    assert path.read_bytes() == b"\xef\xbb\xbf" + AFTER.encode()
    act(state="absent")
    assert path.read_bytes() == b"\xef\xbb\xbf" + BEFORE.encode()


def test_the_diff_shows_no_credentials(act, path):
    secret = "hunter2-of-the-admin"
    path.write_text(f'{{"proxies": {{"http-proxy": "http://me:{secret}@proxy:8080"}}}}')
    result, _count = act(**WISH)
    assert secret in path.read_text()
    assert secret not in json.dumps(result)
    assert "http://***@proxy:8080" in result["diff"]["before"]
    assert "default-runtime" in result["diff"]["after"]


@pytest.mark.parametrize(
    "options", [WISH, {"state": "absent"}, {"state": "previous"}], ids=["present", "absent", "back"]
)
@pytest.mark.parametrize("check", [True, False], ids=["check", "real"])
def test_what_cannot_be_replaced_is_told_beforehand(act, path, tmp_path, options, check):
    if "state" in options:
        act(merge={"debug": True})
    (tmp_path / "other-name").hardlink_to(path)
    found = everything(tmp_path)
    with pytest.raises(AnsibleActionFail) as error:
        act(check=check, **options)
    assert f"cannot change {path}: {path} has 2 hard links" in str(error.value)
    assert everything(tmp_path) == found


def test_what_needs_no_change_need_not_be_replaceable(act, path, tmp_path):
    act(**WISH)
    (tmp_path / "other-name").hardlink_to(path)
    result, count = act(**WISH)
    assert (result["changed"], count) == (False, 1)


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, 0o644),
        ({"mode": "0600"}, 0o600),
        ({"mode": "u=rw,g=r,o="}, 0o640),
        ({"mode": 384}, 0o600),
    ],
    ids=str,
)
def test_a_new_file_has_the_mode_that_the_task_gives_it(act, path, options, mode):
    path.unlink()
    act(**WISH, **options)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    path.chmod(0o604)
    act(merge={"debug": True}, **options)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


@pytest.mark.parametrize(
    ("options", "message"),
    [({"mode": "rw-"}, "mode must be"), ({"owner": "no-such-user"}, "no-such-user")],
)
def test_a_new_file_that_cannot_have_its_mode_is_not_made(act, path, tmp_path, options, message):
    path.unlink()
    result, _count = act(**WISH, **options)
    assert result["failed"]
    assert message in json.dumps(result)
    assert everything(tmp_path) == {}


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
