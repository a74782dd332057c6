# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""`metal-gpu explain` on what the programs of real nodes print."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any


def _codes(metal_gpu: Any, text: str) -> list[str]:
    done = metal_gpu("explain", "--json", "-", stdin=text)
    found = json.loads(done.out)["explanations"]
    return [one["code"] for each in found for one in each["candidates"]]


def _await_event(laboratory: Any, selector: str) -> None:
    kubectl = laboratory.facts["kubectl"]
    watch = [kubectl["program"], "get", "events", "--watch", "--no-headers"]
    with subprocess.Popen(
        [*watch, f"--field-selector={selector}", "--request-timeout=60s"],
        env={**os.environ, **kubectl["environment"]},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout
        found = process.stdout.readline()
        process.terminate()
    assert found, f"no event {selector}"


def test_the_words_of_the_kubelet_and_the_engine(laboratory: Any, metal_gpu: Any) -> None:
    """A pod asks for a runtime that the engine of a bare node does not have."""
    manifests = [
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": "explained"},
            "handler": "nvidia",
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "explained", "namespace": "default"},
            "spec": {
                "nodeName": "gpu-1",
                "runtimeClassName": "explained",
                "containers": [{"name": "c", "image": "none.invalid/none:1"}],
            },
        },
    ]
    text = "\n---\n".join(map(json.dumps, manifests))
    laboratory.kubectl("apply", "-f", "-", stdin=text)
    try:
        _await_event(laboratory, "involvedObject.name=explained,reason=FailedCreatePodSandBox")
        described = laboratory.kubectl("describe", "pod", "explained")
    finally:
        laboratory.kubectl("delete", "-f", "-", "--grace-period=0", "--force", stdin=text)
    assert _codes(metal_gpu, described)[0] == "RUNTIME_HANDLER_MISSING"


def test_the_words_of_modprobe(laboratory: Any, metal_gpu: Any) -> None:
    printed = laboratory.host("gpu-1").run("modprobe no-such-module-nvidia")
    text = printed.stderr.replace("no-such-module-nvidia", "nvidia")
    assert "KERNEL_HEADERS_GONE" in _codes(metal_gpu, text)


def test_a_code_and_a_text_that_nobody_knows(metal_gpu: Any) -> None:
    known = metal_gpu("explain", "XID_79")
    assert known.code == 0
    assert "GPU off the bus" in known.out
    unknown = metal_gpu("explain", "the coffee is cold")
    assert (unknown.code, unknown.out) == (1, "")
    assert "as an issue of metal.gpu" in unknown.err
