# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.probe import own_files
from ansible_collections.metal.gpu.plugins.module_utils.probe.components import nfs
from ansible_collections.metal.gpu.plugins.module_utils.probe.registry import PROBES
from ansible_collections.metal.gpu.plugins.module_utils.read import registries
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

WRITERS = {path: role for probe in PROBES.values() for path, role in probe.own_files.items()}
ROLES = Path(__file__).parents[5] / "roles"


def block(role):
    return "".join(f"# {mark} managed by Ansible, role metal.gpu.{role}\n" for mark in MARKS)


MARKS = ("BEGIN", "END")
OURS, DRIVER = own_files.NOUVEAU_BLACKLIST, block("nvidia_driver")


@pytest.mark.parametrize(
    ("path", "text", "is_ours"),
    [
        pytest.param(OURS, DRIVER, True, id="ours"),
        pytest.param(OURS, f"blacklist snd\n{DRIVER}options a b=1\n", True, id="with other lines"),
        pytest.param(OURS, "blacklist nouveau\n", False, id="our path, without our mark"),
        pytest.param(OURS, block("kubelet_device_plugins"), False, id="mark of another role"),
        pytest.param(OURS, f"# was: {DRIVER}", False, id="mark in a comment"),
        pytest.param("/etc/modprobe.d/metal-gpu-cluster.conf", DRIVER, False, id="similar name"),
        pytest.param(
            "/etc/modules-load.d/site-metal-gpu-infiniband.conf", "ib_umad\n", False, id="admin's"
        ),
        pytest.param(
            "/etc/systemd/system/kubelet.service.d/20-site-metal-gpu.conf",
            "[Service]\n",
            False,
            id="admin's drop-in",
        ),
    ],
)
def test_path_and_mark_make_a_file_ours(tmp_path, path, text, is_ours):
    plant(tmp_path, {path: text})
    assert own_files.read_own_files(tmp_path, WRITERS) == ([path] if is_ours else [])


def test_an_unreadable_file_does_not_count(tmp_path):
    path = tmp_path / OURS[1:]
    path.parent.mkdir(parents=True)
    path.symlink_to(path.name)
    assert own_files.read_own_files(tmp_path, WRITERS) == []


@pytest.mark.parametrize(("path", "role"), WRITERS.items(), ids=WRITERS)
def test_the_role_writes_the_mark_that_is_looked_for(tmp_path, path, role):
    text = (ROLES / role / "vars" / "main.yml").read_text()
    variables = yaml.safe_load(text.replace(" !unsafe ", " "))
    marker = variables[f"__{role}_marker"].format(mark="BEGIN")
    plant(tmp_path, {path: f"{marker}\n"})
    assert own_files.read_own_files(tmp_path, WRITERS) == [path]


def test_every_block_that_a_role_writes_is_known():
    blocks = [
        (path.parts[-3], task["ansible.builtin.blockinfile"])
        for path in ROLES.glob("*/tasks/*.yml")
        for task in yaml.safe_load(path.read_text())
        if "ansible.builtin.blockinfile" in task
    ]
    written = [role for role, block in blocks if block.get("state") != "absent"]
    # The files of these two have names of the user's things, so their components look for them.
    assert set(written) == {*WRITERS.values(), nfs.ROLE, registries.ROLE}


def test_the_role_registries_writes_the_mark_that_is_looked_for():
    variables = yaml.safe_load((ROLES / registries.ROLE / "vars" / "main.yml").read_text())
    begin, end = (variables["__registries_marker"].format(mark=one) for one in ("BEGIN", "END"))
    text = f"{begin}\n{registries.CREATED}/etc/x\n{end}\n"
    assert own_files.parse_block(text, registries.ROLE) == [f"{registries.CREATED}/etc/x"]


BEGIN, END = block("nvidia_driver").splitlines()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([BEGIN, "one", "  two", END], ["one", "  two"], id="block"),
        pytest.param(["before", BEGIN, "one", END, "after"], ["one"], id="other lines"),
        pytest.param([BEGIN, "one"], [], id="without an end"),
        pytest.param(["one", END], [], id="without a begin"),
        pytest.param([END, "one", BEGIN], [], id="in the wrong order"),
        pytest.param([BEGIN, "one", END, BEGIN, "two", END], ["two"], id="two blocks"),
    ],
)
def test_block(lines, expected):
    assert own_files.parse_block("\n".join(lines), "nvidia_driver") == expected
