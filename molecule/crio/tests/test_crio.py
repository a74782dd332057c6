# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two nodes with CRI-O after site.yml. Each test asserts what a user would lose."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

DROP_INS = "/etc/crio/crio.conf.d"
OURS = f"{DROP_INS}/99-metal-gpu.conf"
MIRRORS = "/etc/containers/registries.conf.d/50-metal-gpu.conf"
HOOKS = "/usr/share/containers/oci/hooks.d"
LIBEXEC = "/usr/libexec/crio"
CONMON = f"{LIBEXEC}/conmon"
# As CRI-O 1.36.3 says it, with the name of the runtime.
C1 = (
    "validating runtime config: monitor fields translation: failed to translate monitor fields for "
    'runtime legacy: exec: \\"conmon\\": executable file not found in $PATH'
)

# The image sets NVIDIA_VISIBLE_DEVICES=all, as every CUDA image does. The pod requests no GPU.
UNASKED = """
apiVersion: v1
kind: Pod
metadata:
  name: unasked
  namespace: default
  annotations: {example.com/audit: "yes"}
spec:
  restartPolicy: Never
  nodeSelector: {kubernetes.io/hostname: NODE}
  containers:
    - name: cuda
      image: nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04
      command: [sh, -c, "ls /dev | grep -c nvidia; true"]
"""


def effective(laboratory: Any, node: str) -> Any:
    """Return the configuration of the running CRI-O."""
    command = "crio status config 2>/dev/null"
    return tomllib.loads(laboratory.host(node).check_output(command))["crio"]


def restarted(host: Any) -> Any:
    """Restart CRI-O. systemd does not count the restarts of these tests."""
    host.check_output("systemctl reset-failed crio; true")
    return host.run("systemctl restart crio")


def test_running_crio_has_the_runtime_and_keeps_the_admins_settings(laboratory, node):
    found = effective(laboratory, node)["runtime"]
    runtimes, default = found["runtimes"], found["default_runtime"]
    nvidia = runtimes["nvidia"]
    assert nvidia["runtime_path"] == "/usr/bin/nvidia-container-runtime"
    assert nvidia["monitor_path"] == runtimes[default]["monitor_path"] == CONMON
    assert nvidia["runtime_root"] == runtimes[default]["runtime_root"]
    assert default != "nvidia"
    assert runtimes["crun"]["runtime_path"] == f"{LIBEXEC}/crun"
    assert found["log_size_max"] == 33554432
    host = laboratory.host(node)
    assert "# mirrored in house" in host.file(f"{DROP_INS}/20-admin.conf").content_string


def test_runtime_calls_the_runtimes_of_crio(laboratory, node):
    """Which are in no folder of PATH."""
    host = laboratory.host(node)
    assert host.run("command -v crun runc conmon").stdout == ""
    config = host.file("/etc/nvidia-container-runtime/config.toml").content_string
    default = effective(laboratory, node)["runtime"]["default_runtime"]
    first = tomllib.loads(config)["nvidia-container-runtime"]["runtimes"][0]
    assert first == f"{LIBEXEC}/{default}"


def test_crio_is_held_where_the_role_installed_it(laboratory):
    held = {
        name: "cri-o" in laboratory.host(name).check_output("apt-mark showhold").split()
        for name in laboratory.addresses
    }
    assert held == {"gpu-1": False, "gpu-2": True}


@pytest.mark.parametrize("role", ["crio", "registries", "nvidia_container_runtime"])
def test_role_alone_changes_nothing_and_is_cheap(laboratory, tmp_path, role):
    play = tmp_path / "role.yml"
    play.write_text(
        f"- hosts: gpu_nodes\n  gather_facts: false\n  become: true\n  roles: [metal.gpu.{role}]\n"
    )
    laboratory.second_run(str(play), 1)


def test_pod_that_requests_no_gpu_sees_none_and_the_admins_hook_runs(laboratory, node):
    host = laboratory.host(node)
    laboratory.kubectl("apply", "-f", "-", stdin=UNASKED.replace("NODE", node))
    try:
        laboratory.kubectl(
            "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/unasked", "--timeout=60s"
        )
        assert laboratory.kubectl("logs", "unasked").strip() == "0"
        assert host.file("/var/log/acme-audit").exists is (node == "gpu-1")
    finally:
        laboratory.kubectl("delete", "pod", "unasked")
        host.check_output("rm -f /var/log/acme-audit")


def test_hook_of_2018_is_off(laboratory):
    hook = json.loads(laboratory.host("gpu-1").file(f"{HOOKS}/oci-nvidia-hook.json").content_string)
    assert hook["when"] == {"always": False, "commands": [".*"]}
    assert hook["hook"]["args"] == ["nvidia-container-runtime-hook", "prestart"]


def test_hook_of_2018_is_named_without_permission(laboratory):
    """A hook that the admin turns on again, with its effect on every pod with a CUDA image."""
    host, path = laboratory.host("gpu-1"), f"{HOOKS}/oci-nvidia-hook.json"
    host.check_output("cp %s /root/hook.json && sed -i 's/false/true/' %s", path, path)
    try:
        run = laboratory.playbook(
            *("metal.gpu.site", "--check", "--limit=gpu-1", "--tags=runtime"),
            *("-e", "nvidia_container_runtime_replace_oci_hooks=false"),
        )
        assert f"OCI_HOOK_FOUND gpu-1: CRI-O runs OCI hooks from before CDI: {path};" in run.words
    finally:
        host.check_output("cp --preserve /root/hook.json %s && rm /root/hook.json", path)
        restarted(host)


@pytest.fixture
def drop_in(laboratory: Any) -> Iterator[Any]:
    """Return a function that writes a drop-in on gpu-1, and whether CRI-O starts with it."""
    host, paths = laboratory.host("gpu-1"), []

    def write(name: str, text: str) -> bool:
        paths.append(f"{DROP_INS}/{name}")
        host.check_output("printf %s > %s", text, paths[-1])
        return bool(restarted(host).rc == 0)

    yield write
    host.check_output("rm %s", " ".join(paths))
    assert restarted(host).rc == 0


def refused(laboratory: Any, *options: str) -> str:
    """Run site.yml on gpu-1. It refuses, and leaves the files of CRI-O alone."""
    host = laboratory.host("gpu-1")
    state = "find /etc/crio -type f -exec sha256sum {} + | sort"
    before = host.check_output(state)
    run = laboratory.playbook("metal.gpu.site", "--limit=gpu-1", "--tags=runtime", *options)
    assert run.returncode != 0
    assert "Nothing was changed" in run.output
    assert host.check_output(state) == before
    return str(run.words)


def test_runtime_without_a_monitor_keeps_crio_from_starting(laboratory, drop_in):
    """What `nvidia-ctk runtime configure` leaves where CRI-O has no crio.conf."""
    text = '[crio.runtime.runtimes.legacy]\nruntime_path = "/bin/true"\nruntime_type = "oci"\n'
    assert not drop_in("98-legacy.conf.bak", text)
    journal = laboratory.host("gpu-1").check_output(
        "journalctl --boot _SYSTEMD_UNIT=crio.service --lines=1 --output=cat"
    )
    assert C1 in journal
    words = refused(laboratory)
    assert "CRIO_MONITOR_MISSING gpu-1: CRI-O cannot start: its runtime legacy in" in words
    assert f"{DROP_INS}/98-legacy.conf.bak has no monitor_path" in words


def test_default_runtime_that_no_file_has_keeps_crio_from_starting(laboratory, drop_in):
    assert not drop_in("98-default.toml", '[crio.runtime]\ndefault_runtime = "gvisor"\n')
    journal = laboratory.host("gpu-1").check_output(
        "journalctl --boot _SYSTEMD_UNIT=crio.service --lines=1 --output=cat"
    )
    assert 'default_runtime set to \\"gvisor\\", but no runtime entry table' in journal
    words = refused(laboratory)
    assert f"CRIO_CONFIG_INVALID gpu-1: CRI-O's configuration is not valid: {DROP_INS}" in words
    assert "98-default.toml: default_runtime is gvisor" in words


def test_runtime_whose_program_is_missing_is_ignored_by_crio(laboratory, drop_in):
    """A later file of another tool has replaced ours. CRI-O then has no runtime nvidia."""
    text = (
        '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/local/nvidia/toolkit/runtime"\n'
        f'monitor_path = "{CONMON}"\n'
    )
    assert drop_in("99-nvidia.toml", text)
    assert "nvidia" not in effective(laboratory, "gpu-1")["runtime"]["runtimes"]
    journal = laboratory.host("gpu-1").check_output(
        "journalctl --boot _SYSTEMD_UNIT=crio.service --grep='is being ignored' --output=cat"
    )
    assert (
        'Runtime handler \\"nvidia\\" is being ignored due to: invalid runtime_path for runtime '
        "'nvidia'" in journal
    )
    words = refused(laboratory)
    assert f"CRIO_DROP_IN_REPLACED gpu-1: {DROP_INS}/99-nvidia.toml is read after {OURS}" in words


@contextmanager
def does_not_start_with(laboratory: Any, word: str, path: str) -> Iterator[str]:
    """CRI-O of gpu-1 does not start while a file has a word. Yield what it says then."""
    test, said = f"! grep -q {word} {path}", f"site policy: no {word}"
    laboratory.lab("fault", "gpu-1", "refuse-start", "crio", test, said)
    yield said
    laboratory.lab("fault", "gpu-1", "permit-start", "crio")


@pytest.fixture
def picky(laboratory: Any) -> Iterator[str]:
    with does_not_start_with(laboratory, "default_runtime", OURS) as said:
        yield said


def test_crio_that_does_not_come_back(laboratory, picky):
    host = laboratory.host("gpu-1")
    before = host.file(OURS).content_string
    (pod,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    run = laboratory.playbook(
        *("metal.gpu.site", "--limit=gpu-1", "--tags=runtime"),
        *("-e", "nvidia_container_runtime_default=true"),
    )
    assert run.returncode != 0
    assert f"{OURS}, and runs with its former configuration: {picky}" in run.words
    assert "ENGINE_NOT_BACK" in run.words
    assert host.file(OURS).content_string == before
    assert host.check_output("systemctl is-active crio") == "active"
    assert effective(laboratory, "gpu-1")["runtime"]["default_runtime"] != "nvidia"
    (after,) = laboratory.objects("pod", "admin")["status"]["containerStatuses"]
    assert (after["containerID"], after["restartCount"]) == (pod["containerID"], 0)


@pytest.fixture
def strict(laboratory: Any) -> Iterator[str]:
    with does_not_start_with(laboratory, "quay.example", MIRRORS) as said:
        yield said


def test_mirror_with_which_crio_does_not_come_back(laboratory, strict, tmp_path):
    host = laboratory.host("gpu-1")
    before = host.file(MIRRORS).content_string
    command = ("metal.gpu.site", "--limit=gpu-1", "--tags=registries", "-vvvv")

    def add(group: Any) -> None:
        items = group["hosts"]["gpu-1"]["registries_hosts"]
        items.append({**items[0], "host": "quay.example"})

    inventory = laboratory.inventory_with(tmp_path / "inventory.yml", add)
    run = laboratory.playbook(*command, inventory=inventory)
    assert run.returncode != 0
    assert f"{MIRRORS}, and runs with its former configuration: {strict}" in run.words
    assert "ENGINE_NOT_BACK" in run.words
    assert laboratory.facts["registry"]["password"] not in run.output
    assert host.file(MIRRORS).content_string == before
    assert host.check_output("systemctl is-active crio") == "active"
    assert "gpu-1" in laboratory.playbook(*command).unchanged


def test_list_of_runtimes_that_somebody_puts_back(laboratory):
    """NVIDIA's runtime then finds none, in its own words, and verify says what has drifted."""
    host, config = laboratory.host("gpu-2"), "/etc/nvidia-container-runtime/config.toml"
    right = host.file(config).content_string
    wrong = 's|^runtimes = .*|runtimes = ["runc", "crun"]|'
    host.check_output("sed --in-place %s %s", wrong, config)
    said = host.run("/usr/bin/nvidia-container-runtime --version")
    assert "no runtime binary found from candidate list: [runc crun]" in said.stdout + said.stderr
    run = laboratory.playbook("metal.gpu.verify", "--limit=gpu-2")
    assert run.returncode != 0
    assert "DRIFTED gpu-2: container_toolkit has drifted;" in run.words
    assert f"{config} names runc, crun, not {LIBEXEC}/" in run.words
    assert laboratory.playbook("metal.gpu.site", "--limit=gpu-2", "--tags=runtime").returncode == 0
    assert host.file(config).content_string == right


def test_default_runtime_comes_and_goes(laboratory):
    """A pod with the default runtime nvidia, and the former one afterwards."""
    former = effective(laboratory, "gpu-2")["runtime"]["default_runtime"]
    for default, expected in ((True, "nvidia"), (False, former)):
        variable = json.dumps({"nvidia_container_runtime_default": default})
        run = laboratory.playbook("metal.gpu.site", "--limit=gpu-2", "-e", variable)
        assert run.returncode == 0
        assert re.search(r"gpu-2 .*?(\s+4){5}\s+4/4\s+ok\b", run.output)
        assert effective(laboratory, "gpu-2")["runtime"]["default_runtime"] == expected
