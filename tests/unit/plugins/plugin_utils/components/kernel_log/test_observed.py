# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from datetime import UTC, datetime

from ansible_collections.metal.gpu.plugins.modules import node_info
from ansible_collections.metal.gpu.tests.unit.support.programs import Programs
from ansible_collections.metal.gpu.tests.unit.support.recordings import plant

LOAD = "[   10.000000] nvidia-nvlink: Nvlink Core is being initialized, major device number 236\n"
XID = "[  600.000000] NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.\n"
UUID = "GPU-c43f0536-e751-7211-d7a7-78c95249ee7d"
NAME = f"[  599.000000] NVRM: GPU at PCI:0000:03:00: {UUID}\n"
OLDER = "[  500.000000] gpu-1 kernel: NVRM: Xid (PCI:0000:03:00): 48, DBE\n"
GPU = {
    f"/sys/bus/pci/devices/0000:03:00.0/{name}": f"0x{value}\n"
    for name, value in {"vendor": "10de", "device": "2330", "class": "030200"}.items()
}


def asked(programs, name):
    return [line for line in programs.asked if line.startswith(f"{name} ")]


def test_a_lost_gpu(observe, tmp_path):
    plant(tmp_path, GPU)
    programs = Programs({"dmesg": (0, LOAD + NAME + XID, ""), "journalctl": (0, "", "")})
    found = observe(programs)["kernel_log"]
    assert asked(programs, "dmesg") == ["dmesg --kernel"]
    assert not any("--dmesg" in line for line in asked(programs, "journalctl"))
    (event,) = found.pop("events")
    since = datetime.now(UTC).timestamp() - time.monotonic() + 600
    found_date = datetime.strptime(event.pop("last_date"), "%Y-%m-%dT%H:%M%z")
    assert abs(found_date.timestamp() - since) < 120
    assert event == {
        "source": "xid",
        "address": "0000:03:00.0",
        "number": 79,
        "count": 1,
        "first": 600,
        "last": 600,
        "line": "GPU has fallen off the bus.",
    }
    assert found == {
        "sources": ["dmesg"],
        "error": None,
        "loaded": 10,
        "unlisted": 0,
        "recovery": {},
        "uuids": {"0000:03:00.0": UUID},
        "words": {},
    }


def test_the_journal_has_what_the_ring_has_lost(observe, tmp_path):
    plant(tmp_path, GPU)
    programs = Programs({"dmesg": (0, XID, ""), "journalctl --dmesg": (0, OLDER, "")})
    found = observe(programs)["kernel_log"]
    assert found["sources"] == ["dmesg", "journal"]
    assert [event["number"] for event in found["events"]] == [48, 79]
    (line,) = asked(programs, "journalctl")
    assert "--boot" in line


def test_a_log_that_cannot_be_read_is_no_error_of_the_observation(observe, tmp_path):
    plant(tmp_path, GPU)
    refused = "dmesg: read kernel buffer failed: Operation not permitted\n"
    found = observe(Programs({"dmesg": (1, "", refused)}))["kernel_log"]
    assert (found["sources"], found["events"]) == ([], [])
    assert "Operation not permitted" in found["error"]
    assert "journalctl was not found" in found["error"]


def test_a_machine_without_gpus_is_not_asked(observe):
    programs = Programs({"dmesg": (0, XID, "")})
    assert observe(programs)["kernel_log"]["error"] is None
    assert asked(programs, "dmesg") == []


def test_all_gpus_are_gone_from_the_bus(observe, tmp_path):
    plant(tmp_path, {"/sys/module/nvidia/version": "580.178.04\n"})
    found = observe(Programs({"dmesg": (0, LOAD + XID, "")}))["kernel_log"]
    assert len(found["events"]) == 1


def test_only_errors_travel(tmp_path):
    """The rest of the log is large, and does not concern the controller."""
    plant(tmp_path, GPU)
    programs = Programs({"dmesg": (0, LOAD + "[   11.000000] CANARY\n" * 1000 + XID, "")})
    node = node_info.Node(tmp_path, programs.run, programs.find)
    assert "CANARY" not in str(node_info.run(node, [], [])["raw"])
