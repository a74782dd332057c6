# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two unlike hosts from bare to the table, and images that do not run on one of them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import registries
from docker_table import cells, rows
from scenes import ADMINS_SERVICE

PLAYBOOK = "metal.gpu.docker_hosts"
PROOF = (PLAYBOOK, "--tags=verify")
IMAGE = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
CUDA = "nvcr.io/nvidia/cuda:13.0.2-base-ubuntu24.04"
# The driver of each host, and the CUDA that it has.
DRIVERS = {"gpu-1": ("580.178.04", "13.0"), "gpu-2": ("595.71.05", "13.2")}
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
# The observation, the two scripts, and the NFS servers if there are mounts.
OPERATIONS_ALLOWED = 3


def test_second_run_changes_nothing_and_shows_the_table(laboratory):
    run = laboratory.playbook(PLAYBOOK, "-vvv")
    for node, count in laboratory.unchanged_within(run, OPERATIONS_ALLOWED).items():
        print(f"\n{node}: {count} remote operations, {OPERATIONS_ALLOWED} allowed", end=" ")
    docker = "docker version --format '{{.Server.Version}}'"
    digest = laboratory.facts["registry"]["digests"][IMAGE]
    for node in ("gpu-1", "gpu-2"):
        version = laboratory.host(node).check_output(docker).partition("+")[0]
        expected = [*DRIVERS[node], version, digest[:19], "4/4", "ok"]
        assert cells(run)[node] == expected


def test_check_announced_what_converge_did(check_and_converge):
    check, converge = check_and_converge
    assert check.announced
    assert check.announced == converge.announced
    assert check.announced <= converge.ran


def test_docker_of_the_admin_stays(laboratory):
    host = laboratory.host("gpu-1")
    engine = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert engine["ServerVersion"].startswith("20.10.")
    assert engine["DefaultRuntime"] == "runc"
    assert engine["DockerRootDir"] == "/srv/docker"
    state = host.check_output("docker inspect --format '{{.State.Status}}' " + ADMINS_SERVICE)
    assert state == "running"


def test_virgin_host_has_dockers_own_packages(laboratory):
    found = laboratory.host("gpu-2").check_output("docker version --format '{{.Server.Version}}'")
    assert found == laboratory.facts["versions"]["docker"]


def test_nothing_of_the_proof_is_left(laboratory, node):
    listed = laboratory.host(node).check_output("docker ps --all --format '{{.Names}}'").split()
    assert [name for name in listed if name.startswith("metal-gpu")] == []


def test_program_of_the_image_runs_on_each_gpu(laboratory):
    command = json.dumps({"verify_docker_image": CUDA, "verify_docker_command": ["nvidia-smi"]})
    run = laboratory.playbook(*PROOF, f"--extra-vars={command}")
    assert run.returncode == 0
    assert rows(run) == {"gpu-1": ["4/4", "ok"], "gpu-2": ["4/4", "ok"]}


@contextmanager
def image_that_needs(laboratory: Any, cuda: str) -> Iterator[str]:
    """Give both hosts the same image for the drivers of a CUDA."""
    name, requirement = "needy:1", f"ENV NVIDIA_REQUIRE_CUDA=cuda>={cuda}"
    host = laboratory.host("gpu-1")
    host.check_output("docker create --name needy %s", IMAGE)
    host.check_output("docker commit --change %s needy %s", requirement, name)
    host.check_output("docker rm needy")
    save, load = (
        shlex.join([*laboratory.facts["nodes"][node]["ssh"], "sudo", "docker", *words])
        for node, words in (("gpu-1", ["save", name]), ("gpu-2", ["load"]))
    )
    subprocess.run(["bash", "-o", "pipefail", "-c", f"{save} | {load}"], check=True)
    try:
        yield name
    finally:
        for node in DRIVERS:
            laboratory.host(node).check_output("docker rmi %s", name)


def test_hosts_whose_drivers_are_too_old_are_named_and_start_nothing(laboratory):
    with image_that_needs(laboratory, "99.0") as image:
        run = laboratory.playbook(*PROOF, f"--extra-vars=verify_docker_image={image}")
    assert run.returncode != 0
    for node in DRIVERS:
        assert rows(run)[node] == ["-", "IMAGE_NEEDS_DRIVER"]
        assert re.search(rf"IMAGE_NEEDS_DRIVER {node}: .*CUDA 99.0", run.words)


@pytest.fixture
def newer_image(laboratory: Any) -> Iterator[str]:
    """Both hosts have an image for CUDA 13.1. The driver of gpu-1 is for CUDA 13.0."""
    with image_that_needs(laboratory, "13.1") as image:
        yield image


def test_image_for_a_newer_minor_version_runs_and_its_limits_are_named(laboratory, newer_image):
    """The toolkit of gpu-1 gives GPUs by CDI, which compares nothing."""
    run = laboratory.playbook(*PROOF, f"--extra-vars=verify_docker_image={newer_image}")
    assert run.returncode == 0
    assert rows(run) == {"gpu-1": ["4/4", "ok"], "gpu-2": ["4/4", "ok"]}
    before, _task, after = run.output.partition("Compute on every GPU")
    for words in (before, after):
        assert "IMAGE_CUDA_NEWER gpu-1" in words
        assert "IMAGE_CUDA_NEWER gpu-2" not in words
    limits = "is for CUDA 13.1, and driver 580.178.04 supports CUDA 13.0"
    assert re.search(rf"IMAGE_CUDA_NEWER gpu-1: [^:]*:1 {limits}", run.words)


@pytest.fixture
def legacy_mode(laboratory: Any) -> Iterator[None]:
    """The admin of gpu-1 has chosen the mode of the toolkit in which its hook compares versions."""
    host, good = laboratory.host("gpu-1"), "/root/good"
    host.check_output("cp --preserve %s %s", TOOLKIT, good)
    host.check_output("""sed -i 's/^ *mode = .*/mode = "legacy"/' %s""", TOOLKIT)
    assert 'mode = "legacy"' in host.file(TOOLKIT).content_string
    yield
    host.check_output("mv %s %s", good, TOOLKIT)


def test_image_that_the_hook_would_refuse_is_named_and_starts_nothing(
    laboratory, newer_image, legacy_mode
):
    run = laboratory.playbook(*PROOF, f"--extra-vars=verify_docker_image={newer_image}")
    assert run.returncode != 0
    assert rows(run)["gpu-2"] == ["4/4", "ok"]
    assert "IMAGE_NEEDS_DRIVER" in rows(run)["gpu-1"][-1]
    assert rows(run)["gpu-1"][0] == "-"
    assert re.search(r"IMAGE_NEEDS_DRIVER gpu-1: .*`cuda>=13.1`, which NVIDIA's", run.words)


def test_gpus_without_code_are_named(laboratory):
    wanted = json.dumps({"verify_docker_capabilities": ["7.5"]})
    run = laboratory.playbook(*PROOF, f"--extra-vars={wanted}")
    assert run.returncode != 0
    assert rows(run) == {"gpu-1": ["-", "IMAGE_NEEDS_GPU"], "gpu-2": ["4/4", "ok"]}
    assert re.search(r"IMAGE_NEEDS_GPU gpu-1: .*it has code for 7.5, and .* has 6.0", run.words)


def test_image_that_nobody_has(laboratory):
    run = laboratory.playbook(*PROOF, "--extra-vars=verify_docker_image=nobody/has:this")
    assert run.returncode != 0
    assert {*rows(run)["gpu-2"]} == {"-", "IMAGE_UNPULLABLE"}
    # The Docker of gpu-1 takes no certificates for docker.io itself, and asks there if the mirror
    # does not have the image. In the laboratory, that is the same registry.
    assert {*rows(run)["gpu-1"]} == {"-", "REGISTRY_UNTRUSTED"}
    assert re.search(r"IMAGE_UNPULLABLE gpu-2: .*docker.io/nobody/has:this: not found", run.words)


def test_tag_that_cannot_be_pulled_again(laboratory):
    laboratory.lab("fault", "registry", "missing-image", IMAGE)
    try:
        run = laboratory.playbook(*PROOF)
    finally:
        laboratory.lab("fault", "registry", "restore")
    assert run.returncode == 0
    assert rows(run) == {"gpu-1": ["4/4", "ok"], "gpu-2": ["4/4", "ok"]}
    for node, words in (("gpu-1", "manifest unknown"), ("gpu-2", "not found")):
        assert re.search(rf"IMAGE_NOT_PULLED {node}: [^:]*{IMAGE}.*sha256:.*{words}", run.words)


@pytest.fixture
def no_image(laboratory: Any) -> None:
    """No host has the image, so the next run pulls it."""
    for node in ("gpu-1", "gpu-2"):
        host = laboratory.host(node)
        found = host.check_output("docker images --quiet --no-trunc %s", IMAGE.partition(":")[0])
        for image in {*found.split()}:
            host.check_output("docker rmi --force %s", image)


@pytest.mark.parametrize(
    ("fault", "codes", "words"),
    [
        # Docker 20.10 says the same with a wrong login and without one.
        (
            "wrong-password",
            ["REGISTRY_LOGIN_MISSING", "REGISTRY_LOGIN_REFUSED"],
            ["unauthorized", "401 Unauthorized"],
        ),
        ("missing-image", ["IMAGE_UNPULLABLE"] * 2, ["manifest unknown", "not found"]),
        (
            "foreign-image",
            ["IMAGE_PLATFORM_MISSING"] * 2,
            ["no matching manifest for linux/amd64", "no match for platform"],
        ),
        (
            "corrupt-image",
            ["IMAGE_DIGEST_DIFFERS"] * 2,
            ["filesystem layer verification failed", "expected commit digest"],
        ),
    ],
)
def test_image_that_the_registry_does_not_give(laboratory, no_image, fault, codes, words):
    """The words are those of Docker 20.10 and of Docker 29."""
    image = [IMAGE] if fault.endswith("-image") else []
    laboratory.lab("fault", "registry", fault, *image)
    try:
        run = laboratory.playbook(*PROOF)
    finally:
        laboratory.lab("fault", "registry", "restore")
    assert run.returncode != 0
    for node, code, text in zip(("gpu-1", "gpu-2"), codes, words, strict=True):
        assert rows(run)[node] == ["-", code]
        assert re.search(rf"{code} {node}: [^:]*{IMAGE}.*{text}", run.words)


def test_login_that_nobody_gave(laboratory, no_image, tmp_path):
    """The role names it and continues. Docker then says it, too."""
    inventory = registries.without_login(laboratory, tmp_path / "inventory.yml")
    try:
        run = laboratory.playbook(PLAYBOOK, "--tags=registries,verify", inventory=inventory)
    finally:
        assert laboratory.playbook(PLAYBOOK, "--tags=registries").returncode == 0
    assert run.returncode != 0
    for node in ("gpu-1", "gpu-2"):
        assert rows(run)[node] == ["-", "REGISTRY_LOGIN_MISSING"]
        assert re.search(rf"REGISTRY_LOGIN_MISSING {node}: https://\S+ ", run.words)
        assert re.search(rf"REGISTRY_LOGIN_MISSING {node}: [^:]*{IMAGE}", run.words)


def test_registry_that_wants_a_certificate(laboratory, no_image, tmp_path):
    inventory = registries.with_certificate(laboratory, tmp_path / "inventory.yml")
    laboratory.lab("fault", "registry", "client-certificate")
    try:
        refused = laboratory.playbook(*PROOF)
        run = laboratory.playbook(PLAYBOOK, "--tags=registries,verify", inventory=inventory)
    finally:
        laboratory.lab("fault", "registry", "restore")
        assert laboratory.playbook(PLAYBOOK, "--tags=registries").returncode == 0
    for node in ("gpu-1", "gpu-2"):
        assert rows(refused)[node] == ["-", "REGISTRY_LOGIN_REFUSED"]
    assert run.returncode == 0
    assert rows(run) == {"gpu-1": ["4/4", "ok"], "gpu-2": ["4/4", "ok"]}


def test_image_by_digest_is_pulled_once(laboratory, no_image):
    registry = laboratory.facts["registry"]
    image = f"{IMAGE.partition(':')[0]}@{registry['digests'][IMAGE]}"
    log = Path(registry["log"])
    requests = []
    for _run in range(2):
        before = len(log.read_text())
        run = laboratory.playbook(*PROOF, f"--extra-vars=verify_docker_image={image}")
        assert run.returncode == 0
        assert rows(run) == {"gpu-1": ["4/4", "ok"], "gpu-2": ["4/4", "ok"]}
        requests.append(log.read_text()[before:])
    for address in laboratory.addresses.values():
        assert re.search(rf'authorized request" .*"{address}:.*cuda-sample/blobs', requests[0])
        assert f'"{address}:' not in requests[1]


def test_gpu_that_is_lost_is_named_beside_the_image(laboratory):
    laboratory.lab("fault", "gpu-2", "gpu-lost", "1")
    try:
        run = laboratory.playbook(*PROOF, "--limit=gpu-2")
    finally:
        laboratory.lab("fault", "gpu-2", "restore")
    assert run.returncode != 0
    assert "GPU_FAULTY gpu-2" in run.words


def test_nfs_server_that_is_not_there_stops_only_this_host(laboratory):
    mount = {"server": laboratory.facts["gateway"], "export": "/srv", "path": "/srv/nfs"}
    wanted = json.dumps({"nfs_mounts_mounts": [mount]})
    run = laboratory.playbook(PLAYBOOK, f"--extra-vars={wanted}", "--limit=gpu-2")
    assert run.returncode != 0
    assert "NFS_SERVER_SILENT gpu-2" in run.words
    assert laboratory.host("gpu-2").run("ls /etc/systemd/system/srv-nfs.mount").rc != 0
