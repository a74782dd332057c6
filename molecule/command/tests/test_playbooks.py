# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks as commands: from bare machines to a proven table, also on a terminal."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import installed
import leaks
import pexpect
import yaml

PROJECT = Path(__file__).resolve().parents[3]
COLUMNS = 80
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def _screen(text: str) -> list[str]:
    bare = _CONTROL.sub("\r", _STYLE.sub("", text))
    return [line.rstrip() for part in bare.split("\n") for line in part.split("\r")]


def _on_terminal(laboratory: Any, metal_gpu: Any, *words: str) -> Any:
    return pexpect.spawn(
        str(metal_gpu.program),
        [*words, "-i", str(laboratory.inventory)],
        cwd=str(laboratory.folder),
        env={**metal_gpu.environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
        dimensions=(40, COLUMNS),
        encoding="utf-8",
        timeout=600,
    )


def test_mirror_list_has_what_bare_nodes_fetch(
    laboratory: Any, metal_gpu: Any, newcomer: Path, tmp_path: Path
) -> None:
    variable = f"metal_gpu_mirror_folder={tmp_path / 'mirror'}"
    done = metal_gpu("mirror_list", "--json", "-e", variable, folder=newcomer)
    assert done.code == 0, done
    assert done.states == dict.fromkeys(laboratory.addresses, "ok")
    listing = yaml.safe_load((tmp_path / "mirror" / "list.yml").read_text())
    nodes = {*laboratory.addresses}
    packages = [one["packages"] for one in listing["repositories"]]
    fetched = {name.partition("=")[0]: {*hosts} for one in packages for name, hosts in one.items()}
    assert fetched["nvidia-container-toolkit"] == nodes
    assert {*listing["images"][laboratory.facts["images"]["device_plugin"]]} == nodes
    for node in nodes:
        address = listing["variables"][node]["nvidia_driver_repository_url"]
        assert address.startswith("https://mirror.example/")


def test_docker_hosts_refuses_nodes_of_another_engine(
    laboratory: Any, metal_gpu: Any, newcomer: Path
) -> None:
    """The kubelet of these nodes uses containerd. molecule/docker_hosts has Docker hosts."""
    done = metal_gpu("docker_hosts", "--check", "--json", folder=newcomer)
    document = json.loads(done.out)
    assert (done.code, document["outcome"]) == (2, "refused"), done
    assert done.states == dict.fromkeys(laboratory.addresses, "failed")
    for host in document["hosts"]:
        assert "ENGINE_MISMATCH" in [one["code"] for one in host["findings"]]


def test_site_proves_every_gpu(laboratory: Any, gpu_nodes: Any) -> None:
    assert (gpu_nodes["outcome"], gpu_nodes["rc"]) == ("ok", 0)
    verdicts = {one["host"]: one["verdict"] for one in gpu_nodes["hosts"]}
    assert verdicts == dict.fromkeys(laboratory.addresses, "ok")
    log = Path(gpu_nodes["log"])
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert "nodes ok" in log.read_text()


def test_verify_with_the_inventory_of_the_scan(
    laboratory: Any, gpu_nodes: Any, metal_gpu: Any, newcomer: Path
) -> None:
    done = metal_gpu("verify", folder=newcomer)
    assert done.code == 0, done
    nodes = len(laboratory.addresses)
    assert f"{nodes} of {nodes} nodes ok" in done.out


def test_plan_has_nothing_to_do(laboratory: Any, gpu_nodes: Any, metal_gpu: Any) -> None:
    done = metal_gpu("plan", "-i", str(laboratory.inventory))
    assert done.code == 0, done.out
    assert "changed: [" not in done.out
    assert "0 would change" in done.out


def test_verify_on_a_terminal_of_80_columns(
    laboratory: Any, gpu_nodes: Any, metal_gpu: Any, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    child = _on_terminal(laboratory, metal_gpu, "verify", "--report", str(report))
    text = child.read()
    child.close()
    assert child.exitstatus == 0, text
    lines = _screen(text)
    paths = ("log: ", "report: ")
    assert max(len(line) for line in lines if not line.startswith(paths)) <= COLUMNS
    assert any(re.match(r"✔ Proof of the GPUs +━{16} \d/\d nodes", line) for line in lines)
    for node in laboratory.addresses:
        assert any(line.startswith(node) and line.endswith("ok") for line in lines), lines
    assert f"report: {report}" in text
    assert json.loads(report.read_text())


def test_ctrl_c_leaves_no_pod_and_no_folder(
    laboratory: Any, gpu_nodes: Any, metal_gpu: Any
) -> None:
    before = set(Path("/tmp").glob("metal-gpu-*"))
    child = _on_terminal(laboratory, metal_gpu, "verify")
    child.expect("Prove every free GPU in a pod")
    child.sendintr()
    text = child.read()
    child.close()
    assert child.exitstatus == 130, text
    assert set(Path("/tmp").glob("metal-gpu-*")) == before
    pods = laboratory.objects("pods", "-l", "app.kubernetes.io/managed-by=metal.gpu")["items"]
    assert [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]] == []


def test_the_same_inventory_works_with_ansible_playbook(
    laboratory: Any, gpu_nodes: Any, metal_gpu: Any, newcomer: Path
) -> None:
    """The one that came with the program, in the folder of the newcomer, with nothing else set."""
    run = installed.timed(
        [
            metal_gpu.program.with_name("ansible-playbook"),
            *("metal.gpu.verify", "-i", "inventory.yml"),
        ],
        cwd=newcomer,
        env=metal_gpu.environment,
        stdin=subprocess.DEVNULL,
    )
    assert run.returncode == 0, run.output
    nodes = len(laboratory.addresses)
    assert f"{nodes} of {nodes} nodes ok" in run.words


def test_leak_test_tries_every_node(
    laboratory: Any, gpu_nodes: Any, metal_gpu: Any, newcomer: Path
) -> None:
    done = metal_gpu("leak_test", "--json", folder=newcomer)
    assert done.code == 0, done
    assert done.states == dict.fromkeys(laboratory.addresses, "ok")
    found: dict[str, dict[str, str]] = {}
    log = Path(json.loads(done.out)["log"]).read_text()
    for line in log.splitlines():
        found |= leaks.parse(line)
    assert {*found} == {*laboratory.addresses}
    nodes = len(laboratory.addresses)
    assert f"{nodes} of {nodes} tested nodes gave no pod a GPU" in log
    for attempts in found.values():
        assert attempts["privileged"] == "by design"
        assert {*attempts.values()} <= {"nothing", "refused", "by design"}


def test_a_lost_gpu_is_in_the_table_and_in_the_exit_code(
    laboratory: Any, gpu_nodes: Any, metal_gpu: Any
) -> None:
    laboratory.lab("fault", "gpu-1", "gpu-lost", "0")
    try:
        done = metal_gpu("verify", "--json", "-i", str(laboratory.inventory))
        child = _on_terminal(laboratory, metal_gpu, "verify")
        text = child.read()
        child.close()
    finally:
        laboratory.lab("fault", "gpu-1", "restore")
        laboratory.kubectl("rollout", "restart", "daemonset", "--namespace=kube-system")
    document = json.loads(done.out)
    hosts = {one["host"]: one for one in document["hosts"]}
    assert (done.code, document["outcome"]) == (2, "unhealthy")
    assert "GPU_FAULTY" in hosts["gpu-1"]["verdict"]
    assert hosts["gpu-1"]["state"] == "failed"
    assert hosts["gpu-2"]["state"] == "ok"
    assert child.exitstatus == 2, text
    assert any(line.startswith("GPU_FAULTY gpu-1: ") for line in _screen(text)), text
    if os.environ.get("RECORD_SCREEN") == "1":  # for the picture of README
        kept = [line for line in text.splitlines(keepends=True) if not line.startswith("log: ")]
        (PROJECT / "tests/recorded/screen.txt").write_text("".join(kept), newline="")
