# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare verdicts with each other, and with those of a former run. No function does I/O.

The report of a run is a JSON document with the last verdict on each host, and its date.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.metal.gpu.plugins.module_utils.findings import finding, is_sound
from ansible_collections.metal.gpu.plugins.module_utils.readable import some

# A file with other keys, or of another kind, is not ours to replace.
_HEAD = {"kind": "metal.gpu.verify", "version": 1}

Verdict = Mapping[str, Any]


class ReportInvalid(ValueError):
    """A file is not a report of verify."""


def parse(text: str) -> dict[str, Any]:
    """Return the entries of a report by host. Raises ReportInvalid."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportInvalid(f"it is not JSON: {error}") from error
    hosts = document.get("hosts") if isinstance(document, dict) else None
    if not isinstance(hosts, dict) or document != {**_HEAD, "hosts": hosts}:
        raise ReportInvalid("it is not a report of metal.gpu.verify in a known version")
    found = {}
    for host, entry in hosts.items():
        verdict = entry.get("verdict") if isinstance(entry, dict) else None
        gpus = entry.get("gpus") if isinstance(entry, dict) else None
        is_known = isinstance(gpus, list) and all(
            isinstance(one, dict)
            and all(isinstance(one.get(key), str) for key in ("address", "uuid", "date"))
            for one in gpus
        )
        if not isinstance(verdict, dict) or not is_known:
            raise ReportInvalid(f"the entry of {host} has no verdict")
        found[host] = entry
    return found


def document(verdicts: Sequence[Verdict], former: Mapping[str, Any], date: str) -> str:
    """Return the report: these verdicts, and the former ones on other hosts."""
    hosts = dict(former)
    for verdict in verdicts:
        gpus = _remembered(verdict, former.get(verdict["host"], {}), date)
        hosts[verdict["host"]] = {"date": date, "verdict": verdict, "gpus": gpus}
    return json.dumps({**_HEAD, "hosts": hosts}, indent=2, sort_keys=True) + "\n"


def _remembered(verdict: Verdict, entry: Mapping[str, Any], date: str) -> list[dict[str, Any]]:
    """Return the UUID that was last seen at each address, and when.

    Without an answer of the driver, there is none. What was known before still counts, and all of
    it for as long as a GPU is missing: otherwise the next run would know nothing of that GPU.
    """
    before = entry.get("gpus", ())
    is_accepted = _is_accepted(verdict)
    if not is_accepted and _gone(verdict, before):
        return [*before]
    now = _on_bus(verdict)
    known = {
        one["address"]: one
        for one in before
        if one["address"] in now or not (is_accepted or one["uuid"] in now.values())
    }
    known |= {
        address: {"address": address, "uuid": uuid, "date": date}
        for address, uuid in now.items()
        if uuid
    }
    return [known[address] for address in sorted(known)]


def compare(verdicts: Sequence[Verdict], former: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the verdicts with what is new since the former ones, and what two of them share."""
    owners: dict[str, list[str]] = {}
    for verdict in verdicts:
        for uuid in [] if verdict.get("left_out") else _uuids(verdict):
            owners.setdefault(uuid, []).append(verdict["host"])
    return [_with_news(verdict, owners, former.get(verdict["host"], {})) for verdict in verdicts]


def _uuids(verdict: Verdict) -> list[str]:
    return list(dict.fromkeys(gpu["uuid"] for gpu in verdict["gpus"] if gpu["uuid"]))


def _with_news(
    verdict: Verdict, owners: Mapping[str, Sequence[str]], entry: Mapping[str, Any]
) -> dict[str, Any]:
    host = verdict["host"]
    before = {one["address"]: one for one in entry.get("gpus", ())}
    news = []
    for gpu in verdict["gpus"]:
        uuid, old = gpu["uuid"], before.get(gpu["address"])
        if uuid and old and old["uuid"] != uuid:
            evidence = {"address": gpu["address"], "uuid": uuid}
            evidence |= {"former": old["uuid"], "date": old["date"]}
            news.append(finding("GPU_REPLACED", host, **evidence))
    news += _losses(verdict, entry.get("gpus", ()))
    twice = {uuid: names for uuid in _uuids(verdict) if len(names := owners.get(uuid, ())) > 1}
    others = dict.fromkeys(name for names in twice.values() for name in names if name != host)
    if others and not verdict.get("left_out"):
        evidence = {"uuids": ", ".join(twice), "others": some([*others])}
        news.append(finding("GPU_UUID_TWICE", host, **evidence))
    findings = [*verdict["findings"], *news]
    states = {key: verdict[key] and is_sound(news) for key in ("ok", "planned") if key in verdict}
    return {**verdict, "findings": findings, **states}


def _losses(verdict: Verdict, before: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return a finding for each GPU that is gone, unless GPU_COUNT_DIFFERS says that one is."""
    layers, is_accepted = verdict["layers"], _is_accepted(verdict)
    if verdict.get("left_out") or not (is_accepted or layers["declared"] is None):
        return []
    code = "GPU_REMOVED" if is_accepted else "GPU_GONE"
    names = ("address", "uuid", "date")
    return [
        finding(code, verdict["host"], found=layers["pci"], **{key: one[key] for key in names})
        for one in _gone(verdict, before)
    ]


def _is_accepted(verdict: Verdict) -> bool:
    """Tell whether the admin has said how many GPUs the host has, and the bus has these.

    Of a host that the run left out, nothing is forgotten before a run has named it.
    """
    declared = verdict["layers"]["declared"]
    is_left_out = bool(verdict.get("left_out"))
    return declared is not None and declared == verdict["layers"]["pci"] and not is_left_out


def _on_bus(verdict: Verdict) -> dict[str, str | None]:
    """Return the UUIDs of the GPUs by address. Other layers may still have a GPU that is gone."""
    bus = verdict["seen"]["pci"]["gpus"] or ()
    return {gpu["address"]: gpu["uuid"] for gpu in verdict["gpus"] if gpu["address"] in bus}


def _gone(verdict: Verdict, before: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the GPUs of the former report that the node no longer has.

    A GPU may have moved: after a card has died, a boot may number the others differently. Another
    GPU at its address has replaced it, unless that one has moved there from another address. An
    empty list of GPUs shows that the node was not observed.
    """
    now = _on_bus(verdict)
    if not now:
        return []
    here = {*now.values()}
    addresses = {one["uuid"]: one["address"] for one in before}
    is_fewer = len(now) < len(addresses)
    gone: list[Mapping[str, Any]] = []
    for one in before:
        address, uuid = one["address"], one["uuid"]
        if uuid in here:
            continue
        if address in now:
            is_gone = is_fewer and addresses.get(now[address], address) != address
        else:
            is_gone = is_fewer or None not in here
        gone += [one] if is_gone else []
    return gone
