# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The scripts run here in a shell, with programs that answer as Docker and nvidia-smi do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.cluster import docker_proof

UUIDS = [f"GPU-0000000{number}-0000-0000-0000-000000000000" for number in range(2)]
BY_TAG, BY_DIGEST = "registry.example/app:1", f"registry.example/app@sha256:{'a' * 64}"
REFUSED = "docker: Error response from daemon: nvidia-container-cli: requirement error"

# `docker image inspect` prints what the template names; the container is a shell on this machine.
DOCKER = """\
echo "$*" >>FOLDER/calls
case "$*" in
  *.Id*) [ ! -e FOLDER/image ] || echo sha256:4 ;;
  *.Architecture*) echo amd64 ;;
  *.RepoDigests*) echo '["registry.example/app@sha256:abc"]' ;;
  *.RootFS.Layers*) echo '["sha256:1", "sha256:2"]' ;;
  *.Config.Env*) printf 'PATH=/bin\\nTOKEN=secret\\nCUDA_VERSION=12.8.1\\n' ;;
  "image inspect"*) [ -e FOLDER/image ] ;;
  pull*) [ ! -e FOLDER/slow ] || exec sleep 60
    [ ! -e FOLDER/no-pull ] || { echo 'Error response from daemon: denied'; exit 1; }
    touch FOLDER/image ;;
  rm*) rm FOLDER/left 2>/dev/null || {
    echo 'Error response from daemon: No such container'; exit 1; } ;;
  run*) if [ -e FOLDER/left ]; then echo 'Conflict. The name is already in use' >&2; exit 125; fi
    [ ! -e FOLDER/endless ] || exec sleep 60
    if [ -e FOLDER/deaf ]; then touch FOLDER/left; kill -KILL $$; fi
    if [ -e FOLDER/refused ]; then echo 'REFUSED' >&2; exit 125; fi
    while [ "$1" != --entrypoint ]; do shift; done
    program=$2; shift 3
    exec "$program" "$@" ;;
esac
"""
SMI = """\
[ ! -e FOLDER/hangs ] || exec sleep 60
case "$*" in
  -L) printf 'GPU 0: Tesla T4 (UUID: %s)\\nGPU 1: Tesla T4 (UUID: %s)\\n' UUIDS ;;
  *compute_cap*) printf '%s, 7.5\\n%s, 7.5\\n' UUIDS ;;
  *compute-apps*) printf '%s, 4711, /opt/bin/python3 train.py --token secret\\n' UUIDS
    printf '%s, 815, [Not Found]\\n' UUIDS ;;
  *uuid*) printf '%s\\n%s\\n' UUIDS ;;
  -q) printf '    Product Brand                         : Tesla\\n' ;;
  *) echo '| NVIDIA-SMI 580.178.04     Driver Version: 580.178.04     CUDA Version: 13.0     |' ;;
esac
"""


@pytest.fixture
def host(tmp_path: Path) -> Callable[[str], str]:
    programs = {
        "docker": DOCKER.replace("FOLDER", str(tmp_path)).replace("REFUSED", REFUSED),
        "nvidia-smi": SMI.replace("UUIDS", " ".join(UUIDS)).replace("FOLDER", str(tmp_path)),
        "vectorAdd": '[ "$CUDA_VISIBLE_DEVICES" != BAD ] && echo "Test PASSED"\n',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / name).chmod(0o755)

    def run(script: str) -> str:
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(
            ["sh", "-c", script], check=False, capture_output=True, text=True, env=environment
        ).stdout

    return run


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


def test_image_is_pulled_and_described(host, tmp_path) -> None:
    pulled = docker_proof.parse_pulled(BY_TAG, host(docker_proof.pull_script(BY_TAG)))
    assert pulled.image is not None
    assert pulled.image.architecture == "amd64"
    assert pulled.image.digests == ("registry.example/app@sha256:abc",)
    assert pulled.image.layers == ("sha256:1", "sha256:2")
    assert pulled.failure == ""
    assert pulled.capabilities == dict.fromkeys(UUIDS, "7.5")
    assert (pulled.brand, pulled.way) == ("Tesla", "gpus")
    assert pulled.users == {uuid: ["python3, process 4711", "process 815"] for uuid in UUIDS}
    output = host(docker_proof.pull_script(BY_TAG, way=docker_proof.RUNTIME))
    assert docker_proof.parse_pulled(BY_TAG, output).way == "runtime"


def test_programs_that_use_gpus_are_listed_as_recorded() -> None:
    record = Path(__file__).parents[4] / "recorded" / "image_needs.yml"
    facts = yaml.safe_load(record.read_text())["users"]
    assert facts["query"]["value"] in docker_proof.pull_script(BY_TAG)
    for line in facts["lines"]["value"]:
        gpu, name = line.split(", ")
        pulled = docker_proof.parse_pulled(BY_TAG, f"== users\n{gpu}, 4711, {name}\n== end\n")
        assert pulled.users == {gpu: [f"{name}, process 4711"]}


def test_secrets_of_an_image_stay_on_the_host(host) -> None:
    output = host(docker_proof.pull_script(BY_TAG))
    assert "CUDA_VERSION=12.8.1" in output
    assert "secret" not in output


def test_script_has_nothing_that_ansible_takes_for_a_template() -> None:
    scripts = (docker_proof.pull_script(BY_TAG), docker_proof.run_script(BY_TAG, ["a", "b"]))
    assert not any("{{" in script or "{%" in script for script in scripts)


@pytest.mark.parametrize(("name", "times"), [(BY_TAG, 2), (BY_DIGEST, 1)])
def test_only_a_digest_is_not_pulled_again(host, tmp_path, name: str, times: int) -> None:
    outputs = [host(docker_proof.pull_script(name)) for _run in range(2)]
    assert all(docker_proof.parse_pulled(name, output).image for output in outputs)
    assert ["== pulled\n" in output for output in outputs] == [True, False]
    assert sum(call.startswith("pull") for call in calls(tmp_path)) == times


@pytest.mark.parametrize("is_there", [False, True])
def test_check_mode_pulls_nothing(host, tmp_path, is_there: bool) -> None:
    if is_there:
        (tmp_path / "image").touch()
    output = host(docker_proof.pull_script(BY_TAG, False))
    pulled = docker_proof.parse_pulled(BY_TAG, output)
    assert (pulled.image is not None, pulled.failure) == (is_there, "")
    assert pulled.capabilities == dict.fromkeys(UUIDS, "7.5")
    assert not any(call.startswith("pull") for call in calls(tmp_path))


def test_image_that_cannot_be_pulled(host, tmp_path) -> None:
    (tmp_path / "no-pull").touch()
    pulled = docker_proof.parse_pulled(BY_TAG, host(docker_proof.pull_script(BY_TAG)))
    assert pulled.image is None
    assert pulled.failure == "Error response from daemon: denied"


@pytest.mark.parametrize("is_there", [False, True])
def test_pull_that_does_not_end(host, tmp_path, is_there: bool) -> None:
    (tmp_path / "slow").touch()
    if is_there:
        (tmp_path / "image").touch()
    output = host(docker_proof.pull_script(BY_TAG, pull_limit_s=1))
    pulled = docker_proof.parse_pulled(BY_TAG, output)
    assert (pulled.image is not None) == is_there
    assert pulled.failure == "docker pull was stopped after 1 s"


def test_driver_that_does_not_answer(host, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(docker_proof, "QUERY_S", 0.2)
    (tmp_path / "hangs").touch()
    pulled = docker_proof.parse_pulled(BY_TAG, host(docker_proof.pull_script(BY_TAG)))
    assert (pulled.image is not None, pulled.capabilities, pulled.users) == (True, {}, {})
    output = host(docker_proof.run_script(BY_TAG, ["true"]))
    assert docker_proof.parse_run(output, has_command=True).error


def test_image_of_a_tag_that_was_loaded_from_a_file(host, tmp_path) -> None:
    (tmp_path / "no-pull").touch()
    (tmp_path / "image").touch()
    pulled = docker_proof.parse_pulled(BY_TAG, host(docker_proof.pull_script(BY_TAG)))
    assert pulled.image is not None
    assert pulled.failure


@pytest.mark.parametrize("output", ["", "sh: 1: docker: not found\n"])
def test_no_docker(output: str) -> None:
    assert docker_proof.parse_pulled(BY_TAG, output).failure


def test_program_of_the_image_computes_on_every_gpu(host, tmp_path) -> None:
    proof = docker_proof.parse_run(host(docker_proof.run_script(BY_TAG)))
    assert [(one.uuid, one.ok) for one in proof.results] == [(uuid, True) for uuid in UUIDS]
    assert (proof.driver, proof.cuda) == ("580.178.04", "13.0")
    assert (proof.trouble, proof.error) == ("", "")
    run, *_lines, remove = calls(tmp_path)
    assert "--gpus all" in run
    assert run.split()[3] == remove.split()[2]  # its name


@pytest.mark.parametrize("command", [(), ("true",)])
def test_runtime_in_place_of_the_option(host, tmp_path, command) -> None:
    way = docker_proof.RUNTIME
    output = host(docker_proof.run_script(BY_TAG, command, way=way))
    assert len(docker_proof.parse_run(output, has_command=bool(command)).results) == len(UUIDS)
    runs = [call for call in calls(tmp_path) if call.startswith("run --rm")]
    for run, gpu in zip(runs, UUIDS if command else ["all"], strict=True):
        assert f"--runtime nvidia --env NVIDIA_VISIBLE_DEVICES={gpu} " in run


def test_gpu_on_which_the_program_fails(host, tmp_path) -> None:
    program = '#!/bin/sh\ncase $CUDA_VISIBLE_DEVICES in *1-*) echo "wrong words"; exit 1 ;; esac\n'
    (tmp_path / "vectorAdd").write_text(f'{program}echo "Test PASSED"\n')
    proof = docker_proof.parse_run(host(docker_proof.run_script(BY_TAG)))
    assert [one.ok for one in proof.results] == [True, False]
    assert proof.results[1].error == "wrong words"


def test_image_without_the_program(host, tmp_path) -> None:
    (tmp_path / "vectorAdd").unlink()
    proof = docker_proof.parse_run(host(docker_proof.run_script(BY_TAG)))
    assert proof.error == "the image has no shell, or no vectorAdd"


@pytest.mark.parametrize("command", [(), ("python3", "-c", "print()")])
def test_docker_that_refuses(host, tmp_path, command) -> None:
    (tmp_path / "refused").touch()
    output = host(docker_proof.run_script(BY_TAG, command))
    proof = docker_proof.parse_run(output, has_command=bool(command))
    assert proof.error == REFUSED
    assert proof.results == ()


@pytest.mark.parametrize(
    ("command", "ok", "error"),
    [
        (("sh", "-c", "echo fine"), True, ""),
        (("sh", "-c", "echo it is not there >&2; exit 3"), False, "it is not there"),
        (("sh", "-c", "echo out; exit 3"), False, "out"),
        (("sh", "-c", "exit 3"), False, "it exited with code 3"),
    ],
)
def test_command_of_the_admin_runs_once_for_each_gpu(host, tmp_path, command, ok, error) -> None:
    output = host(docker_proof.run_script(BY_TAG, command))
    proof = docker_proof.parse_run(output, has_command=True)
    assert proof.error == ""
    assert [one._asdict() for one in proof.results] == [
        {"uuid": uuid, "ok": ok, "error": error} for uuid in UUIDS
    ]
    runs = [call for call in calls(tmp_path) if call.startswith("run")]
    assert all(f"--gpus device={uuid}" in run for uuid, run in zip(UUIDS, runs, strict=True))


def test_program_that_does_not_end(host) -> None:
    output = host(docker_proof.run_script(BY_TAG, ("sleep", "60"), limit_s=1))
    found = docker_proof.parse_run(output, has_command=True).results
    assert {one.error for one in found} == {"the program was stopped after 1 s (exit code 124)"}


def test_container_that_does_not_end(host, tmp_path) -> None:
    (tmp_path / "endless").touch()
    proof = docker_proof.parse_run(host(docker_proof.run_script(BY_TAG, limit_s=1)))
    assert (proof.results, proof.error) == ((), "it was stopped after 1 s (exit code 124)")


def test_program_that_ignores_its_end_spares_the_next_gpu(host, tmp_path) -> None:
    """The container outlives the client of Docker, with its name."""
    (tmp_path / "deaf").touch()
    proof = docker_proof.parse_run(host(docker_proof.run_script(BY_TAG, ["x"])), has_command=True)
    words = "the program was stopped after 300 s or by the kernel (exit code 137)"
    assert [(one.uuid, one.error) for one in proof.results] == [(uuid, words) for uuid in UUIDS]
    assert proof.trouble == ""
    assert not (tmp_path / "left").exists()


@pytest.mark.parametrize("output", ["", "versions 1 2\n"])
def test_script_that_is_cut(output: str) -> None:
    for has_command in (False, True):
        assert docker_proof.parse_run(output, has_command=has_command).error
