# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A collection metal.gpu with one small playbook, whose hosts are all this machine.

The plugins are the real ones. The roles do nothing to a node: they print, change, fail or wait as
the variables of the hosts say. `wait_for` is a pipe: the task waits until somebody writes to it.
Only tasks whose module must be a process of Python have one: each takes longer than all the rest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.metal.gpu.tests.unit.support.command import ROOT

PLAYBOOK = """---
# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

# Prepares nodes for a test. Changes nothing.
#
#   ansible-playbook -i inventory.yml metal.gpu.small --check   # shows the changes only

- name: Check the inventory
  ansible.builtin.import_playbook: _inventory.yml
  vars:
    metal_gpu_tags: [driver]

- name: Prepare the nodes
  hosts: "{{ metal_gpu_hosts | default('gpu_nodes') }}"
  strategy: linear
  gather_facts: false
  serial: "{{ metal_gpu_serial | default(0) }}"
  tasks:
    - name: Prepare
      block:
        - name: Check the nodes
          ansible.builtin.import_role: {name: metal.gpu.preflight}
        - name: Install the driver
          ansible.builtin.import_role: {name: metal.gpu.nvidia_driver}
          tags: [driver]
        - name: Install CRI-O
          ansible.builtin.import_role: {name: metal.gpu.crio}
          when: false

- name: Tell how it went
  hosts: "{{ metal_gpu_hosts | default('gpu_nodes') }}"
  strategy: linear
  gather_facts: false
  tasks:
    - name: Show the outcome
      ansible.builtin.set_stats:
        data: {metal_gpu_outcome: "{{ outcome | default('ok') }}"}
      run_once: true
"""

ROLES = {
    "preflight": """
- name: Say hello
  ansible.builtin.debug: {msg: "{{ words }}"}
  when: words is defined
- name: Look at the node
  ansible.builtin.raw: "true"
  changed_when: false
""",
    "nvidia_driver": """
- name: Install the packages
  ansible.builtin.raw: "true"
  changed_when: changes | default(true)
- name: Wait for the node
  ansible.builtin.command: {argv: [cat, "{{ wait_for }}"]}
  when: wait_for is defined
- name: Run a program
  ansible.builtin.command: {argv: "{{ argv }}"}
  when: argv is defined
- name: Check the driver
  ansible.builtin.fail: {msg: the driver does not load}
  when: fails | default(false)
""",
    "crio": """
- name: Install CRI-O
  ansible.builtin.raw: "true"
""",
}


def plant(folder: Path, hosts: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Write the collection and an inventory; return the environment in which they are used."""
    root = folder / "collections"
    collection = root / "ansible_collections" / "metal" / "gpu"
    (collection / "playbooks").mkdir(parents=True)
    for name in ("plugins", "docs", "galaxy.yml", "meta"):
        (collection / name).symlink_to(ROOT / name)
    (collection / "playbooks" / "_inventory.yml").symlink_to(ROOT / "playbooks" / "_inventory.yml")
    (collection / "playbooks" / "small.yml").write_text(PLAYBOOK, encoding="utf-8")
    for name, tasks in ROLES.items():
        place = collection / "roles" / name / "tasks"
        place.mkdir(parents=True)
        (place / "main.yml").write_text(f"---{tasks}", encoding="utf-8")
    usual = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    group = {"hosts": {name: {**usual, **values} for name, values in hosts.items()}}
    inventory = folder / "inventory.yml"
    inventory.write_text(yaml.safe_dump({"all": {"children": {"gpu_nodes": group}}}))
    return {
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(root)]),
        "ANSIBLE_COLLECTIONS_PATH": str(root),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "XDG_STATE_HOME": str(folder / "state"),
        "TMPDIR": str(_made(folder / "temporary")),
        "ANSIBLE_HOME": str(folder / "ansible"),
        "LANG": "C.UTF-8",
    }


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
