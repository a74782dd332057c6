# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the same image run on every Docker host, and compute on every GPU? No function does I/O.

Hosts on which it cannot run are named before a container is started. At the end, a table has every
host with its GPUs, its driver, its version of CUDA, its Docker, and the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from posixpath import basename
from typing import Any, NamedTuple, cast

from ansible_collections.metal.gpu.plugins.module_utils.cluster import pull_causes
from ansible_collections.metal.gpu.plugins.module_utils.cluster.causes import quote
from ansible_collections.metal.gpu.plugins.module_utils.cluster.docker_proof import (
    Proof,
    Pulled,
    parse_pulled,
    parse_run,
)
from ansible_collections.metal.gpu.plugins.module_utils.findings import finding, is_sound
from ansible_collections.metal.gpu.plugins.module_utils.observed.node import Node
from ansible_collections.metal.gpu.plugins.module_utils.read import (
    cdi,
    docker,
    gpu_models,
    image_needs,
    image_runtime,
)
from ansible_collections.metal.gpu.plugins.module_utils.read.image_needs import Gpu, Image, Machine
from ansible_collections.metal.gpu.plugins.module_utils.verdict import compute
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import (
    container_gpus,
    fleet,
    image_faults,
)
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import aligned, word

HEADINGS = ("host", "GPU", "driver", "CUDA", "Docker", "image", "computed", "result")
_NUMBERS = (6,)
_DIGEST = 19  # sha256: and 12 digits, as Docker shortens it
_ALL = "all"  # the device of CDI with all GPUs
_SETTING = "verify_docker_image"
_SILENT = fleet.Answers({}, {}, [], ())


class Wanted(NamedTuple):
    """What to prove."""

    image: str
    capabilities: Sequence[str]  # for which the image has code; empty: nobody says it
    has_command: bool


class Tried(NamedTuple):
    """A host, and what it printed."""

    host: fleet.Host
    pulled: str | None  # by the first script; None: it did not run
    ran: str | None  # by the second one
    exports: Sequence[Mapping[str, str]] = ()  # what the servers of its NFS mounts said


def decide(hosts: Sequence[Tried], wanted: Wanted) -> dict[str, list[dict[str, str]]]:
    """Return what is known before it runs, by host: why it cannot run, or what may not run.

    On a host with notices only, it can.
    """
    return _decide(hosts, wanted, _pulled(hosts, wanted))


def _decide(
    hosts: Sequence[Tried], wanted: Wanted, found: Mapping[str, Pulled | None]
) -> dict[str, list[dict[str, str]]]:
    images = {name: pulled.image for name, pulled in found.items() if pulled and pulled.image}
    # An image without a digest tells less: images with its layers can differ.
    with_digest = (name for name, image in images.items() if image.digests)
    first = next(with_digest, next(iter(images), ""))
    reference = images.get(first)
    by_name = {one.host.name: one.host for one in hosts}
    return {
        name: _judge_image(name, by_name[name], pulled, wanted, reference, first)
        for name, pulled in found.items()
    }


def candidates(hosts: Sequence[Tried], wanted: Wanted) -> list[str]:
    """Return the hosts that have the image, and on which it can run."""
    known = decide(hosts, wanted)
    return [
        one.host.name for one in hosts if one.pulled is not None and is_sound(known[one.host.name])
    ]


def judge(
    hosts: Sequence[Tried],
    wanted: Wanted,
    *,
    drift: bool,
    check_mode: bool = False,
    left_out: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the verdict on each host: that on the machine, and what the image did there."""
    found = _pulled(hosts, wanted)
    known = _decide(hosts, wanted, found)
    verdicts = []
    for one in hosts:
        base = fleet.judge(
            one.host, _SILENT, None, drift=drift, check_mode=check_mode, left_out=left_out
        )
        node = cast(Node | None, one.host.planned.get("node"))
        proof = None
        if one.ran is not None:
            proof = parse_run(one.ran, has_command=wanted.has_command)
        own, is_busy = [*known[one.host.name]], False
        can_run = is_sound(own)
        pulled = found[one.host.name]
        if node is not None and proof is not None and can_run:
            proven = _judge_proof(one.host.name, node, wanted, proof, pulled, base["findings"])
            is_busy = container_gpus.is_busy(proven, proof)
            if image_faults.UNFIT in proof.error:
                # Somebody does compare, although no one was known to.
                own = [entry for entry in own if entry["code"] != image_needs.LIMITED]
            own = [*proven, *own, *_judge_pull(one.host.name, pulled)]
        elif can_run and not base["left_out"] and not check_mode:
            is_silent = node is not None and not node["engines"]["docker"]["answers"]
            error = "Docker does not answer" if is_silent else "the connection was lost before"
            own.append(finding("CONTAINER_FAILED", one.host.name, image=wanted.image, error=error))
        # A host that the run left out has its reasons, and no other.
        more = [*(() if base["left_out"] else one.exports), *own]
        verdicts.append(
            {
                **base,
                "findings": [*base["findings"], *more],
                "ok": base["ok"] and is_sound(more),
                "planned": base["planned"] and is_sound(more),
                "busy": is_busy,
                "container": _row(node, pulled, proof),
            }
        )
    return verdicts


def table(verdicts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the verdicts as aligned lines, starting with the headings."""
    rows: list[Sequence[str]] = [HEADINGS]
    for verdict in verdicts:
        cells = verdict["container"]
        shown = [cells[key] for key in ("driver", "cuda", "engine", "digest", "computed")]
        gpu = verdict["machine"]["gpu"]
        rows.append([verdict["host"], *(one or "-" for one in (gpu, *shown)), word(verdict)])
    return aligned(rows, _NUMBERS)


def _pulled(hosts: Sequence[Tried], wanted: Wanted) -> dict[str, Pulled | None]:
    """Return what each host says about the image, by name; None: it was not asked."""
    return {
        one.host.name: None if one.pulled is None else parse_pulled(wanted.image, one.pulled)
        for one in hosts
    }


def _judge_image(
    name: str,
    host: fleet.Host,
    pulled: Pulled | None,
    wanted: Wanted,
    reference: Image | None,
    first: str,
) -> list[dict[str, str]]:
    node = cast(Node | None, host.planned.get("node"))
    if pulled is None or node is None:
        return []
    if pulled.image is None and pulled.failure:
        cause = pull_causes.of_pull(pulled.failure, wanted.image, _SETTING)
        if cause is not None:
            return [finding(cause.code, name, **cause.evidence)]
        error = quote(pulled.failure)
        return [finding("IMAGE_UNPULLABLE", name, image=wanted.image, error=error)]
    machine = _machine(node, pulled, wanted)
    # Check mode knows an image that is not there by its name.
    image = pulled.image or Image(wanted.image, "")
    misfits = image_needs.misfits(image, machine, wanted.capabilities)
    limits = image_needs.limits(image, machine, wanted.capabilities)
    found = [finding(one.code, name, setting=_SETTING, **one.evidence) for one in misfits + limits]
    # An image for another architecture has other layers.
    is_other = [one.code for one in misfits] == [image_needs.ARCHITECTURE]
    if pulled.image and reference and not is_other and not image_needs.is_same(image, reference):
        digests = {"found": image_needs.digest(image), "expected": image_needs.digest(reference)}
        found.append(finding("IMAGE_DIFFERS", name, image=wanted.image, other=first, **digests))
    return found


def _judge_pull(name: str, pulled: Pulled | None) -> list[dict[str, str]]:
    """Judge a pull that failed where the image is there.

    Without a digest, it was loaded from a file. With one it can be, because a Docker that stores
    images as containerd does has a digest of every image: so it is no failure.
    """
    if not pulled or not pulled.failure or not pulled.image or not pulled.image.digests:
        return []
    if image_needs.AT in pulled.image.name:
        return []
    evidence = {"digest": image_needs.digest(pulled.image), "error": quote(pulled.failure)}
    return [finding("IMAGE_NOT_PULLED", name, image=pulled.image.name, **evidence)]


def _machine(node: Node, pulled: Pulled, wanted: Wanted) -> Machine:
    gpus = []
    uuids = {gpu["pci_address"]: gpu["uuid"] or "" for gpu in node["nvml"]["devices"]}
    names = {gpu["pci_address"]: gpu["name"] or "" for gpu in node["nvml"]["devices"]}
    for gpu in node["pci"]:
        generation = gpu_models.generation(gpu["device"]).name
        capability = pulled.capabilities.get(uuids.get(gpu["address"], ""))
        gpus.append(Gpu(names.get(gpu["address"]) or gpu["address"], generation, capability))
    return Machine(
        node["os"]["architecture"],
        node["nvml"]["driver_version"] or node["driver"]["module_version"],
        node["health"]["cuda_version"],
        gpus,
        pulled.brand,
        compares=image_runtime.compares(_runtime(node, pulled.way, wanted)),
    )


def _runtime(node: Node, way: str, wanted: Wanted) -> image_runtime.Host:
    toolkit, engine = node["toolkit"], node["engines"]["docker"]
    # The command runs once for each GPU, by its UUID.
    uuids = [gpu["uuid"] for gpu in node["nvml"]["devices"] if gpu["uuid"]]
    names = uuids if wanted.has_command else [_ALL]
    devices = cdi.usable(node["cdi"]["names"])
    by_cdi = docker.gives_gpus_by_cdi(
        engine["server_version"],
        has_cdi=bool(engine["cdi_enabled"]),
        has_hook=toolkit["programs"][basename(docker.CDI_HOOK)]["exists"]
        and docker.CDI_HOOK not in engine["changed_since_start"],
        has_devices=all(f"{docker.GPU_KIND}={name}" in devices for name in names),
    )
    is_disabled = toolkit["settings"].get("disable-require", False)
    return image_runtime.Host(way, by_cdi, toolkit["version"], toolkit["mode"], is_disabled)


def _judge_proof(
    name: str,
    node: Node,
    wanted: Wanted,
    proof: Proof,
    pulled: Pulled | None,
    evident: Sequence[Mapping[str, str]],
) -> list[dict[str, str]]:
    fits, users = None, pulled.users if pulled else {}
    if pulled and pulled.image:
        fits = image_needs.supports(pulled.image, _machine(node, pulled, wanted))
    run = image_faults.Run(name, node, wanted.image, fits)
    if proof.error:
        if image_faults.UNFIT in proof.error:
            return [image_faults.refused(run, quote(proof.error))]
        error = quote(proof.error)
        return [finding("CONTAINER_FAILED", name, image=wanted.image, error=error)]
    proven, busy = container_gpus.in_use(node, proof, users)
    computed = compute.judge_computed(name, node, image_faults.smoke(run, proven), evident)
    found = [
        image_faults.judge(run, one) if one["code"] == "COMPUTE_IMAGE_UNFIT" else one
        for one in computed
    ]
    found += container_gpus.explain(name, node, wanted.image, busy, users)
    return found + container_gpus.compare(name, node, proof)


def _row(node: Node | None, pulled: Pulled | None, proof: Proof | None) -> dict[str, str]:
    """Return the cells of the table. The container's own words count more than the host's."""
    cells = dict.fromkeys(("driver", "cuda", "engine", "digest", "computed"), "")
    if node is not None:
        cells["driver"] = node["nvml"]["driver_version"] or node["driver"]["module_version"] or ""
        cells["cuda"] = node["health"]["cuda_version"] or ""
        cells["engine"] = node["engines"]["docker"]["server_version"] or ""
    if pulled and pulled.image:
        cells["digest"] = image_needs.digest(pulled.image)[:_DIGEST]
    if proof is not None:
        cells["driver"] = proof.driver or cells["driver"]
        cells["cuda"] = proof.cuda or cells["cuda"]
        computed = sum(one.ok for one in proof.results)
        gpus = container_gpus.count(node, proof) if node else len(proof.results)
        cells["computed"] = f"{computed}/{gpus}"
    return cells
