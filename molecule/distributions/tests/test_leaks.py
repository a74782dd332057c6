# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who gets a GPU without a request below k3s (gpu-1) and k0s (gpu-2), and a runtime that is gone.

The name of this file makes pytest run it after test_distributions.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import leaks
import missing_runtime
import pytest
from distribution_nodes import K0S_DROP_IN, runtimes

NAMES = {"gpu-1": "k3s", "gpu-2": "k0s"}
HARMLESS = {"nothing", "refused", "by design"}
# Of containerd 2, as tests/recorded/symptoms.yml has them.
# The output of Ansible can have a backslash before each quote.
WORDS = r'no runtime for \\*"nvidia\\*" is configured'


@pytest.fixture(scope="module", autouse=True)
def nodes_as_set_up(laboratory: Any) -> None:
    """In test_distributions.py, runs ended in the middle, and pods have the GPUs."""
    leaks.site(laboratory)
    # One attempt requests a GPU.
    pods = [f"cuda-{node}" for node in NAMES]
    laboratory.kubectl("delete", "pod", *pods, "--ignore-not-found", "--now")


def compare(laboratory: Any, found: dict[str, dict[str, str]], setting: str) -> None:
    """Compare the results of both nodes with their rows of docs/isolation.md, or record them."""
    cases = {node: f"{name}{setting}" for node, name in NAMES.items()}
    leaks.compare_nodes(laboratory, found, cases, dict.fromkeys(NAMES, "containerd "))


def test_no_container_gets_a_gpu_that_it_did_not_request(laboratory):
    run, found = leaks.run(laboratory)
    assert run.returncode == 0
    for attempts in found.values():
        assert {*attempts.values()} <= HARMLESS
    compare(laboratory, found, "")


@pytest.fixture
def accepted(laboratory: Any) -> Iterator[None]:
    leaks.site(laboratory, nvidia_container_runtime_envvar="accept")
    yield
    leaks.site(laboratory)


def test_with_the_toolkits_own_settings_the_runtime_class_is_a_way_around(laboratory, accepted):
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    for attempts in found.values():
        assert leaks.leaked(attempts) == {"runtime_class"}
    compare(laboratory, found, ", toolkit's own settings")


@pytest.fixture
def gone(laboratory: Any) -> Iterator[str]:
    """Somebody deletes the drop-in, and k0s starts its containerd again without it; yield it."""
    host = laboratory.host("gpu-2")
    drop_in = host.file(K0S_DROP_IN).content_string
    engine = host.check_output("pgrep --full '^/var/lib/k0s/bin/containerd '")
    host.check_output("rm %s && timeout 60 tail --pid=%s -f /dev/null", K0S_DROP_IN, engine)
    yield str(drop_in)
    # The test puts it back by the remedy. If it fails before, the tests after it need it.
    if not host.file(K0S_DROP_IN).exists:
        leaks.site(laboratory, "--limit=gpu-2")


def test_runtime_that_is_gone_is_named_with_its_remedy(laboratory, gone):
    assert "nvidia" not in runtimes(laboratory, "gpu-2")
    missing_runtime.assert_named_and_mended(laboratory, "gpu-2", WORDS)
    assert laboratory.host("gpu-2").file(K0S_DROP_IN).content_string == gone


@pytest.fixture(scope="module")
def default_runtime(laboratory: Any) -> Iterator[None]:
    leaks.site(laboratory, nvidia_container_runtime_default=True, device_plugin_guard="enforce")
    yield
    leaks.site(laboratory, nvidia_container_runtime_default=False, device_plugin_guard="none")


def test_guard_closes_what_the_default_runtime_opens(laboratory, default_runtime):
    run, found = leaks.run(laboratory)
    assert run.returncode == 0
    for attempts in found.values():
        assert {*attempts.values()} <= HARMLESS
        assert attempts["pod_variable"] == "refused"
    compare(laboratory, found, ", default runtime nvidia, guard")


def test_without_the_guard_images_get_gpus(laboratory, default_runtime):
    default = {"nvidia_container_runtime_default": True}
    leaks.site(laboratory, **default, device_plugin_guard="none")
    run, found = leaks.run(laboratory)
    assert run.returncode != 0
    for node, attempts in found.items():
        assert leaks.leaked(attempts) >= leaks.BY_IMAGE | {"pod_variable"}
        assert f"GPU_LEAKED {node}: containers that request no GPU see GPUs" in run.words
    compare(laboratory, found, ", default runtime nvidia, no guard")
