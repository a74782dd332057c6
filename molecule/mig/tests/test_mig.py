# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The CDI specification follows the GPU: MIG splits it, it is whole again, and it is another card.

NVIDIA's generator writes the specification, by NVIDIA's service. Nothing tells the service that
instances came or went, so the next run has to.
"""

from __future__ import annotations

import re

import pytest

RUNTIME = ("--tags", "runtime")
SPECIFICATION = "/run/cdi/nvidia.yaml"
PLUGINS = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
KEPT = "/etc/cdi/kept.yaml"
ELSEWHERE = "0000:85:00.0"


@pytest.fixture
def gpu(laboratory):
    return laboratory.host("gpu-1")


@pytest.fixture(scope="module", autouse=True)
def image(laboratory):
    """The kubelet pulls the image of the containers, with its login."""
    image = laboratory.facts["images"]["cuda"]
    options = (f"--image={image}", "--restart=Never", "--command", "--", "sleep", "0")
    laboratory.kubectl("run", "puller", *options)
    laboratory.kubectl("wait", "pod/puller", "--for=jsonpath={.status.phase}=Succeeded")
    laboratory.kubectl("delete", "pod", "puller")
    return image


def names(gpu):
    """Return the devices of the specification, as the toolkit lists them."""
    listed = gpu.check_output("nvidia-ctk --quiet cdi list").split()
    return {name.partition("=")[2] for name in listed if name.startswith("nvidia.com/gpu=")}


def uuids(gpu):
    """Return the UUIDs of the GPU and of its instances, in order."""
    return re.findall(r"UUID: (\S+?)\)", gpu.check_output("nvidia-smi -L"))


def container(gpu, image, device):
    """Return what nvidia-smi lists in a container that gets a device of the specification."""
    run = f"ctr -n k8s.io run --rm --device nvidia.com/gpu={device} {image} cdi nvidia-smi -L"
    return gpu.check_output(run).splitlines()


def mend(laboratory, gpu, reason):
    """Run the role on a specification of the past, and assert that this is why it writes it."""
    before = gpu.check_output(f"cat {SPECIFICATION}")
    run = laboratory.playbook("metal.gpu.site", *RUNTIME)
    assert run.returncode == 0
    assert f"in the CDI specification, {reason}" in run.words
    assert gpu.check_output(f"cat {SPECIFICATION}") != before


def test_gpu_is_split(laboratory, gpu, image):
    (whole,) = uuids(gpu)
    assert names(gpu) == {"all", "0", whole}
    before = gpu.check_output(f"cat {SPECIFICATION}")
    laboratory.lab("fault", "gpu-1", "mig", "0", "1g.5gb", "1g.5gb")
    reason = f"{whole} is whole, but its MIG mode is on"
    check = laboratory.playbook("metal.gpu.site", "--check", *RUNTIME)
    assert f"in the CDI specification, {reason}" in check.words
    assert gpu.check_output(f"cat {SPECIFICATION}") == before
    mend(laboratory, gpu, reason)
    again = laboratory.playbook("metal.gpu.site", *RUNTIME)
    assert "gpu-1" in again.unchanged
    # The plugin counts the parts at its start: its own file is of the past until then.
    assert f"CDI_FILE_OUTDATED gpu-1: in the CDI specification {PLUGINS}, {whole} is" in again.words
    _whole, *parts = uuids(gpu)
    assert len(parts) == 2
    assert names(gpu) == {"all", "0:0", "0:1", *parts}
    for device, part in (("0:0", parts[0]), ("0:1", parts[1]), (parts[1], parts[1])):
        _gpu, line = container(gpu, image, device)
        assert part in line
    assert len(container(gpu, image, "all")) == 3


def test_plugin_that_still_hands_out_the_whole_gpu(laboratory):
    """A pod gets the device file of the GPU and none of its instances, so nothing computes."""
    verify = laboratory.playbook("metal.gpu.verify")
    assert verify.returncode != 0
    assert "COMPUTE_FAILED gpu-1: " in verify.words
    assert "MIG splits the GPU, and the pod got the GPU instead of a MIG instance" in verify.words
    assert "as nvidia.com/mig-PROFILE, with `--mig-strategy=mixed`" in verify.words


def test_same_names_of_other_instances(laboratory, gpu, image):
    """The instances are counted anew: what was 0:0 is 0:1 now."""
    laboratory.lab("fault", "gpu-1", "mig", "0", "1g.5gb", "3g.20gb")
    mend(laboratory, gpu, "0:0 has the device files of another MIG instance")
    _gpu, line = container(gpu, image, "0:0")
    assert "MIG 3g.20gb" in line


def test_instance_is_destroyed(laboratory, gpu):
    laboratory.lab("fault", "gpu-1", "mig", "0", "3g.20gb")
    mend(laboratory, gpu, "0:1 is a MIG instance that the node no longer has")
    _whole, part = uuids(gpu)
    assert names(gpu) == {"all", "0:0", part}


def test_generator_that_runs_before_anything_creates_the_files(laboratory, gpu, image):
    """It leaves them out without an error. NVIDIA's service runs nvidia-smi, which creates them."""
    gpu.check_output("rm --recursive /dev/nvidia-caps")
    gpu.check_output(f"nvidia-ctk cdi generate --output={SPECIFICATION}")
    assert len(container(gpu, image, "0:0")) == 1
    mend(laboratory, gpu, "0:0 lacks the device files of its MIG instance")
    assert len(container(gpu, image, "0:0")) == 2


def test_boot_ends_the_instances(laboratory, gpu):
    """The mode stays, so the generator has nothing to list. The role waits for instances."""
    laboratory.reboot("gpu-1")
    gpu.run("timeout 120 systemctl is-system-running --wait")  # NVIDIA's service has failed
    assert not gpu.file(SPECIFICATION).exists
    run = laboratory.playbook("metal.gpu.site", *RUNTIME)
    assert "gpu-1" in run.unchanged
    assert "CDI_MIG_EMPTY gpu-1: " in run.words
    verify = laboratory.playbook("metal.gpu.verify")
    assert verify.returncode != 0
    assert "MIG_EMPTY gpu-1: " in verify.words

    laboratory.lab("fault", "gpu-1", "mig", "0", "1g.5gb")
    assert laboratory.playbook("metal.gpu.site", *RUNTIME).returncode == 0
    _whole, part = uuids(gpu)
    assert names(gpu) == {"all", "0:0", part}


def test_gpu_is_whole_again(laboratory, gpu, image):
    laboratory.lab("fault", "gpu-1", "mig-off", "0")
    (whole,) = uuids(gpu)
    mend(laboratory, gpu, f"{whole} is in parts (0:0), but its MIG mode is off")
    assert names(gpu) == {"all", "0", whole}
    assert "UUID: GPU-" in container(gpu, image, "0")[0]


def test_another_card_in_another_slot(laboratory, gpu, image):
    """NVIDIA's service writes the specification at boot. That of the former card would be kept if
    somebody put it back, and by a file of the admin.
    """
    (former,) = uuids(gpu)
    gpu.check_output(f"cp {SPECIFICATION} /root/former.yaml")
    laboratory.lab("fault", "gpu-1", "swap-gpu", "0", ELSEWHERE)
    laboratory.reboot("gpu-1")
    gpu.run("timeout 120 systemctl is-system-running --wait")
    (card,) = uuids(gpu)
    assert card != former
    assert ELSEWHERE in gpu.check_output("nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader")
    assert names(gpu) == {"all", "0", card}
    run = laboratory.playbook("metal.gpu.site", *RUNTIME)
    assert "gpu-1" in run.unchanged

    right = gpu.check_output(f"cat {SPECIFICATION}")
    gpu.check_output(f"cp /root/former.yaml {SPECIFICATION}")
    mend(laboratory, gpu, f"{former} is no GPU of this node")
    assert gpu.check_output(f"cat {SPECIFICATION}") == right
    assert card in container(gpu, image, "0")[0]

    gpu.check_output(f"mkdir -p /etc/cdi && mv /root/former.yaml {KEPT}")
    verify = laboratory.playbook("metal.gpu.verify")
    gpu.check_output(f"rm {KEPT}")
    assert verify.returncode == 0
    words = f"the CDI specification {KEPT} names GPUs that the node no longer has: {former}"
    assert f"CDI_GPU_GONE gpu-1: {words}" in verify.words
