# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whatever a node hands over: no traceback, and no ok without the evidence of every GPU.

Healthy nodes are damaged at random: outputs and files are cut, garbled, swapped, doubled and left
out, exit codes and answers of the cluster are others. METAL_GPU_MUTATIONS says how often; a
failure names the seeds to try again with `damaged(SEED)`.
"""

from __future__ import annotations

import json
import os
import tomllib
import traceback
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
import yaml

from ansible_collections.metal.gpu.plugins.module_utils.verdict.reconcile import question
from ansible_collections.metal.gpu.plugins.plugin_utils.verdict.report import explain, table
from ansible_collections.metal.gpu.tests.unit.support import healthy
from ansible_collections.metal.gpu.tests.unit.support.healthy import Node

MUTATIONS = int(os.environ.get("METAL_GPU_MUTATIONS", "2000"))

EXIT_CODES = (None, 0, 1, 2, 6, 8, 9, 12, 14, 15, 18, 126, 127, 139, 255)
# What may stand where something else was, in any language, and what a GPU says that is ill.
TEXTS = (
    *("", " ", "\n", "\x00", "\x1b[31m", "\ufffd", "\u2028", "²", "é", "\ud800", "x" * 5000),
    *("0", "-1", "4.5", "1e999", "9" * 5000, "0x10", "NaN", "2026-13-45", "2026-11-22T25:61:00Z"),
    *(
        "null",
        "true",
        "~",
        "[]",
        "{}",
        "[1, {}]",
        "{a: [b]}",
        "[[",
        "[" * 5000,
        "}",
        '"',
        "'",
        "\\",
        "#",
        "%H",
    ),
    *("&a [*a]", "!!python/object:os.system x", "- a", "a: 1\na: 2", "---\n---", "? x", "<<: 1"),
    *("[GPU is lost]", "[GPU requires drain and reset]", "[Unknown Error]", "[N/A]", "ERR!"),
    *(
        "No devices were found",
        "GPU-",
        "0, GPU-1, x",
        "WARNING: infoROM is corrupted at gpu 0000:1",
    ),
    "Unable to determine the device handle for GPU0: 0000:53:00.0: Unknown Error",
    "Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.  Reboot the system",
)
# Of a GPU that is not well. What only its model does not have is no trouble.
TROUBLE = ("lost", "reset", "error", "err!", "unable", "warning", "found")


@cache
def nodes() -> tuple[Node, Node]:
    return healthy.containerd_node(), healthy.docker_node()


# --- how a text is damaged --------------------------------------------------------------------


def cut(chance: Random, text: str) -> str:
    return text[: chance.randrange(len(text) + 1)]


def behead(chance: Random, text: str) -> str:
    return text[chance.randrange(len(text) + 1) :]


def drop_line(chance: Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(lines[:-1]) if len(lines) < 2 else _without(chance, lines)


def _without(chance: Random, lines: list[str]) -> str:
    del lines[chance.randrange(len(lines))]
    return "".join(lines)


def double_line(chance: Random, text: str) -> str:
    lines = text.splitlines(keepends=True)
    return text + chance.choice(lines) if lines else text


def add_line(chance: Random, text: str) -> str:
    lines = [*text.splitlines(keepends=True)]
    lines.insert(chance.randrange(len(lines) + 1), f"{chance.choice(TEXTS)}\n")
    return "".join(lines)


def replace_cell(chance: Random, text: str) -> str:
    """Replace what is between two separators of whatever language this is."""
    separators = ",:=\t\n \"'"
    places = [-1, *(place for place, sign in enumerate(text) if sign in separators), len(text)]
    first = chance.randrange(len(places) - 1)
    return text[: places[first] + 1] + chance.choice(TEXTS) + text[places[first + 1] :]


def garble(chance: Random, text: str) -> str:
    signs = list(text)
    for _ in range(chance.randint(1, 5)):
        if signs:
            signs[chance.randrange(len(signs))] = chance.choice("\x00[]{}\"',:=0aZ\n\t ²")
    return "".join(signs)


def replace(chance: Random, _text: str) -> str:
    return chance.choice(TEXTS)


DAMAGES = (
    cut,
    behead,
    drop_line,
    double_line,
    add_line,
    replace_cell,
    replace_cell,
    garble,
    replace,
)


# --- what is damaged --------------------------------------------------------------------------


def damage_nvidia_smi(chance: Random, node: Node) -> None:
    output = node.raw["outputs"]["nvidia_smi"]
    stream = chance.choice(("stdout", "stdout", "stdout", "stderr"))
    output[stream] = chance.choice(DAMAGES)(chance, output[stream])


def damage_output(chance: Random, node: Node) -> None:
    output = node.raw["outputs"][chance.choice(list(node.raw["outputs"]))]
    stream = chance.choice(("stdout", "stderr"))
    output[stream] = chance.choice(DAMAGES)(chance, output[stream])


def exit_otherwise(chance: Random, node: Node) -> None:
    name = chance.choice(["nvidia_smi", *node.raw["outputs"]])
    node.raw["outputs"][name]["rc"] = chance.choice(EXIT_CODES)


def remove_output(chance: Random, node: Node) -> None:
    del node.raw["outputs"][chance.choice(list(node.raw["outputs"]))]


def swap_outputs(chance: Random, node: Node) -> None:
    outputs = node.raw["outputs"]
    one, other = chance.choices(list(outputs), k=2)
    outputs[one], outputs[other] = outputs[other], outputs[one]


def damage_file(chance: Random, node: Node) -> None:
    texts = node.raw["texts"]
    path = chance.choice(list(texts))
    texts[path] = chance.choice(DAMAGES)(chance, texts[path])


def mistype(chance: Random, node: Node) -> None:
    """Put a value of another kind somewhere into a document."""
    outputs, texts = node.raw["outputs"], node.raw["texts"]
    documents = [(outputs[name], "stdout", name) for name in _DOCUMENTS if name in outputs]
    documents += [(texts, path, path) for path in texts if path.endswith((".json", ".yaml"))]
    documents += [(texts, path, path) for path in texts if path.endswith((".toml", "logs.conf"))]
    holder, key, name = chance.choice(documents)
    is_toml = name.endswith(("dump", ".toml"))
    try:
        document = tomllib.loads(holder[key]) if is_toml else yaml.safe_load(holder[key])
    except (ValueError, yaml.YAMLError):
        return  # it was damaged before
    inner: Any = document
    while isinstance(inner, (dict, list)) and inner:
        place = chance.choice(list(inner) if isinstance(inner, dict) else [*range(len(inner))])
        if not isinstance(inner[place], (dict, list)) or chance.random() < 0.3:
            inner[place] = chance.choice(_VALUES[is_toml:])
            break
        inner = inner[place]
    holder[key] = _toml(document) if is_toml else json.dumps(document)


def _toml(value: Any) -> str:
    """Write a document with a line for each of its keys."""
    return "".join(f"{json.dumps(key)} = {_inline(item)}\n" for key, item in value.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        pairs = (f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps(value)


_DOCUMENTS = ("docker_info", "containerd_dump", "crio_config")
# TOML has no null.
_VALUES = (
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    [1],
    ["x"],
    {},
    {"a": 1},
    [[]],
    [{}],
    {"a": {"b": []}},
)


def remove_file(chance: Random, node: Node) -> None:
    path = chance.choice(list(node.raw["texts"]))
    del node.raw["texts"][path]
    if chance.random() < 0.5:
        node.raw["errors"][path] = "Permission denied"


def swap_files(chance: Random, node: Node) -> None:
    texts = node.raw["texts"]
    one, other = chance.choices(list(texts), k=2)
    texts[one], texts[other] = texts[other], texts[one]


def drop_item(chance: Random, node: Node) -> None:
    """Drop a GPU of the bus, a device file, and the like; or show it twice."""
    values = node.raw["values"].values()
    lists = [node.raw["own_files"], *(one for value in values for one in value.values())]
    items = chance.choice([one for one in lists if isinstance(one, list) and one])
    place = chance.randrange(len(items))
    if chance.random() < 0.7:
        del items[place]
    else:
        items.append(items[place])


def move_gpu(chance: Random, node: Node) -> None:
    if gpus := node.raw["values"]["platform"]["pci"]:
        chance.choice(gpus)["address"] = "0000:ff:1f.7"


def flip_path(chance: Random, node: Node) -> None:
    name = chance.choice(list(node.raw["exists"]))
    node.raw["exists"][name] = not node.raw["exists"][name]


def find_otherwise(chance: Random, node: Node) -> None:
    found = node.raw["found"]
    found[chance.choice(list(found))] = chance.choice([[], ["/x"], ["/x", "/y"]])


def change_unit(chance: Random, node: Node) -> None:
    """Have systemd say something else of a unit, or nothing."""
    units = node.raw["units"]
    name = chance.choice(list(units))
    if chance.random() < 0.3:
        del units[name]
    else:
        key = chance.choice(list(units[name]))
        units[name][key] = chance.choice(
            (*TEXTS, "active", "inactive", "failed", "masked", "not-found")
        )


def change_service(chance: Random, node: Node) -> None:
    """Have a service run with other flags, from elsewhere, or not at all."""
    service = chance.choice(list(node.raw["services"].values()))
    flags = service[chance.choice(("in_force", "flags"))]
    if flags and chance.random() < 0.6:
        chance.choice(flags)["value"] = chance.choice((None, *TEXTS))
    elif flags and chance.random() < 0.5:
        del flags[chance.randrange(len(flags))]
    else:
        service["path"] = service["source"] = None


def lose_file(chance: Random, node: Node) -> None:
    """Have a program, a library, a file of ours or the kubelet's certificate gone."""
    raw = node.raw
    file = chance.choice(list(raw["program_files"].values()))
    file["executable"] = False
    file["exists"] = chance.random() < 0.5
    for names in (raw["programs"], raw["values"]["driver"]["libraries"]):
        if chance.random() < 0.5:
            names[chance.choice(list(names))] = None
    raw["own_files"] = chance.sample(raw["own_files"], chance.randint(0, len(raw["own_files"])))
    kubelet = raw["values"]["kubelet"]
    kubelet["joined_name"] = chance.choice((None, "", "gpu-9", kubelet["joined_name"]))


def change_times(chance: Random, node: Node) -> None:
    paths = list(node.raw["texts"])
    times = (0.0, node.raw["clock"]["now"], -1.0, 4e9)
    node.raw["modified"] |= {path: chance.choice(times) for path in chance.sample(paths, 3)}
    node.raw["clock"]["uptime"] = chance.choice((0.0, 1.0, 1e6))


def silence_cluster(chance: Random, node: Node) -> Node:
    return node._replace(cluster=None) if chance.random() < 0.5 else node._replace(smoke=None)


def change_cluster(chance: Random, node: Node) -> Node:
    changes = chance.choice(
        (
            *({"capacity": None}, {"allocatable": 0}, {"allocatable": 1}),
            *({"capacity": 9}, {"ready": None, "readiness": "x"}),
            {"state": "missing", "capacity": None, "allocatable": None, "ready": None},
        )
    )
    return node._replace(cluster={**(node.cluster or {}), **changes}) if node.cluster else node


def change_smoke(chance: Random, node: Node) -> Node:
    if node.smoke is None:
        return node
    seen = node.smoke["uuids"]
    changes = chance.choice(
        (
            *(
                {"uuids": seen[1:]},
                {"uuids": [*seen[1:], "GPU-x"]},
                {"uuids": [*seen[1:], *seen[-1:]]},
            ),
            *({"state": "failed", "uuids": [], "message": "x"}, {"uuids": []}),
            {"state": "failed", "reason": "ErrImagePull"},
            {"results": node.smoke["results"][1:]},
            {"results": [{**node.smoke["results"][0], "ok": False, "error": "x"}]},
        )
    )
    return node._replace(smoke={**node.smoke, **changes})


MUTATORS: tuple[Callable[[Random, Node], Node | None], ...] = (
    *(damage_nvidia_smi,) * 4,
    *(damage_output, damage_file, damage_file, mistype, mistype, mistype),
    *(exit_otherwise, remove_output, swap_outputs, remove_file, swap_files),
    *(drop_item, move_gpu, flip_path, find_otherwise, change_times),
    *(change_unit, change_service, lose_file),
    *(silence_cluster, change_cluster, change_smoke),
)


def damaged(seed: int) -> Node:
    """Return a healthy node with one to three damages."""
    chance = Random(seed)
    node = nodes()[seed % 2].copy()
    for _ in range(chance.choice((1, 1, 2, 3))):
        if node.raw["outputs"] and "nvidia_smi" in node.raw["outputs"]:
            node = chance.choice(MUTATORS)(chance, node) or node
    return node if chance.random() < 0.8 else node._replace(declared=None)


def proves_every_gpu(node: Node, undamaged: Node) -> bool:
    """Look for the evidence in the simplest way: every address and UUID is where it has to be."""
    answer = node.raw["outputs"].get("nvidia_smi", {"rc": 1, "stdout": "", "stderr": ""})
    rows = [line for line in answer["stdout"].splitlines() if line.strip()]
    slots = [gpu["address"] for gpu in undamaged.raw["values"]["platform"]["pci"]]
    uuids = undamaged.smoke["uuids"]
    cluster, smoke = node.cluster or {}, node.smoke or {}
    return (
        answer["rc"] == 0
        and not answer["stderr"].strip()
        and len(rows) == len(slots)
        and all(sum(slot.upper() in row for row in rows) == 1 for slot in slots)
        and all(sum(f", {uuid}, " in row for row in rows) == 1 for uuid in uuids)
        and not any(word in answer["stdout"].lower() for word in TROUBLE)
        and [gpu["address"] for gpu in node.raw["values"]["platform"]["pci"]] == slots
        and cluster.get("capacity") == cluster.get("allocatable") == len(slots)
        and cluster.get("ready") is True
        and sorted(smoke.get("uuids", ())) == sorted(uuids)
        and smoke.get("state") == "ok"
        and {one["uuid"] for one in smoke.get("results", ()) if one["ok"]} == {*uuids}
        and _proves_the_fabric(node, undamaged)
    )


def _proves_the_fabric(node: Node, undamaged: Node) -> bool:
    if not undamaged.raw["values"]["platform"]["nvswitches"]:
        return True
    report = node.raw["values"]["health"]["report"]
    slots = [gpu["address"] for gpu in undamaged.raw["values"]["platform"]["pci"]]
    words = [(gpu["fabric"]["state"], gpu["fabric"]["status"]) for gpu in report["gpus"]]
    return (
        report["error"] is None
        and [gpu["pci_address"] for gpu in report["gpus"]] == slots
        and words == [("Completed", "Success")] * len(slots)
    )


def judge(node: Node) -> dict[str, Any]:
    """Do with a node what site and verify do, and return the verdict."""
    found = node.observed()
    question("gpu-1", found, node.declared)
    for state in ("present", "absent"):
        node.plans(found, state=state, roles=healthy.ROLES)
    verdict = node.judge(found)
    table([verdict])
    explain(verdict["findings"])
    return verdict


@pytest.mark.parametrize("number", [0, 1], ids=["containerd", "docker"])
def test_a_healthy_node_is_ok(number):
    node = nodes()[number]
    assert judge(node)["findings"] == []
    assert proves_every_gpu(node, node)


def test_no_damage_is_believed_or_ends_in_a_traceback():
    crashes: dict[str, list[int]] = {}
    believed = []
    for seed in range(MUTATIONS):
        node = damaged(seed)
        try:
            verdict = judge(node)
        except Exception:
            lines = traceback.format_exc().splitlines()
            crashes.setdefault("\n".join(lines[-3:]), []).append(seed)
            continue
        if verdict["ok"] and not proves_every_gpu(node, nodes()[seed % 2]):
            believed.append(seed)
    shown = [f"{text}\n  seeds {seeds[:5]}, {len(seeds)} times" for text, seeds in crashes.items()]
    assert not shown, "\n".join(shown)
    assert not believed
