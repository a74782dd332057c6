# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection with the toy and its role, as a change of this repository would add them."""

from __future__ import annotations

import shutil
from pathlib import Path

from ansible_collections.metal.gpu.tests.unit.support.playbooks import ROOT

_HERE = Path(__file__).parent
_PLUGIN_UTILS = "ansible_collections.metal.gpu.plugins.plugin_utils"
# New files; those of Python are beside this one.
_PYTHON = {
    "plugins/module_utils/probe/components/toy.py": "probe.py",
    "plugins/plugin_utils/components/toy/observed.py": "observed.py",
    "plugins/plugin_utils/components/toy/plan.py": "plan.py",
    "plugins/plugin_utils/components/toy/shapes.py": "shapes.py",
}
_TASKS = """\
- name: Configure the toy
  ansible.builtin.copy:
    dest: /etc/toyd.conf
    content: "play = true\\n"
    mode: "0644"
"""
_ROLE = {
    "meta/argument_specs.yml": """\
argument_specs:
  main:
    options:
      toy_state: {type: str, choices: [present, absent], default: present}
""",
    "defaults/main.yml": "toy_state: present\n",
    "tasks/main.yml": """\
- name: Plan the toy, and carry out the plan
  ansible.builtin.include_role:
    name: metal.gpu.preflight
    tasks_from: role.yml
  vars:
    preflight_role: toy
    preflight_tasks: "{{ toy_state }}.yml"
""",
    "tasks/present.yml": _TASKS,
    "tasks/absent.yml": """\
- name: Delete the configuration of the toy
  ansible.builtin.file:
    path: /etc/toyd.conf
    state: absent
""",
    "README.md": "# toy\n",
}
# Files that exist: the line before which each new text goes, and the text.
_EDITS = {
    "plugins/module_utils/probe/registry.py": (
        ("    signed_modules,\n", "    toy,\n"),
        ('    "signed_modules": signed_modules.PROBE,\n', '    "toy": toy.PROBE,\n'),
    ),
    "plugins/plugin_utils/components/__init__.py": (
        ('    Component("registries",', '    Component("toy", "toy", "toy", "Toy"),\n'),
    ),
    "playbooks/site.yml": (
        (
            "        - name: Configure the registries\n",
            "        - name: Configure the toy\n"
            "          ansible.builtin.import_role: {name: metal.gpu.toy}\n"
            "          tags: [toy]\n",
        ),
    ),
    "playbooks/teardown.yml": (
        ("    crio_state: absent\n", "    toy_state: absent\n"),
        ("    - role: metal.gpu.registries\n", "    - {role: metal.gpu.toy, tags: [toy]}\n"),
    ),
    "inventories/example/group_vars/gpu_nodes.yml": (
        ("## ==== Mirrors of package", "# toy_state: present\n"),
    ),
}


def add(collections: Path) -> int:
    """Write the collection below a folder of collections; return how many files the toy touches."""
    place = collections / "ansible_collections" / "metal" / "gpu"
    for folder in ("plugins", "roles", "playbooks", "inventories"):
        shutil.copytree(ROOT / folder, place / folder)
    new = {name: (_HERE / file).read_text() for name, file in _PYTHON.items()}
    new |= {f"roles/toy/{name}": text for name, text in _ROLE.items()}
    for name, text in new.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        here = __name__.rpartition(".")[0]
        (place / name).write_text(text.replace(here, f"{_PLUGIN_UTILS}.components.toy"))
    for name, edits in _EDITS.items():
        text = (place / name).read_text()
        for mark, added in edits:
            assert text.count(mark) == 1, (name, mark)
            text = text.replace(mark, added + mark)
        (place / name).write_text(text)
    return len(new) + len(_EDITS)
