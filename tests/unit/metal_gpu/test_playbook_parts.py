# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import grp
import io
import json
import os
import re
import signal
import stat
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from ansible.config.manager import find_ini_config_file
from rich.console import Console

from ansible_collections.metal.gpu.plugins.module_utils import interrupts
from ansible_collections.metal.gpu.tests.unit.support import command
from ansible_collections.metal.gpu.tests.unit.support.command import ROOT
from metal_gpu import trust
from metal_gpu.playbooks import display, files, log_files, options, result, run, stages, tags
from metal_gpu.playbooks.progress import DONE, RUNNING, STOPPED, UNUSED, WAITING, Progress
from metal_gpu.playbooks.stopping import Stop

PLAYBOOKS = files.names(ROOT)


def plays(name):
    return yaml.safe_load(files.path(ROOT, name).read_text(encoding="utf-8"))


def described(name):
    return files.describe(files.path(ROOT, name).read_text(encoding="utf-8"))


# files: names and comments


def test_each_playbook_without_underscore_is_a_command():
    assert (
        sorted(
            path.stem for path in (ROOT / "playbooks").iterdir() if not path.name.startswith("_")
        )
        == PLAYBOOKS
    )
    assert "site" in PLAYBOOKS


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_playbook_says_what_it_does_and_has_an_example(name):
    found = described(name)
    assert found.text.endswith(".")
    assert found.examples
    for example in found.examples:
        assert example.startswith(f"metal-gpu {name}")
        assert "ansible-playbook" not in example


def test_examples_are_commands_without_remarks_and_continuations():
    found = files.describe(
        "# SPDX"
        "-License-Identifier: X\n\n# Does it. Well.\n#\n"
        "#   ansible-playbook -i inventory.yml metal.gpu.site --check   # shows it\n"
        "#   # A remark.\n"
        "#   ansible-playbook metal.gpu.site -e a=https://b/#c \\\n"
        "#     -e d\n\n- name: x\n# later\n"
    )
    assert found.text == "Does it. Well."
    assert found.examples == (
        "metal-gpu site --check",
        "metal-gpu site -e a=https://b/#c -e d",
    )


# stages


def test_the_stages_of_site_are_those_of_the_readme():
    assert [one.title for one in stages.of_playbook(plays("site"))] == [
        "Check the nodes",
        "Driver",
        "Container engine",
        "Registries",
        "Container runtime",
        "Kubelet",
        "Observe again the nodes without work",
        "Device plugin",
        "Proof of the GPUs",
    ]


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_a_playbook_has_stages(name):
    found = stages.of_playbook(plays(name))
    assert found
    assert all(one.title and one.play for one in found)


@pytest.mark.parametrize("odd", [None, "text", {}, [None], [{"hosts": "a", "tasks": "x"}]])
def test_an_odd_playbook_does_no_harm(odd):
    assert isinstance(stages.of_playbook(odd), list)


# options


def test_options_become_arguments():
    wanted = options.Options(
        inventory=["a.yml", "b"],
        check=True,
        diff=True,
        limit="gpu-1",
        serial="1,10,25%",
        extra_vars=["a=b"],
        tags=["driver"],
        skip_tags=["verify"],
        ask_become_pass=True,
        more=["--forks", "9"],
    )
    assert options.arguments(wanted) == [
        *("--inventory", "a.yml", "--inventory", "b", "--limit", "gpu-1", "--tags", "driver"),
        *("--skip-tags", "verify", "--extra-vars", "a=b"),
        *("--extra-vars", '{"metal_gpu_serial": [1, 10, "25%"]}'),
        *("--check", "--diff", "--ask-become-pass", "--forks", "9"),
    ]
    assert options.arguments(options.Options()) == []


def test_which_playbooks_talk_to_a_cluster():
    texts = {name: files.path(ROOT, name).read_text(encoding="utf-8") for name in PLAYBOOKS}
    found = [name for name, text in texts.items() if files.has_cluster(text)]
    assert found == ["leak_test", "site", "teardown", "verify"]


def test_a_kubeconfig_has_an_absolute_path():
    given = options.Options(kubeconfig="~/admin.conf:b", context="lab")
    assert options.arguments(given) == [
        "--extra-vars",
        json.dumps(
            {
                "metal_gpu_kubeconfig": f"{Path.home()}/admin.conf:{Path.cwd()}/b",
                "metal_gpu_context": "lab",
            }
        ),
    ]


def test_a_report_has_an_absolute_path():
    (_flag, value) = options.arguments(options.Options(report="a.json"))
    assert value == f'{{"verify_report": "{os.path.abspath("a.json")}"}}'


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--tags", "driver,verify"], ""),
        (["--tags=all", "--skip-tags", "never,always", "-ttagged", "-t", "untagged"], ""),
        (["--tags", "driver, drivr"], "drivr"),
        (["--skip-tags=nfs"], "nfs"),
        (["-t", "nfs"], "nfs"),
        (["-tnfs"], "nfs"),
        (["-bDt", "nfs"], "nfs"),
        (["--sk", "nfs"], "nfs"),
        (["--timeout", "30", "--limit", "t"], ""),
    ],
)
def test_a_tag_that_the_playbook_does_not_have_is_refused(arguments, wrong):
    text = files.path(ROOT, "site").read_text(encoding="utf-8")
    with pytest.raises(tags.OptionInvalid) if wrong else nullcontext() as refused:
        tags.check(arguments, text, "metal.gpu.site")
    if refused:
        assert str(refused.value).startswith(f"{wrong} is no tag of metal.gpu.site")


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_the_tags_of_a_playbook_are_those_it_names(name):
    text = files.path(ROOT, name).read_text(encoding="utf-8")
    assert tags.known(text) == plays(name)[0]["vars"]["metal_gpu_tags"]


@pytest.mark.parametrize("serial", ["0", "-1", "half", "1,,2", "%", "1.5"])
def test_a_wrong_size_of_a_batch_is_refused(serial):
    with pytest.raises(options.OptionInvalid, match="such as --serial 1 or --serial 1,10,25%"):
        options.parse_serial(serial)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["-K"], ["--ask-become-pass"]),
        (["--ask-become-pass", "-K", "-k"], ["--ask-become-pass", "--ask-pass"]),
        (["--ask-vault-password"], ["--ask-vault-pass"]),
        (["--limit", "K"], []),
        (["--ask-become"], ["--ask-become-pass"]),
        (["-bkK"], ["--ask-pass", "--ask-become-pass"]),
        (["-e", "k=1", "-vvv"], []),
        (["-kuadmin"], ["--ask-pass"]),
        (["-uKJ", "--check"], []),
        (["--vault-id", "site@file", "-e", "to=me@prompt"], []),
    ],
)
def test_passwords_are_asked_for_once(tmp_path, given, expected):
    assert sorted(options.prompts(given, tmp_path, {})) == sorted(expected)


@pytest.mark.parametrize(
    ("environment", "config", "expected"),
    [
        ({"ANSIBLE_BECOME_ASK_PASS": "1"}, "", ["--ask-become-pass"]),
        ({"ANSIBLE_ASK_PASS": "false"}, "", []),
        ({}, "[privilege_escalation]\nbecome_ask_pass = True\n", ["--ask-become-pass"]),
        ({}, "[defaults]\nask_vault_pass=yes\n", ["--ask-vault-pass"]),
        ({}, "[defaults]\r\nASK_PASS: on ; as everywhere\r\n", ["--ask-pass"]),
        ({}, "[other]\nask_pass = true\n", []),
        ({}, "no section\n", []),
        ({"ANSIBLE_VAULT_IDENTITY_LIST": "a@file"}, "[defaults]\nvault_identity_list=b@f\n", []),
    ],
)
def test_passwords_that_the_settings_of_ansible_ask_for(tmp_path, environment, config, expected):
    (tmp_path / "ansible.cfg").write_text(config)
    assert options.prompts([], tmp_path, environment) == expected


def test_an_inventory_that_does_not_exist_is_named(tmp_path):
    options.check_inventory([str(tmp_path), "10.0.0.1,"])
    with pytest.raises(options.OptionInvalid, match=r"/nowhere\.yml: no such inventory"):
        options.check_inventory(["/nowhere.yml"])


def test_an_inventory_that_cannot_be_parsed_is_named_with_the_line(tmp_path):
    """One of two: Ansible would run on the hosts of the other one."""
    good, encrypted, broken = (tmp_path / name for name in ("a.yml", "b.yml", "c.yml"))
    good.write_text("all:\n  hosts:\n    gpu-1: {password: !vault x}\n")
    encrypted.write_text("$ANSIBLE_VAULT;1.1;AES256\n33\n")
    options.check_inventory([str(good), str(encrypted)])
    broken.write_text("all:\n  hosts:\n    a:\n   b: c\n")
    with pytest.raises(options.OptionInvalid, match=r"c\.yml, line 4: "):
        options.check_inventory([str(good), str(broken)])


@pytest.mark.parametrize(
    ("given", "environment", "config"),
    [
        (["--vault-id", "site@prompt"], {}, ""),
        (["--vault-i=prompt"], {}, ""),
        (["--vault-id", "@prompt_ask_vault_pass"], {}, ""),
        ([], {"ANSIBLE_VAULT_IDENTITY_LIST": "a@prompt, b@file"}, ""),
        ([], {}, "[defaults]\nvault_identity_list = a@file, b@prompt\n"),
    ],
)
def test_a_prompt_that_nobody_could_answer_is_refused(tmp_path, given, environment, config):
    (tmp_path / "ansible.cfg").write_text(config)
    with pytest.raises(options.OptionInvalid, match=r"prompt.* asks for the password of a vault"):
        options.prompts(given, tmp_path, environment)


@pytest.mark.parametrize("given", [["--become-password-file", "-"], ["--conn-pass-file=-"]])
def test_standard_input_is_no_file_with_a_password(tmp_path, given):
    with pytest.raises(options.OptionInvalid, match="is standard input"):
        options.prompts(given, tmp_path, {})


def test_what_is_no_option_is_not_handed_on_as_a_playbook():
    options.check_more(["--forks", "9"])
    with pytest.raises(options.OptionInvalid, match=r"staging\.yml is no option"):
        options.check_more(["staging.yml", "-v"])


@pytest.mark.parametrize(
    ("more", "is_named"),
    [
        (["-i", "a.yml"], True),
        (["-bia.yml"], True),
        (["--inventory=a.yml"], True),
        (["-v", "--forks", "9"], False),
        (["--limit", "-i"], True),  # ansible-playbook has no value that starts like an option
        ([], False),
    ],
)
def test_an_inventory_among_what_is_handed_on(more, is_named):
    assert options.names_inventory(more) is is_named


@pytest.mark.parametrize("option", options.PROMPTS)
def test_the_prompts_of_ansible_are_recognised(option):
    word, pattern = options.PROMPTS[option]
    printed = {
        "--ask-become-pass": "BECOME password[defaults to SSH password]: ",
        "--ask-pass": "SSH password: ",
        "--ask-vault-pass": "Vault password (default): ",
    }[option]
    assert re.search(pattern, printed)
    assert word in printed


@pytest.mark.parametrize(
    ("files_", "environment", "expected"),
    [
        (["inventory.yml"], {}, ["inventory.yml"]),
        ([], {}, []),
        (["inventory.yml"], {"ANSIBLE_INVENTORY": "x"}, []),
        (["inventory.yml", "ansible.cfg:[defaults]\ninventory = hosts\n"], {}, []),
        (["inventory.yml", "ansible.cfg:[defaults]\nforks = 9\n"], {}, ["inventory.yml"]),
        (["inventory.yml", "my.cfg:[defaults]\ninventory=h"], {"ANSIBLE_CONFIG": "my.cfg"}, []),
        (
            ["inventory.yml", "ansible.cfg:[defaults]\ninventory = ./inventory.yml\n"],
            {},
            ["inventory.yml"],
        ),
        (["inventory.yml"], {"ANSIBLE_INVENTORY": "./inventory.yml"}, ["inventory.yml"]),
        (["inventory.yml"], {"ANSIBLE_INVENTORY": "inventory.yml,more"}, []),
    ],
)
def test_the_inventory_of_the_folder_counts_if_nothing_else_is_set(
    files_, environment, expected, tmp_path
):
    for file in files_:
        name, _colon, content = file.partition(":")
        (tmp_path / name).write_text(content)
    if "ANSIBLE_CONFIG" in environment:
        environment = {"ANSIBLE_CONFIG": str(tmp_path / environment["ANSIBLE_CONFIG"])}
    assert options.default_inventory(tmp_path, environment) == expected


@pytest.mark.parametrize("start", ["[gpu_nodes]\n", "# mine\n\n[all:vars] ; x\n"])
def test_an_inventory_of_another_format_is_ansibles_to_judge(start, tmp_path):
    """ansible-inventory reads it, whatever its name ends with."""
    (tmp_path / "inventory.yml").write_text(f"{start}gpu-1 ansible_host=10.0.0.1\n")
    options.check_inventory([str(tmp_path / "inventory.yml")])


@pytest.mark.parametrize("place", ["none/x.json", "."])
def test_a_report_that_cannot_be_written_is_refused_at_the_start(place, tmp_path):
    with pytest.raises(options.OptionInvalid, match="--report"):
        options.arguments(options.Options(report=str(tmp_path / place)))


@pytest.mark.parametrize("inventory", ["", "inventory = hosts"])
def test_a_run_without_any_inventory_says_how_to_get_one(inventory, tmp_path, monkeypatch):
    monkeypatch.setattr(options, "_OF_ANSIBLE", tmp_path / "etc")
    (tmp_path / "ansible.cfg").write_text(f"[defaults]\n{inventory}\n")
    with (
        nullcontext()
        if inventory
        else pytest.raises(options.OptionInvalid, match=r"scan HOST --write inventory.yml")
    ):
        options.check_some_inventory(tmp_path, {})
    (tmp_path / "etc").touch()
    options.check_some_inventory(tmp_path, {})


@pytest.mark.parametrize(
    ("path", "mode", "said"),
    [
        ("", 0o755, ""),
        ("", 0o777, "every user may write"),
        ("", 0o1777, "every user may write"),
        ("", 0o775, "the group games may write"),
        ("inventory.yml", 0o644, ""),
        ("inventory.yml", 0o646, "every user may write"),
        ("inventory.yml", 0o664, "the group games may write"),
        ("host_vars/gpu-1.yml", 0o666, "every user may write"),
        ("group_vars", 0o777, "every user may write"),
        ("group_vars/gpu_nodes/x.yml", 0o666, "every user may write"),
        ("ansible.cfg", 0o666, "every user may write"),
        ("link", 0o755, "every user may write"),
    ],
)
def test_files_that_another_user_can_change_are_not_used_unasked(
    path, mode, said, tmp_path, monkeypatch
):
    """An inventory and ansible.cfg can start programs on this machine."""
    shared, folder = tmp_path / "shared", tmp_path / "folder"
    for name in ("host_vars/gpu-1.yml", "group_vars/gpu_nodes/x.yml", "ansible.cfg", "../shared/y"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    own = folder / "inventory.yml"
    if path == "link":
        own.symlink_to(shared / "y")
        shared.chmod(0o777)
    else:
        own.touch()
        (folder / path).chmod(mode)
    monkeypatch.setattr(trust, "_is_private", lambda _gid, _uid: False)
    monkeypatch.setattr(trust, "_group", lambda _gid: "games")
    found = trust.distrust_inventory(own) or trust.distrust(folder / "ansible.cfg")
    assert found.startswith(said)
    assert bool(found) == bool(said)
    if path == "ansible.cfg":
        assert "ANSIBLE_CONFIG=ansible.cfg" in options.untrusted_config(folder, {})
        assert options.untrusted_config(folder, {"ANSIBLE_CONFIG": str(folder)}) == ""
    elif said:
        with pytest.raises(options.OptionInvalid, match=r"add `--inventory inventory\.yml`"):
            options.default_inventory(folder, {})


def test_files_of_another_user_are_not_used_unasked(tmp_path, monkeypatch):
    (tmp_path / "inventory.yml").touch()
    tmp_path.chmod(0o775)  # the group of the user alone, as with a umask of 002
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/.#all.yml").symlink_to("me@here.1:2")  # an editor's lock
    monkeypatch.setattr(trust, "_is_private", lambda _gid, _uid: True)
    assert trust.distrust_inventory(tmp_path / "inventory.yml") == ""
    monkeypatch.setattr(trust, "_owners", lambda: (4711,))
    assert "belongs to" in trust.distrust_inventory(tmp_path / "inventory.yml")
    with pytest.raises(options.OptionInvalid, match="belongs to"):
        options.default_inventory(tmp_path, {})


@pytest.mark.parametrize(
    ("name", "members", "is_private"),
    [("me", [], True), ("me", ["me"], True), ("me", ["me", "you"], False), ("ops", [], False)],
)
def test_the_group_of_a_user_alone(name, members, is_private, monkeypatch):
    group = grp.struct_group((name, "x", 7, members))
    monkeypatch.setattr(trust.grp, "getgrgid", lambda _gid: group)
    monkeypatch.setattr(trust.pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_name="me"))
    assert trust._is_private(7, 1) is is_private


@pytest.mark.parametrize(("mode", "expected"), [(0o755, ["--ask-become-pass"]), (0o777, [])])
def test_ansible_asks_for_no_password_by_a_configuration_that_it_ignores(mode, expected, tmp_path):
    config = tmp_path / "ansible.cfg"
    config.write_text("[privilege_escalation]\nbecome_ask_pass = true\n")
    tmp_path.chmod(mode)
    assert options.prompts([], tmp_path, {}) == expected
    assert options.ignored_config(tmp_path, {}) == (None if expected else config)
    for named in (config, tmp_path):
        environment = {"ANSIBLE_CONFIG": str(named)}
        assert options.prompts([], tmp_path, environment) == ["--ask-become-pass"]
        assert options.ignored_config(tmp_path, environment) is None
    environment = {"ANSIBLE_CONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
    assert options.prompts([], tmp_path, environment) == expected


@pytest.mark.parametrize("mode", [0o755, 0o775, 0o777, 0o1777])
@pytest.mark.parametrize("create", [Path.touch, Path.mkdir])
@pytest.mark.parametrize(
    "named",
    [
        None,
        "",
        "ansible.cfg",
        "none.cfg",
        "none/../ansible.cfg",
        ".",
        "/dev/null",
        "$HOME/.ansible.cfg",
        "~",
    ],
)
def test_ansible_takes_and_ignores_the_same_configuration(
    mode, create, named, tmp_path, monkeypatch
):
    create(tmp_path / "ansible.cfg")
    Path.home().joinpath(".ansible.cfg").touch()
    tmp_path.chmod(mode)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANSIBLE_CONFIG", raising=False)
    if named is not None:
        monkeypatch.setenv("ANSIBLE_CONFIG", named)
    warnings = set()
    taken = find_ini_config_file(warnings)
    assert str(options._config(tmp_path, os.environ)[0]) == taken
    assert bool(options.ignored_config(tmp_path, os.environ)) == bool(warnings)


def test_a_link_is_another_inventory_than_its_file(tmp_path):
    """Ansible looks for group_vars beside the link."""
    (tmp_path / "hosts.yml").touch()
    (tmp_path / "inventory.yml").symlink_to("hosts.yml")
    environment = {"ANSIBLE_INVENTORY": "hosts.yml"}
    assert options.default_inventory(tmp_path, environment) == []


def test_configuration_of_a_user_who_does_not_exist(tmp_path):
    (tmp_path / "inventory.yml").touch()
    environment = {"ANSIBLE_CONFIG": "~nobody-of-this-name/ansible.cfg", "HOME": str(tmp_path)}
    assert options.default_inventory(tmp_path, environment) == ["inventory.yml"]


# logs


def test_a_log_is_private_and_old_ones_go(tmp_path):
    place = log_files.folder({"XDG_STATE_HOME": str(tmp_path)})
    assert place == tmp_path / "metal-gpu" / "logs"
    place.mkdir(parents=True)
    for number in range(log_files.KEPT + 5):
        (place / f"20200101T0000{number:02}Z-site-1.log").touch()
    log = log_files.create(place, "site", print)
    log.close()
    path = log.path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    names = sorted(one.name for one in place.iterdir())
    assert len(names) == log_files.KEPT
    assert names[-1] == path.name
    assert names[0] == "20200101T000006Z-site-1.log"


def test_a_full_disk_is_told_once_and_stops_nothing():
    told = []
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", buffering=1)
    log = log_files.Log("run.log", full, told.append)
    log.write("one\n")
    log.write("two\n")
    log.close()
    assert told == ["the log run.log is not complete: [Errno 28] No space left on device"]


def test_a_relative_state_folder_is_ignored(tmp_path):
    found = log_files.folder({"XDG_STATE_HOME": "state", "HOME": str(tmp_path)})
    assert found == tmp_path / ".local" / "state" / "metal-gpu" / "logs"


# events


class Run:
    """Makes the events of a run, one second apart."""

    def __init__(self):
        own = ["Prepare", "Prove"]
        planned = [
            stages.Stage("Prepare", "Driver"),
            stages.Stage("Prepare", "Container engine"),
            stages.Stage("Prove", "Proof of the GPUs"),
        ]
        self.progress = Progress(planned, own)
        self.now = 0.0

    def feed(self, event, **data):
        self.now += 1
        self.progress.feed({"event": event, "event_data": data}, self.now)

    def play(self, name):
        self.feed("playbook_on_play_start", name=name)

    def task(self, role, name, *hosts):
        self.feed("playbook_on_task_start", role=role, name=f"{role} : {name}")
        for host in hosts:
            self.feed("runner_on_start", host=host)

    def end(self, how, host, **data):
        self.feed(f"runner_on_{how}", host=host, **data)

    def stage(self, title):
        (found,) = [one for one in self.progress.stages if one.title == title]
        return found

    def lines(self, title):
        return [line.plain.rstrip() for line in display.lines_of(self.stage(title), self.now)]


@pytest.fixture
def a_run():
    made = Run()
    made.play("Check the inventory")
    made.task("", "Refuse an inventory", "localhost")
    made.end("ok", "localhost")
    made.play("Prepare")
    return made


def test_a_play_that_is_not_shown_starts_no_stage(a_run):
    assert [one.state for one in a_run.progress.stages] == [WAITING] * 3
    assert a_run.lines("Driver") == ["· Driver"]


def test_a_stage_shows_who_is_waited_for(a_run):
    hosts = [f"gpu-{number}" for number in range(1, 9)]
    a_run.task("nvidia_driver", "Install the packages", *hosts)
    for host in hosts[:3]:
        a_run.end("ok", host, res={"changed": True})
    stage = a_run.stage("Driver")
    assert (stage.state, stage.done, stage.changed) == (RUNNING, 3, 3)
    assert a_run.lines("Driver") == [
        "▶ Driver             ━━━━━━────────── 3/8 nodes, 3 changed, 11 s",
        "    waiting for gpu-4, gpu-5, gpu-6 and 2 more: Install the packages (11 s)",
    ]


def test_a_stage_ends_when_the_next_one_starts(a_run):
    a_run.task("nvidia_driver", "Install", "gpu-1", "gpu-2")
    a_run.end("ok", "gpu-1", res={})
    a_run.end("failed", "gpu-2", res={})
    a_run.task("docker_ce", "Install", "gpu-1")
    assert a_run.stage("Driver").state == DONE
    assert a_run.stage("Container engine").state == RUNNING
    assert a_run.lines("Driver") == [
        "✘ Driver             ━━━━━━━━━━━━━━━━ 1/2 nodes, 1 failed, 5 s"
    ]
    assert (
        display.bar(a_run.stage("Driver")).spans[-1].style == "red"
        or display.bar(a_run.stage("Driver")).plain == "━" * 16
    )


def test_ignored_and_unreachable(a_run):
    a_run.task("nvidia_driver", "Install", "gpu-1", "gpu-2")
    a_run.end("failed", "gpu-1", ignore_errors=True)
    a_run.end("unreachable", "gpu-2")
    assert list(a_run.stage("Driver").failed) == ["gpu-2"]


def test_a_stage_in_which_all_is_skipped_had_nothing_to_do(a_run):
    a_run.task("nvidia_driver", "Install", "gpu-1")
    a_run.end("skipped", "gpu-1")
    a_run.play("Prove")
    a_run.task("verify", "Judge", "gpu-1")
    assert a_run.stage("Driver").state == UNUSED
    assert a_run.lines("Driver") == ["- Driver             nothing to do"]


def test_a_second_batch_goes_on_with_the_stage(a_run):
    for host in ("gpu-1", "gpu-2"):
        a_run.play("Prepare")
        a_run.task("nvidia_driver", "Install", host)
        a_run.end("ok", host)
        a_run.task("docker_ce", "Install", host)
        a_run.end("ok", host)
    assert list(a_run.stage("Driver").nodes) == ["gpu-1", "gpu-2"]
    assert a_run.stage("Driver").state == DONE
    assert a_run.stage("Driver").seconds == 6.0


def test_a_task_without_a_role_belongs_to_the_stage_at_hand(a_run):
    a_run.task("nvidia_driver", "Install", "gpu-1")
    a_run.task("", "Group the nodes", "gpu-1")
    a_run.task("unknown", "Include", "gpu-1")
    assert a_run.progress.current is a_run.stage("Driver")


def document_of(progress, playbook="site", log=None):
    """Return the document of a run that failed, as --json prints it."""
    made = result.as_document(progress, playbook, 2, log, False)
    return command.parsed("playbook", json.dumps(made))


def test_the_end_has_outcome_and_verdicts(a_run):
    a_run.play("Prove")
    a_run.task("verify", "Judge", "gpu-1")
    finding = {"code": "GPU_FAULTY", "severity": "failure", "message": "m", "remedy": "r"}
    verdict = {
        "ok": False,
        "findings": [{**finding, "reference": "x"}],
        "machine": {"gpu": "Tesla P100"},
        "layers": {"smoke": "3/4"},
    }
    a_run.end(
        "ok",
        "gpu-1",
        task_action="metal.gpu.fleet",
        res={"verdicts": {"gpu-1": verdict}, "table": ["node verdict"], "report": "/r.json"},
    )
    a_run.feed(
        "playbook_on_stats",
        failures={"gpu-1": 1},
        dark={"gpu-2": 1},
        processed={"gpu-1": 1, "gpu-2": 1, "gpu-3": 1, "localhost": 1},
        artifact_data={"metal_gpu_outcome": "unhealthy"},
    )
    document = document_of(a_run.progress, log="/log")
    assert document["outcome"] == "unhealthy"
    assert [(one["host"], one["state"], one["verdict"]) for one in document["hosts"]] == [
        ("gpu-1", "failed", "GPU_FAULTY"),
        ("gpu-2", "unreachable", None),
        ("gpu-3", "ok", None),
    ]
    assert document["hosts"][0]["findings"] == [{**finding, "reference": "x"}]
    assert document["report"] == "/r.json"
    assert result.narrow(a_run.progress) == [("gpu-1", "Tesla P100", "3/4", "GPU_FAULTY")]
    assert [one.state for one in a_run.progress.stages] == [UNUSED, UNUSED, DONE]
    assert a_run.lines("Proof of the GPUs")[0].startswith("✘ Proof of the GPUs")


def test_a_node_that_a_rehearsal_would_change_has_not_failed(a_run):
    a_run.play("Prove")
    a_run.task("verify", "Judge", "gpu-1")
    drift = {"code": "DRIFTED", "severity": "failure", "message": "m", "remedy": "r"}
    verdict = {"ok": False, "planned": True, "findings": [{**drift, "reference": "x"}]}
    a_run.end("ok", "gpu-1", task_action="metal.gpu.fleet", res={"verdicts": {"gpu-1": verdict}})
    a_run.feed(
        "playbook_on_stats",
        processed={"gpu-1": 1},
        artifact_data={"metal_gpu_outcome": "planned"},
    )
    (host,) = document_of(a_run.progress)["hosts"]
    assert (host["state"], host["verdict"]) == ("ok", "planned")
    assert a_run.lines("Proof of the GPUs")[0].startswith("✔ Proof of the GPUs")


def test_a_refused_run_has_the_findings_of_its_hosts(a_run):
    a_run.task("nvidia_driver", "Admit", "gpu-1")
    found = {"code": "SUDO_REFUSED", "severity": "refusal"}
    a_run.end("ok", "gpu-1", task_action="metal.gpu.fleet", res={"stopped": {"gpu-1": [found]}})
    (host,) = document_of(a_run.progress)["hosts"]
    assert (host["state"], host["findings"][0]["code"]) == ("failed", "SUDO_REFUSED")
    assert host["verdict"] == "SUDO_REFUSED"
    a_run.feed(  # the task that refuses runs as the first host
        "playbook_on_stats",
        failures={"gpu-0": 1},
        processed={"gpu-0": 1, "gpu-1": 1},
        artifact_data={"metal_gpu_outcome": "refused"},
    )
    states = {one["host"]: one["state"] for one in document_of(a_run.progress)["hosts"]}
    assert states == {"gpu-0": "unknown", "gpu-1": "failed"}


@pytest.mark.parametrize(
    ("verdict", "word"),
    [
        ({"ok": True}, "ok"),
        ({"ok": True, "busy": True}, "busy"),
        ({"ok": False}, "-"),
        ({"ok": False, "planned": True}, "planned"),
    ],
)
def test_words_of_verdicts(verdict, word):
    assert result.word(verdict) == word


def test_findings_of_the_inventory_and_the_cluster_are_no_hosts(a_run):
    unknown = {"code": "VARIABLE_UNKNOWN", "severity": "notice", "host": "inventory"}
    down = {"code": "CLUSTER_UNUSABLE", "severity": "refusal", "host": "cluster"}
    a_run.task("nvidia_driver", "Check", "gpu-1")
    a_run.end("ok", "gpu-1", task_action="metal.gpu.preconditions", res={"unknown": [unknown]})
    stopped = {"stopped": {"cluster": [down]}, "findings": [down], "notices": [unknown]}
    a_run.end("ok", "gpu-1", task_action="metal.gpu.fleet", res=stopped)
    a_run.feed("playbook_on_stats", failures={"gpu-1": 1}, processed={"gpu-1": 1, "gpu-2": 1})
    document = document_of(a_run.progress)
    assert [one["code"] for one in document["findings"]] == ["VARIABLE_UNKNOWN", "CLUSTER_UNUSABLE"]
    states = [(one["host"], one["state"]) for one in document["hosts"]]
    assert states == [("gpu-1", "failed"), ("gpu-2", "unknown")]


def test_a_host_may_be_called_localhost_or_cluster(a_run):
    refusal = {"code": "NO_GPU", "severity": "refusal", "host": "localhost", "message": "x"}
    a_run.task("nvidia_driver", "Plan", "localhost")
    a_run.end("ok", "localhost", task_action="metal.gpu.plan", res={"refusals": [refusal]})
    hosts = {"localhost": 1, "cluster": 1}
    a_run.feed("playbook_on_stats", failures={"localhost": 1}, processed=hosts)
    document = result.as_document(a_run.progress, "site", 2, None, False)
    found = [(one["host"], one["state"], len(one["findings"])) for one in document["hosts"]]
    assert found == [("localhost", "failed", 1), ("cluster", "unknown", 0)]
    assert document["findings"] == []


@pytest.mark.parametrize(("has_verdicts", "state"), [(True, "unknown"), (False, "ok")])
def test_a_proof_that_failed_proves_nothing(has_verdicts, state):
    planned = [stages.Stage("Prepare", "Driver"), stages.Stage("Prove", "Proof")]
    made = Progress(planned, ["Prepare", "Prove"], has_verdicts=has_verdicts)
    for play, role, hosts in (("Prepare", "nvidia_driver", (1, 2)), ("Prove", "verify", (1,))):
        made.feed({"event": "playbook_on_play_start", "event_data": {"name": play}}, 1)
        data = {"role": role, "name": "x"}
        made.feed({"event": "playbook_on_task_start", "event_data": data}, 1)
        for host in hosts:
            how = "failed" if play == "Prove" else "ok"
            event = {"event": f"runner_on_{how}", "event_data": {"host": f"gpu-{host}"}}
            made.feed(event, 1)
    data = {"failures": {"gpu-1": 1}, "processed": {"gpu-1": 1, "gpu-2": 1}}
    made.feed({"event": "playbook_on_stats", "event_data": data}, 2)
    document = result.as_document(made, "site", 2, None, False)
    assert [one["state"] for one in document["hosts"]] == ["failed", state]


def test_hosts_of_a_run_that_was_stopped(a_run):
    refusal = {"code": "NO_GPU", "severity": "refusal", "host": "gpu-1", "message": "x"}
    a_run.task("nvidia_driver", "Plan", "gpu-1", "gpu-2")
    for _time in range(2):
        a_run.end("ok", "gpu-1", task_action="metal.gpu.plan", res={"refusals": [refusal] * 2})
    a_run.progress.end(9)
    document = result.as_document(a_run.progress, "site", 130, None, True)
    found = [(one["host"], one["state"], len(one["findings"])) for one in document["hosts"]]
    assert found == [("gpu-1", "failed", 1), ("gpu-2", "unknown", 0)]


def test_notices_beside_a_verdict(a_run):
    notice = {"code": "GUARD_WARNS", "severity": "notice", "host": "gpu-1", "message": "new"}
    mended = {"code": "GPU_FAULTY", "severity": "failure", "host": "gpu-1", "message": "former"}
    res = {"verdicts": {"gpu-1": {"ok": True}}, "notices": [notice], "findings": [mended]}
    a_run.task("verify", "Judge", "gpu-1")
    a_run.end("ok", "gpu-1", task_action="metal.gpu.fleet", res=res)
    a_run.feed("playbook_on_stats", processed={"gpu-1": 1})
    (host,) = result.as_document(a_run.progress, "site", 0, None, False)["hosts"]
    assert (host["state"], [one["code"] for one in host["findings"]]) == ("ok", ["GUARD_WARNS"])


def test_a_play_that_only_fails_is_no_stage():
    fail = {"name": "x", "ansible.builtin.fail": {"msg": "x"}}
    plays = [
        {"name": name, "hosts": "all", "tasks": [task]}
        for name, task in (
            ("Do", {"ansible.builtin.command": "true"}),
            ("Fail", fail),
        )
    ]
    assert [one.title for one in stages.of_playbook(plays)] == ["Do"]


def test_a_refused_run_does_not_reach_the_later_stages(a_run):
    a_run.task("nvidia_driver", "Check", "gpu-1")
    a_run.end("failed", "gpu-1")
    a_run.feed("playbook_on_stats", failures={"gpu-1": 1}, processed={"gpu-1": 1})
    assert a_run.lines("Proof of the GPUs") == ["· Proof of the GPUs  not reached"]


def test_the_leak_test_has_findings_and_no_verdicts():
    made = Progress([stages.Stage("Try", "Leak")], ["Try"])
    leaked = {"code": "GPU_LEAKED", "severity": "failure", "host": "gpu-2"}
    refused = {"code": "NODE_UNREACHABLE", "severity": "refusal", "host": "gpu-1"}
    for action, res in (
        ("metal.gpu.plan", {"refusals": [refused]}),
        ("metal.gpu.fleet", {"refusals": {"gpu-1": [refused]}}),
        ("metal.gpu.gpu_leak_test", {"nodes": {"gpu-2": {}, "gpu-3": {}}, "findings": [leaked]}),
    ):
        data = {"host": "gpu-1", "task_action": action, "res": res}
        made.feed({"event": "runner_on_ok", "event_data": data}, 1)
    hosts = {f"gpu-{number}": 1 for number in (1, 2, 3, 4)}
    data = {"failures": {"gpu-1": 1}, "processed": hosts}
    made.feed({"event": "playbook_on_stats", "event_data": data}, 2)
    document = document_of(made, "leak_test")
    found = {one["host"]: (one["state"], len(one["findings"])) for one in document["hosts"]}
    assert found == {
        "gpu-1": ("failed", 1),
        "gpu-2": ("failed", 1),
        "gpu-3": ("ok", 0),
        "gpu-4": ("unknown", 0),
    }


def test_a_run_that_was_stopped_says_where(a_run):
    a_run.task("nvidia_driver", "Install", "gpu-1")
    a_run.progress.end(9)
    assert a_run.stage("Driver").state == STOPPED
    assert a_run.stage("Container engine").state == WAITING
    assert a_run.lines("Driver")[1] == "    stopped at: Install"


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"event": "verbose"},
        {"event": "runner_on_ok"},
        {"event": "runner_on_ok", "event_data": 3},
    ],
)
def test_odd_events_do_no_harm(a_run, event):
    a_run.progress.feed(event, 1)
    a_run.task("nvidia_driver", "Install", "gpu-1")
    a_run.progress.feed(event, 2)


# signals


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
@pytest.mark.parametrize("handle", [run._handled, lambda _stop: leaving()], ids=["run", "pods"])
def test_a_signal_that_is_ignored_stays_ignored(number, handle):
    """As SIGHUP is with nohup: the run goes on when its terminal is closed."""
    before = {one: signal.getsignal(one) for one in (signal.SIGHUP, signal.SIGTERM)}
    stop = Stop(print)
    signal.signal(number, signal.SIG_IGN)
    try:
        with handle(stop):
            os.kill(os.getpid(), number)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
    assert stop.signal == 0


@contextmanager
def leaving():
    interrupts.raise_on_signals()
    yield


# display


def test_a_terminal_without_unicode_gets_ascii(a_run):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=stream, width=80, force_terminal=True)
    a_run.task("nvidia_driver", "Install", "gpu-1")
    shown = display.Display(a_run.progress, console, lambda: 7.0)
    text = "\n".join(line.plain for line in shown.lines())
    assert text.isascii()
    assert "> Driver             ---------------- 0/1 nodes" in text


def test_lines_fit_into_80_columns(a_run):
    hosts = [f"node-with-a-long-name-{number}.example.org" for number in range(2000)]
    a_run.task("nvidia_driver", "Install the packages of the driver " * 5, *hosts)
    for host in hosts[:700]:
        a_run.end("failed", host)
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    console.print(display.Display(a_run.progress, console, lambda: 70_000.0))
    assert max(map(len, stream.getvalue().splitlines())) <= 80
    assert "700 failed" in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.9, "59 s"), (60, "1 min 0 s"), (3601, "60 min 1 s")]
)
def test_durations(seconds, text):
    assert display.duration(seconds) == text


def test_colours_of_ansible_are_removed():
    assert run.plain("\x1b[0;31mfatal\x1b[0m\r\n") == "fatal\n"
