# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page docs/upgrade.md exchanges the driver of a node that is in a cluster."""

from __future__ import annotations

import json
import re
import shlex

import installed
import pytest

PAGE = (installed.PROJECT / "docs" / "upgrade.md").read_text()
PLAY, COMMANDS = re.findall(r"```(?:yaml|shell)\n(.*?)```", PAGE, re.S)[:2]
OLD, NEW = "580.173.02", "580.178.04"
FROM_PACKAGES = ("-e", "nvidia_driver_source=nvidia")
SPECIFICATION, FORMER = "/run/cdi/nvidia.yaml", "/root/former.yaml"

# The pod of a controller: one without would have to be deleted by its owner.
HOLDER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "holder", "namespace": "default"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "holder"}},
        "template": {
            "metadata": {"labels": {"app": "holder"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [
                    {
                        "name": "holder",
                        "command": ["sleep", "3600"],
                        "resources": {"limits": {"nvidia.com/gpu": 1}},
                    }
                ],
            },
        },
    },
}


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-1")


def exchange(laboratory, folder, version):
    """Run the commands of the page until one fails. Return their runs."""
    play = folder / "another-driver.yml"
    play.write_text(PLAY)
    runs = []
    for command in COMMANDS.replace("gpu-2", "gpu-1").strip().splitlines():
        program, name, *options = shlex.split(command)
        assert program == "ansible-playbook"
        wanted = (*FROM_PACKAGES, "-e", f"nvidia_driver_version={version}")
        runs.append(
            laboratory.playbook(str(play) if name == play.name else name, *options, *wanted)
        )
        if runs[-1].returncode != 0:
            break
    return runs


def allocatable(laboratory):
    return laboratory.objects("node", "gpu-1")["status"]["allocatable"].get("nvidia.com/gpu")


def libraries(gpu):
    """Return the versions of the driver whose libraries the CDI specification has."""
    text = gpu.check_output(f"cat {SPECIFICATION}")
    return set(re.findall(r"/libcuda\.so\.([0-9]+\.[0-9.]+)", text))


def container(gpu, image):
    """Run nvidia-smi in a container that gets its GPU by the CDI specification, as Docker's do."""
    return gpu.run(f"ctr -n k8s.io run --rm --device nvidia.com/gpu=0 {image} cdi nvidia-smi -L")


def holder(laboratory):
    """Return the pod that holds the GPU, when it runs."""
    count = "--for=jsonpath={.status.readyReplicas}=1"
    laboratory.kubectl("wait", "replicaset/holder", count, "--timeout=90s")
    return laboratory.kubectl("get", "pods", "--selector=app=holder", "--output=name").strip()


def test_page_exchanges_the_driver(laboratory, gpu, tmp_path):
    wanted = (*FROM_PACKAGES, "-e", f"nvidia_driver_version={OLD}")
    assert laboratory.playbook("metal.gpu.site", *wanted).returncode == 0
    assert gpu.check_output("cat /sys/module/nvidia/version") == OLD
    assert libraries(gpu) == {OLD}
    gpu.check_output(f"cp {SPECIFICATION} {FORMER}")
    pod_container = HOLDER["spec"]["template"]["spec"]["containers"][0]
    pod_container["image"] = laboratory.facts["images"]["cuda"]
    laboratory.kubectl("apply", "-f", "-", stdin=json.dumps(HOLDER))
    pod = holder(laboratory)
    engine = gpu.check_output("systemctl show -P MainPID containerd")

    # Without the page, the driver stays, and a notice names the other one.
    kept = laboratory.playbook("metal.gpu.site", "--check", *FROM_PACKAGES)
    assert kept.returncode == 0
    assert "DRIVER_KEPT gpu-1: " in kept.words

    runs = exchange(laboratory, tmp_path, NEW)
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert gpu.check_output("cat /sys/module/nvidia/version") == NEW
    assert gpu.package("nvidia-driver-cuda").version == f"{NEW}-1"
    assert "nvidia-driver-cuda" in gpu.check_output("apt-mark showhold")
    assert gpu.check_output("systemctl show -P MainPID containerd") == engine
    assert allocatable(laboratory) == "1"
    assert holder(laboratory) != pod
    assert libraries(gpu) == {NEW}

    again = laboratory.playbook("metal.gpu.site", *FROM_PACKAGES)
    assert "gpu-1" in again.unchanged


@pytest.mark.parametrize(
    ("past", "reason"),
    [
        pytest.param(f"cp {FORMER} {{0}}", f"the libraries are those of driver {OLD}", id="driver"),
        pytest.param(
            "sed -i '/nvidia-uvm$/{{n;s/major: .*/major: 77/}}' {0}",
            "/dev/nvidia-uvm has the major number 77",
            id="number",
        ),
    ],
)
def test_specification_of_the_past_is_written_again(laboratory, gpu, past, reason):
    """Of a former driver, and before the driver was loaded again. The scenario mig has what
    becomes of the GPU.
    """
    image = laboratory.facts["images"]["cuda"]
    right = gpu.check_output(f"cat {SPECIFICATION}")
    gpu.check_output(past.format(SPECIFICATION))
    assert gpu.check_output(f"cat {SPECIFICATION}") != right
    check = laboratory.playbook("metal.gpu.site", "--check", *FROM_PACKAGES)
    assert f"in the CDI specification, {reason}" in check.words
    assert gpu.check_output(f"cat {SPECIFICATION}") != right
    assert laboratory.playbook("metal.gpu.site", *FROM_PACKAGES).returncode == 0
    assert gpu.check_output(f"cat {SPECIFICATION}") == right
    assert "UUID: GPU-" in container(gpu, image).stdout
    laboratory.kubectl("delete", holder(laboratory))
    holder(laboratory)
    assert "gpu-1" in laboratory.playbook("metal.gpu.site", *FROM_PACKAGES).unchanged


@pytest.mark.parametrize(
    ("option", "name"),
    [("DEVICE_NAME_STRATEGIES=type-index", "gpu0"), ("NO_ALL_DEVICE=true", "0")],
)
def test_what_the_admin_sets_for_the_service_stays(laboratory, gpu, option, name):
    options = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
    gpu.check_output(f"cp {options} /root/ && echo NVIDIA_CTK_CDI_GENERATE_{option} >> {options}")
    gpu.check_output("systemctl restart nvidia-cdi-refresh")
    assert f"nvidia.com/gpu={name}" in gpu.check_output("nvidia-ctk --quiet cdi list").split()
    run = laboratory.playbook("metal.gpu.site", *FROM_PACKAGES)
    gpu.check_output(f"mv /root/nvidia-cdi-refresh.env {options}")
    gpu.check_output("systemctl restart nvidia-cdi-refresh")
    assert "gpu-1" in run.unchanged


def test_exchange_that_fails_is_finished_by_the_last_command(laboratory, gpu, tmp_path):
    """The repository does not have the version: the node waits without a driver, and tells it."""
    removed, failed = exchange(laboratory, tmp_path, "580.1.2")
    assert removed.returncode == 0
    assert failed.returncode != 0
    assert "PACKAGE_VERSION_MISSING gpu-1: " in failed.words
    run = laboratory.playbook("metal.gpu.site", *FROM_PACKAGES)
    assert run.returncode == 0
    assert gpu.check_output("cat /sys/module/nvidia/version") == NEW
    assert allocatable(laboratory) == "1"
