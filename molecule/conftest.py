# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the tests of all scenarios share: the laboratory, its nodes over SSH, its API server."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import testinfra
import yaml

PROJECT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(PROJECT / "tests" / "lab"), str(PROJECT / "molecule" / "shared")]

import footprint  # noqa: E402 - from there
import installed  # noqa: E402


class Laboratory:
    """The laboratory of one scenario."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = PROJECT / ".lab" / name
        self.facts = json.loads((self.folder / "facts.json").read_text())
        self.inventory = self.folder / "inventory.yml"
        self.group = yaml.safe_load(self.inventory.read_text())["gpu_nodes"]
        hosts = self.group["hosts"]
        self.addresses = {node: host["ansible_host"] for node, host in hosts.items()}
        self.gpu_count = {node: host["gpu_count"] for node, host in hosts.items()}
        self.printed: list[tuple[str, str]] = []  # the commands of this test, and their output

    def lab(self, *words: str) -> str:
        return subprocess.run(
            [PROJECT / "tests/lab/lab", words[0], f"--name={self.name}", *words[1:]],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl. Where it fails, the exception has its message."""
        result = self.try_kubectl(*words, stdin=stdin)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def try_kubectl(
        self, *words: str, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Do the same; return the result, with warnings and errors."""
        kubectl = self.facts["kubectl"]
        return subprocess.run(
            [kubectl["program"], *words],
            check=False,
            env={**os.environ, **kubectl["environment"]},
            input=stdin,
            capture_output=True,
            text=True,
        )

    def objects(self, *words: str) -> Any:
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def host(self, node: str) -> Any:
        """Return the testinfra host of a node, logged in as the user that Ansible uses."""
        ssh = self.facts["ssh"]
        return testinfra.get_host(
            f"ssh://{ssh['user']}@{self.addresses[node]}",
            ssh_identity_file=ssh["key"],
            ssh_extra_args=f"-o UserKnownHostsFile={ssh['known_hosts']}",
            sudo=True,
        )

    def reboot(self, node: str) -> None:
        """Reboot a node, as a power cycle does. Return when it can be logged in to."""
        boot_id = "cat /proc/sys/kernel/random/boot_id"
        before = self.host(node).check_output(boot_id)
        command = ["docker", "restart", self.facts["nodes"][node]["container"]]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wait = ["ansible", node, "--module-name=ansible.builtin.wait_for_connection"]
        assert installed.run(wait, self.inventory, self.folder).returncode == 0
        assert self.host(node).check_output(boot_id) != before

    def pulled(self, node: str, image: str) -> bool:
        """Return whether a node has asked the registry for an image, with the login."""
        address = re.escape(self.addresses[node])
        log = Path(self.facts["registry"]["log"]).read_text()
        return bool(re.search(rf'authorized request" .*"{address}:.*{image}/manifests', log))

    def playbook(
        self,
        name: str,
        *options: str,
        inventory: Path | None = None,
        watch: Callable[[str], None] | None = None,
        **variables: str,
    ) -> installed.Run:
        """Run a playbook of the installed collection, as a user would.

        `watch` receives each line during the run. `variables` are environment variables.
        """
        command = ["ansible-playbook", name, *options]
        run = installed.run(
            command, inventory or self.inventory, self.folder, watch=watch, **variables
        )
        self.printed.append((shlex.join(command), run.output))
        return run

    def second_run(self, name: str, allowed: int) -> dict[str, int]:
        """Run a playbook that has nothing to do. Assert that it changes nothing.

        Return the remote operations by node: at least 1, at most `allowed`.
        """
        return self.unchanged_within(self.playbook(name, "-vvv"), allowed)

    def unchanged_within(self, run: installed.Run, allowed: int) -> dict[str, int]:
        """Assert that a run with -vvv changed nothing. Return the operations, likewise."""
        assert run.returncode == 0
        operations = run.operations()
        counts = {node: operations[address] for node, address in self.addresses.items()}
        for node, count in counts.items():
            assert 0 < count <= allowed
            assert node in run.unchanged
        return counts

    def inventory_with(self, path: Path, edit: Callable[[Any], None]) -> Path:
        """Write a copy of the inventory with its group edited. Return the path."""
        inventory = yaml.safe_load(self.inventory.read_text())
        edit(inventory["gpu_nodes"])
        path.write_text(yaml.safe_dump(inventory))
        return path

    def kubeconfig_with(self, path: Path, edit: Callable[[Any, Any], None]) -> str:
        """Write a copy of the kubeconfig with its cluster and user edited.

        Return the variable, NAME=VALUE, that makes playbooks use it.
        """
        content = yaml.safe_load((self.folder / "kubeconfig").read_text())
        edit(content["clusters"][0]["cluster"], content["users"][0]["user"])
        path.write_text(yaml.safe_dump(content))
        return f"metal_gpu_kubeconfig={path}"

    def kubeconfig_of(self, account: str, path: Path) -> str:
        """Do the same for a service account of the namespace `default`."""
        token = self.kubectl("create", "token", account, "--namespace=default").strip()

        def log_in(cluster: Any, user: Any) -> None:
            user.clear()
            user["token"] = token

        return self.kubeconfig_with(path, log_in)


@pytest.fixture(scope="session")
def laboratory(request: pytest.FixtureRequest) -> Laboratory:
    """The laboratory of the scenario whose tests run."""
    return Laboratory(f"molecule-{Path(os.environ['MOLECULE_SCENARIO_DIRECTORY']).name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, Any, Any]:
    """Show the output of the playbooks of a failed test: the laboratory is destroyed soon."""
    report = yield
    laboratory = item.funcargs.get("laboratory")
    if laboratory and report.failed:
        report.sections += laboratory.printed
    if laboratory and report.when == "teardown":
        laboratory.printed.clear()
    return report


@pytest.fixture(params=["gpu-1", "gpu-2"])
def node(request: pytest.FixtureRequest) -> str:
    """Each of the two nodes that a scenario has."""
    return str(request.param)


class Record(NamedTuple):
    """One run of the scenario's playbook: pairs of host and task."""

    check: bool
    ran: set[tuple[str, str]]
    changed: set[tuple[str, str]]
    announced: set[tuple[str, str]]

    @property
    def unannounced(self) -> set[tuple[str, str]]:
        """Changes outside the announced steps."""
        return self.changed - self.announced


@pytest.fixture
def runs(laboratory: Laboratory) -> list[Record]:
    """The runs of this scenario so far, as callback_plugins/run_record.py recorded them."""
    lines = (laboratory.folder / "runs.jsonl").read_text().splitlines()
    return [
        Record(
            record.pop("check"), **{key: set(map(tuple, pairs)) for key, pairs in record.items()}
        )
        for record in map(json.loads, lines)
    ]


@pytest.fixture
def check_and_converge(runs: list[Record]) -> tuple[Record, Record]:
    """The first two runs: check mode on virgin nodes, then the real run."""
    check, converge, *_others = runs
    assert (check.check, converge.check) == (True, False)
    return check, converge


@pytest.fixture(scope="module")
def footprints(laboratory: Laboratory) -> tuple[dict[str, Any], dict[str, Any]]:
    """The footprint before the first run, and the footprint when a test first uses this."""
    return footprint.read(laboratory.name), footprint.take(laboratory.name)
