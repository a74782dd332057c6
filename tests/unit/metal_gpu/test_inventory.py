# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventories as Ansible reads them, and what becomes of its answer."""

from __future__ import annotations

import pytest
import yaml

from metal_gpu import InventoryError, connection_variables, inventory
from metal_gpu.templates import Variables

YAML = """
all:
  vars:
    ansible_user: everybody
    level: all
gpu_nodes:
  children:
    rack1:
      hosts:
        gpu-[01:03]:
          gpu_count: 4
      vars:
        level: rack
    rack2:
  hosts:
    single:
      ansible_host: 10.0.0.9
      ansible_port: 2222
    [a:b]-host:
    with-port:2022:
  vars:
    level: group
    secret: !unsafe "{{ kept }}"
rack2:
  hosts:
    gpu-01:
      level: host
"""
NAMES = ["single", "a-host", "b-host", "with-port", "gpu-01", "gpu-02", "gpu-03"]


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "inventory"
    (folder / "group_vars" / "rack1").mkdir(parents=True)
    (folder / "host_vars").mkdir()
    (folder / "group_vars" / "rack1" / "a.yml").write_text("from_file: rack1\nlevel: file\n")
    (folder / "group_vars" / "all.yml").write_text("from_all: 1\nlevel: all file\n")
    (folder / "host_vars" / "gpu-02.yml").write_text("level: of the host\n")
    file = folder / "hosts.yml"
    file.write_text(
        YAML.replace("[a:b]-host", '"[a:b]-host"').replace(
            "    with-port:2022:", '    "with-port:2022":'
        )
    )
    return file


def test_hosts_of_a_group(path):
    assert sorted(one.name for one in inventory.read(path)) == sorted(NAMES)
    hosts = {one.name: one for one in inventory.read(path, "gpu_nodes")}
    assert (hosts["single"].address, hosts["single"].port) == ("10.0.0.9", 2222)
    assert (hosts["with-port"].port, hosts["gpu-02"].user) == (2022, "everybody")
    assert hosts["gpu-01"].variables["level"] == "host"
    assert hosts["gpu-02"].variables["level"] == "of the host"
    assert hosts["gpu-03"].variables["from_file"] == "rack1"
    assert Variables(hosts["gpu-03"].variables)["secret"] == "{{ kept }}"
    assert [one.name for one in inventory.read(path, "rack2")] == ["gpu-01"]
    with pytest.raises(InventoryError, match="no group rack9; its groups: all, gpu_nodes, rack1"):
        inventory.read(path, "rack9")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("all:\n  hosts:\n    a: [\n", ", line 4: [^.]{1,80}$"),
        ("all:\n  hosts:\n    a:\n   b: c\n", ", line 4: [^.]{1,80}$"),
        ("all:\n  hosts: [a, b]\n", ': Invalid "hosts" entry for "all" group, requires a dict'),
        ("$ANSIBLE_VAULT;1.1;AES256\n33\n", ": Attempting to decrypt but no vault secrets found"),
    ],
)
def test_errors_say_what_is_wrong_with_the_yaml(tmp_path, text, expected):
    """Ansible's words are those of all its plugins, in one paragraph of a thousand signs."""
    (tmp_path / "hosts.yml").write_text(text)
    with pytest.raises(InventoryError, match=rf"hosts\.yml{expected}"):
        inventory.read(tmp_path / "hosts.yml")


def test_script_in_a_folder(tmp_path):
    with pytest.raises(InventoryError, match="does not exist"):
        inventory.read(tmp_path / "none.yml")
    script = tmp_path / "inventories" / "script"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\necho \'{"gpu_nodes": {"hosts": ["gpu-1"]}}\'\n')
    script.chmod(0o755)
    assert [one.name for one in inventory.read(script.parent, "gpu_nodes")] == ["gpu-1"]


def test_another_ansible_reads_what_this_one_cannot(tmp_path, monkeypatch):
    """That of PATH can have the collection of a dynamic inventory."""
    (tmp_path / "cloud.yml").write_text("plugin: of.no.collection\n")
    other = tmp_path / "bin" / "ansible-inventory"
    other.parent.mkdir()
    other.write_text('#!/bin/sh\necho \'{"all": {"hosts": ["gpu-1"]}}\'\n')
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    assert [one.name for one in inventory.read(tmp_path / "cloud.yml")] == ["gpu-1"]
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(InventoryError, match=r"of\.no\.collection"):
        inventory.read(tmp_path / "cloud.yml")
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(InventoryError, match=r"nor in PATH\. Install ansible-core"):
        inventory.read(tmp_path / "cloud.yml")


def test_ini_is_read_by_ansible(tmp_path):
    (tmp_path / "hosts.ini").write_text("[gpu_nodes]\ngpu-1 ansible_host=10.0.0.1 gpu_count=4\n")
    [host] = inventory.read(tmp_path / "hosts.ini")
    assert (host.name, host.address, host.variables["gpu_count"]) == ("gpu-1", "10.0.0.1", 4)


DOAS = "ansible_become_method is doas, and this program becomes root with sudo only"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"address": "n", "become": True, "local": False, "obstacle": ""}),
        ({"ansible_connection": "local", "ansible_become": "no"}, {"local": True, "become": False}),
        (
            {"ansible_connection": "winrm"},
            {"obstacle": "ansible_connection is winrm, expected ssh or local"},
        ),
        (
            {"ansible_become_method": "doas"},
            {"obstacle": DOAS},
        ),
        ({"ansible_ssh_common_args": "-o ProxyJump=a@b:22 -C"}, {"jump": "a@b:22", "options": {}}),
        (
            {"ansible_ssh_common_args": "-J b", "ansible_ssh_extra_args": "-oPort=7"},
            {"jump": "b", "port": 7, "options": {}},
        ),
        ({"ansible_ssh_args": "-vJ b -4qp7"}, {"jump": "b", "port": 7}),
        ({"ansible_ssh_args": "-tto User=me -Cl you"}, {"user": "me"}),
        ({"ansible_ssh_args": "-e none -L 1:a:2 -p 3"}, {"port": 3, "options": {}}),
        ({"ansible_ssh_common_args": "-F /my/config -P lab"}, {"config_file": "/my/config"}),
        ({"ansible_ssh_common_args": "-vFnone -P lab"}, {"options": {"tag": "lab"}}),
        (
            {"ansible_ssh_args": "-p 1", "ansible_port": 2, "ansible_ssh_common_args": "-p 3"},
            {"port": 1},
        ),
        ({"ansible_port": 2, "ansible_ssh_common_args": "-p 3"}, {"port": 2}),
        (
            {"ansible_ssh_common_args": "-o ProxyCommand=x -o ProxyJump=a"},
            {"jump": None, "options": {"proxycommand": "x"}},
        ),
        (
            {"ansible_ssh_common_args": "-o UserKnownHostsFile=/k -o 'ProxyCommand nc %h %p'"},
            {"options": {"userknownhostsfile": "/k", "proxycommand": "nc %h %p"}},
        ),
        (
            {"ansible_password": "p", "ansible_become_password": "{{ ansible_password }}"},
            {"password": "p", "become_password": "p"},
        ),
        ({"ansible_host": "{{ inventory_hostname }}.example"}, {"address": "n.example"}),
    ],
)
def test_connection_variables(variables, expected):
    host = connection_variables.host("n", variables)
    assert {name: getattr(host, name) for name in expected} == expected


def test_passwords_are_not_shown():
    host = connection_variables.host("n", {"ansible_password": "s3cret"})
    assert "s3cret" not in repr(host).replace(repr(host.variables), "")


def test_representation_of_a_host_has_no_password():
    host = connection_variables.host("a", {"ansible_password": "s3cret", "token": "s3cret"})
    assert host.password == "s3cret"
    assert "s3cret" not in repr(host)


def test_encrypted_values():
    """`ansible-inventory --list` prints them encrypted, also where it has the vault's password."""
    secret = {"__ansible_vault": "x"}
    variables = {"ansible_password": secret, "ansible_become_pass": secret}
    host = connection_variables.host("n", variables)
    assert (host.password, host.become_password, host.obstacle) == (None, None, "")
    host = connection_variables.host("n", {"ansible_user": secret})
    assert host.obstacle == "ansible_user is encrypted, and has to be readable"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ansible_port": "many"}, "ansible_port is 'many', expected a number from 1 to 65535"),
        ({"ansible_port": 70000}, "ansible_port is '70000', expected a number from 1 to 65535"),
        ({"ansible_become": "perhaps"}, "ansible_become is 'perhaps', expected true or false"),
        ({"ansible_ssh_args": "-o 'x"}, 'ansible_ssh_args is "-o \'x": No closing quotation'),
        (
            {"ansible_host": "{{ 1 / 0 }}"},
            "only ansible-playbook can render the variable ansible_host",
        ),
        (
            {"ansible_port": "{{ 'a' + 1 }}"},
            "only ansible-playbook can render the variable ansible_port",
        ),
    ],
)
def test_a_variable_without_a_valid_value_is_an_obstacle(variables, expected):
    host = connection_variables.host("n", variables)
    assert (host.name, host.address) == ("n", "n")
    assert host.obstacle.startswith(expected)


def test_one_host_that_cannot_be_used_does_not_end_the_others(tmp_path):
    (tmp_path / "hosts.yml").write_text(
        "all:\n  hosts:\n    a: {ansible_port: many}\n    b: {ansible_host: 10.0.0.2}\n"
    )
    first, second = inventory.read(tmp_path / "hosts.yml")
    assert "ansible_port is 'many'" in first.obstacle
    assert (second.address, second.obstacle) == ("10.0.0.2", "")


BASTION = (
    "{% if 'bastion' in groups['all'] %}-o ProxyCommand='ssh -W %h:%p"
    " {{ hostvars['bastion']['ansible_user'] }}@{{ hostvars['bastion'].ansible_host }}'{% endif %}"
)


def test_a_bastion_as_in_kubespray_and_a_host_that_only_ansible_renders(tmp_path):
    lookup = "{{ lookup('env', 'PASSWORD') }}"
    content = {
        "all": {
            "hosts": {
                "bastion": {"ansible_host": "10.0.0.1", "ansible_user": "core"},
                "gpu-1": {},
                "gpu-2": {"ansible_become_password": lookup},
            },
            "vars": {"ansible_ssh_common_args": BASTION},
        }
    }
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(content))
    _bastion, first, second = inventory.read(tmp_path / "hosts.yml")
    assert first.options == {"proxycommand": "ssh -W %h:%p core@10.0.0.1"}
    assert (first.obstacle, second.name) == ("", "gpu-2")
    assert "only ansible-playbook can render the variable ansible_become_pass" in second.obstacle


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[gpu_nodes\ngpu-1\n", r"hosts\.ini, line 1: a section without \]$"),
        (
            "[gpu_nodes]\ngpu-1\ngpu-2 ansible_host\n",
            r"hosts\.ini, line 3: Expected key=value.*ansible_host$",
        ),
    ],
)
def test_ansible_and_its_own_format(text, expected, tmp_path):
    (tmp_path / "hosts.ini").write_text(text)
    with pytest.raises(InventoryError, match=expected):
        inventory.read(tmp_path / "hosts.ini")
