# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu doctor`, run as a user runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.tests.unit.support import command
from ansible_collections.metal.gpu.tests.unit.support.healthy import containerd_node
from ansible_collections.metal.gpu.tests.unit.support.ssh_server import Machine, plant_sudo
from metal_gpu import Host
from metal_gpu.nodes import Node
from metal_gpu.terminal import doctor_report, exit_codes
from metal_gpu.terminal.main import app

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "src" / "metal_gpu" / "schemas" / "doctor.json").read_text())


@pytest.fixture
def inventory(tmp_path):
    """Write an inventory of hosts at ports of this machine."""

    def write(**hosts):
        path = tmp_path / "hosts.yml"
        group = {
            "hosts": {
                name: {"ansible_host": "127.0.0.1", "ansible_become": False, **variables}
                for name, variables in hosts.items()
            },
            "vars": {"ansible_user": "admin"},
        }
        path.write_text(yaml.safe_dump({"gpu_nodes": group, "others": {"hosts": {"far": None}}}))
        return str(path)

    return write


def doctor(*arguments, **options):
    return CliRunner().invoke(app, ["doctor", *arguments], **options)


def document(result):
    found = json.loads(result.stdout)
    jsonschema.validate(found, SCHEMA)
    assert found["exit_code"] == result.exit_code
    return found


def test_each_host_has_its_line_and_the_others_go_on(start, known, key, inventory):
    server, other = start(Machine(keys=[key])), start(Machine(keys=[key]))
    known(server)
    path = inventory(good={"ansible_port": server.port}, new={"ansible_port": other.port})
    result = doctor("--inventory", path)
    assert result.exit_code == exit_codes.NOT_ASKED
    assert "good: " in result.stdout
    assert "kernel " in result.stdout
    assert "new: not examined" in result.stdout
    assert result.stdout.index("good: ") < result.stdout.index("new: ")  # although new is faster
    assert "refusal HOST_KEY_UNKNOWN new: " in result.stdout
    assert "    remedy: compare the fingerprint" in result.stdout
    assert "1 not examined" in result.stderr
    assert f"`metal-gpu site --inventory {path}` changes it" in result.stderr

    found = document(doctor("--inventory", path, "--json"))
    assert [(one["name"], one["observed"]) for one in found["hosts"]] == [
        ("good", True),
        ("new", False),
    ]


@pytest.mark.parametrize(
    ("code", "more", "expected"),
    [
        ("NODE_UNREACHABLE", {"error": "x"}, "check the address, user and key with `ssh`"),
        ("NO_GPU", {}, "if it has a GPU, run `lspci -d 10de:` on it, and check the"),
    ],
)
def test_remedies_without_an_inventory(code, more, expected, capsys):
    found = finding(code, "gpu-1", **more)
    row = doctor_report.row(Node(Host("gpu-1", "gpu-1"), None, found))
    for is_listed in (False, True):
        doctor_report.show(row, is_listed=is_listed)
        printed = capsys.readouterr().out
        assert (f"remedy: {expected}" in printed) is not is_listed
        assert ("the group" in printed) is is_listed


def test_an_invalid_variable_is_one_finding(inventory):
    wrong = {"ansible_connection": "local", "nvidia_driver_reboot_ok": "yes please"}
    result = doctor("--json", "--inventory", inventory(here=wrong))
    codes = [one["code"] for one in document(result)["hosts"][0]["findings"]]
    assert codes.count("VARIABLE_INVALID") == 1
    assert "RUN_STOPPED" not in codes


def test_80_columns(start, known, key, inventory):
    """Sentences wrap between words."""
    server = start(Machine(keys=[key]))
    known(server)
    path = inventory(good={"ansible_port": server.port}, away={"ansible_port": 1})
    words = ("-m", "metal_gpu", "doctor", "--inventory", path)
    lines, code = command.on_terminal(*words)
    assert code == exit_codes.NOT_ASKED
    long = [line for line in lines if len(line) > command.COLUMNS]
    assert all(re.fullmatch(r" *`[^`]*`\S*", line) for line in long)  # a command stays whole
    piped = {word for line in command.run(*words[2:]).stdout.splitlines() for word in line.split()}
    assert piped <= {word for line in lines for word in line.split()}


def test_a_host_with_an_invalid_variable_does_not_end_the_others(start, known, key, inventory):
    server = start(Machine(keys=[key]))
    known(server)
    path = inventory(good={"ansible_port": server.port}, odd={"ansible_port": "many"})
    found = document(doctor("--inventory", path, "--json"))
    assert found["exit_code"] == exit_codes.NOT_ASKED
    good, odd = found["hosts"]
    assert (good["observed"], odd["observed"]) == (True, False)
    assert "ansible_port is 'many'" in odd["findings"][0]["message"]


def test_two_names_of_one_node(start, known, key, inventory):
    server = start(Machine(keys=[key]))
    known(server)
    path = inventory(a={"ansible_port": server.port}, b={"ansible_port": server.port})
    result = doctor("-i", path, "--json")
    assert {one["code"] for one in document(result)["findings"]} == {"NODE_NAME_TWICE"}
    assert result.exit_code == exit_codes.FOUND
    assert "NODE_NAME_TWICE a: " in doctor("-i", path).stdout


def test_accepting_keys(start, key, inventory):
    server = start(Machine(keys=[key]))
    path = inventory(new={"ansible_port": server.port})
    result = doctor("-i", path, "--json", "--accept-new-host-keys")
    assert document(result)["hosts"][0]["observed"]
    assert document(doctor("-i", path, "--json"))["hosts"][0]["observed"]


def test_hosts_of_the_command_line(start, known, key):
    server = start(Machine(keys=[key]))
    known(server)
    place = f"admin@127.0.0.1:{server.port}"
    result = doctor("--json", place, place)
    assert len(document(result)["hosts"]) == 1
    missing = doctor("--json", f"127.0.0.1:{server.port}", "--user", "x", "--identity", "/none")
    assert document(missing)["hosts"][0]["findings"][0]["code"] == "LOGIN_REFUSED"


def test_this_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (["--json"], ["--json", "localhost"]):
        result = doctor(*arguments)
        [host] = document(result)["hosts"]
        assert host["observed"] or os.geteuid() != 0  # without root, sudo may need a password
        assert host["name"] == socket.gethostname()


def test_the_inventory_of_the_folder(inventory, monkeypatch):
    path = Path(inventory(away={"ansible_port": 1}))
    path.rename(path.with_name("inventory.yml"))
    monkeypatch.chdir(path.parent)
    result = doctor()
    assert "away: not examined" in result.stdout
    assert "inventory.yml in this folder names the machines" in result.stderr


def _row(*findings, steps=()):
    step = {"role": "docker_ce", "step": "install", "name": "Install", "reason": "x"}
    found = {"name": "gpu-1", "address": "gpu-1", "observed": True, "machine": None}
    return {**found, "steps": [step] * len(steps), "findings": [*findings]}


def test_the_commands_that_carry_it_out_are_named():
    refusal = finding("NO_GPU", "gpu-1")
    report = finding("GPU_HEALTH_UNKNOWN", "gpu-1", gpus="x", error="x")
    unseen = {**_row(finding("NODE_UNREACHABLE", "gpu-1", error="x")), "observed": False}
    own = doctor_report.next_commands([_row(steps=["one"])], "")
    assert own == (
        "`metal-gpu plan` shows in detail what would change, and `metal-gpu site` changes it."
    )
    other = doctor_report.next_commands([_row(refusal)], " --inventory x --limit gpu-1")
    assert "`metal-gpu site --inventory x --limit gpu-1` changes it." in other
    assert other.endswith(" Variables in a remedy belong in the inventory.")
    without = doctor_report.next_commands([_row(steps=["one"])], None)
    assert without.startswith("`metal-gpu scan HOST --write inventory.yml` writes an inventory. ")
    assert doctor_report.next_commands([_row(report)], "") == (
        "`metal-gpu NAME` runs `ansible-playbook metal.gpu.NAME`."
    )
    assert doctor_report.next_commands([_row(), unseen], "") == ""


def test_passwords_are_asked_for(start, known, tmp_path):
    environment = plant_sudo(tmp_path / "bin", "become")
    server = start(Machine(password="login", environment=environment))
    known(server)
    arguments = ["--json", f"admin@127.0.0.1:{server.port}"]
    program = f"""
import getpass, sys
answers = iter(["login", "become"])
getpass.getpass = lambda prompt: next(answers)
sys.path[:0] = {[str(ROOT / "src"), str(ROOT / ".ansible" / "collections")]!r}
sys.argv = ["metal-gpu", "doctor", "--ask-pass", "--ask-become-pass", *{arguments!r}]
from metal_gpu.terminal.main import main
main()
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert json.loads(result.stdout)["hosts"][0]["observed"], result.stderr
    assert server.machine.logins == ["admin with the password"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a b"], "expected [USER@]ADDRESS"),
        (["--inventory", "/none.yml"], "/none.yml does not exist"),
        (["--port", "0", "a"], "--port"),
    ],
)
def test_arguments_that_cannot_be_used(arguments, words):
    result = doctor(*arguments)
    assert result.exit_code == exit_codes.USAGE
    assert words in result.stderr
    assert result.stdout == ""


def test_names_of_the_inventory(inventory):
    path = inventory(near={"ansible_port": 1})
    assert "far: not examined" in doctor("-i", path, "others", "--timeout", "1").stdout
    unknown = doctor("-i", path, "none", "near")
    assert unknown.exit_code == exit_codes.USAGE
    assert "no host and no group none" in unknown.stderr


def test_quiet_is_silent_on_success_only(inventory, monkeypatch):
    path = inventory(away={"ansible_port": 1})
    result = doctor("-i", path, "--quiet")
    assert "NODE_UNREACHABLE" in result.stdout
    assert result.exit_code == exit_codes.NOT_ASKED
    monkeypatch.setattr("metal_gpu.fleet.Fleet.observe", lambda _fleet: iter(()))
    result = doctor("-i", path, "--quiet")
    assert (result.exit_code, result.stdout) == (exit_codes.OK, "")


def test_ctrl_c_leaves_nothing_behind(start, known, key, tmp_path):
    """The machine never answers: its shell waits."""
    server = start(Machine(keys=[key], shell=("sh", "-c", f"echo in > {tmp_path}/in; sleep 60")))
    os.mkfifo(tmp_path / "in")
    known(server)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / '.ansible' / 'collections'}",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "metal_gpu", "doctor", f"admin@127.0.0.1:{server.port}"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    (tmp_path / "in").read_text()  # it waits
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (exit_codes.INTERRUPTED, b"", b"")


@pytest.mark.parametrize("has_driver", [True, False])
def test_models_have_the_names_that_the_scan_gives_them(has_driver):
    observed = containerd_node().observed()
    if not has_driver:
        observed["nvml"]["devices"] = []
    row = doctor_report.row(Node(Host("gpu-1", "gpu-1"), observed))
    names = {gpu["name"] for gpu in row["machine"]["gpus"]}
    assert names == {"Tesla P100-PCIE-16GB"}


def test_answer_that_nothing_can_judge_is_a_finding_of_its_machine(monkeypatch):
    node = Node(Host("gpu-1", "gpu-1"), None, finding("NODE_UNREACHABLE", "gpu-1", error="x"))
    good = doctor_report.row

    def row(one):
        return good(one) if one is not node else 1 / 0

    monkeypatch.setattr(doctor_report, "row", row)
    failed, printed = doctor_report.judged(node)
    assert failed.observed is None
    assert [one["code"] for one in printed["findings"]] == ["OBSERVATION_FAILED"]
    assert "ZeroDivisionError" in printed["findings"][0]["message"]
