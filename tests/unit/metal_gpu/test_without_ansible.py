# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The library and the command load nothing of ansible-core."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLUGINS = "ansible_collections.metal.gpu.plugins"
HEAVY = {
    "paramiko",
    "yaml",
    "kubernetes",
    "jinja2",
    "cryptography",
    "ansible_collections.metal.gpu",
}
BLOCKED = """
import sys
sys.path[:0] = [{src!r}, {tree!r}]
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name == "ansible" or name.startswith("ansible."):
            raise ModuleNotFoundError(f"no module named {{name!r}}", name=name)
sys.meta_path.insert(0, Refused())
"""


def run(code):
    paths = {"src": str(ROOT / "src"), "tree": str(ROOT / ".ansible" / "collections")}
    return subprocess.run(
        [sys.executable, "-c", BLOCKED.format(**paths) + code],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "code",
    [
        f"from {PLUGINS}.plugin_utils.components import observation, planning",
        f"from {PLUGINS}.module_utils.verdict import reconcile",
        f"from {PLUGINS}.plugin_utils.verdict import fleet",
        f"from {PLUGINS}.module_utils.cluster import kube_settings",
        "import metal_gpu.verdicts, metal_gpu.ssh.connection, metal_gpu.inventory",
    ],
)
def test_imports(code):
    result = run(code)
    assert result.returncode == 0, result.stderr


def test_this_machine_is_observed_and_planned():
    result = run(
        "from metal_gpu import Fleet, Host\n"
        "[node] = Fleet.of([Host('here', 'localhost', local=True, become=False)]).observe()\n"
        "print(node.observed['os']['architecture'], len(node.plan().roles), node.findings)"
    )
    assert result.returncode == 0, result.stderr
    assert "x86_64" in result.stdout


def test_help_loads_nothing_heavy():
    result = run(f"import metal_gpu.terminal.main\nprint(sorted({HEAVY!r} & sys.modules.keys()))")
    assert (result.returncode, result.stdout) == (0, "[]\n"), result.stderr
