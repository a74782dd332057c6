# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a program of an image says about the image, on a Docker host.

An error of CUDA alone does not say that the driver is too old: a program that finds no driver says
it, too. So the version of CUDA that the image is for counts as well.

Source: tests/recorded/cuda_errors.yml
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ansible_collections.metal.gpu.plugins.module_utils.cluster.docker_proof import Proof
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import cuda_errors, image_needs
from ansible_collections.metal.gpu.plugins.module_utils.verdict.rows import SmokeRow

# Of Docker, with the words of NVIDIA's hook that compares the image with the driver.
UNFIT = "requirement error"
_WORDS = "nothing about its GPUs: "  # of COMPUTE_IMAGE_UNFIT, before those of the program
# Errors of CUDA that say that the driver is too old, and nothing about the GPU.
_OLD_DRIVER, _PTX = (35, 36, 222), 222
_COMPAT = 804


class Run(NamedTuple):
    """An image on a host."""

    host: str
    node: Node
    image: str
    fits_driver: bool | None  # the driver supports the CUDA that it is for; None: unknown


def refused(run: Run, words: str) -> dict[str, str]:
    """Return why NVIDIA's hook did not start it. `words` are those of Docker."""
    return _needs_driver(run, f"more than NVIDIA's runtime finds on this host ({words})")


def judge(run: Run, one: Mapping[str, str]) -> dict[str, str]:
    """Return COMPUTE_IMAGE_UNFIT in the words of a host: the driver does not fit, or the GPU."""
    words = one["message"].rpartition(_WORDS)[2]
    known = cuda_errors.recognise(words)
    if known is not None and known.number == _COMPAT:
        need = f"GPUs that its cuda-compat supports, or a newer driver ({words})"
        return _needs_driver(run, need, "an image without cuda-compat")
    if known is None or known.number not in _OLD_DRIVER:
        return finding("IMAGE_NEEDS_GPU", run.host, image=run.image, need=words)
    if known.number == _PTX and run.fits_driver:
        # No other reason is known, so a program in it has another version than the image names.
        need = f"a newer driver than the version of CUDA that it names ({words})"
        older = image_needs.older(run.node["health"]["cuda_version"])
        return _needs_driver(run, need, f"programs for {older} in the image")
    return _needs_driver(run, f"a newer driver ({words})")


def _needs_driver(run: Run, need: str, instead: str = "") -> dict[str, str]:
    cuda = run.node["health"]["cuda_version"]
    evidence = {
        "need": need,
        "driver": run.node["nvml"]["driver_version"] or "an unknown version",
        "cuda": cuda or "an unknown version",
        "instead": instead or f"an image for {image_needs.older(cuda)}",
    }
    return finding("IMAGE_NEEDS_DRIVER", run.host, image=run.image, **evidence)


def smoke(run: Run, proof: Proof) -> SmokeRow:
    """Return the results as those of a pod, of which everything is known about errors of CUDA."""
    return {
        "state": "failed",
        "reason": "",
        "message": proof.trouble,
        "uuids": [one.uuid for one in proof.results],
        "gpus": len(proof.results),
        "holders": [],
        "events": [],
        "pod": "",
        "namespace": "",
        "level": "compute",
        "image": run.image,
        "results": [{"uuid": one.uuid, "ok": one.ok, "error": one.error} for one in proof.results],
        "without_pod": True,
        "fits_driver": run.fits_driver is True,
    }
