# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What verdicts say about each other, and about those of the run before."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.metal.gpu.plugins.plugin_utils.verdict import former

SLOTS = ("0000:03:00.0", "0000:82:00.0")
KIND = '{"kind": "metal.gpu.verify", '
FIRST, SECOND = "2026-11-01T10:00Z", "2026-11-23T10:00Z"


def verdict(host: str, *uuids: str | None, declared: int | None = None) -> dict[str, Any]:
    return at(host, dict(zip(SLOTS, uuids, strict=False)), declared)


def at(host: str, uuids: dict[str, str | None], declared: int | None = None) -> dict[str, Any]:
    gpus = [
        {"address": address, "uuid": uuid, "lost_at": None, "computed": True, "busy": None}
        for address, uuid in uuids.items()
    ]
    layers = {"declared": declared, "pci": len(gpus)}
    seen = {"pci": {"number": len(gpus), "gpus": [*uuids]}}
    return {
        "host": host, "gpus": gpus, "layers": layers, "seen": seen, "findings": [], "ok": True
    }  # fmt: skip


def codes(found: dict[str, Any]) -> list[str]:
    return [one["code"] for one in found["findings"]]


def reread(verdicts: list[dict[str, Any]], entries: Any = None, date: str = FIRST) -> Any:
    return former.parse(former.document(verdicts, entries or {}, date))


def test_nothing_is_new() -> None:
    found = [verdict("a", "GPU-1", "GPU-2"), verdict("b", "GPU-3")]
    assert former.compare(found, {}) == found
    assert former.compare(found, reread(found)) == found


def test_a_replaced_gpu_is_a_notice_with_the_date() -> None:
    entries = reread([verdict("a", "GPU-1", "GPU-2")])
    (found,) = former.compare([verdict("a", "GPU-1", "GPU-9")], entries)
    assert codes(found) == ["GPU_REPLACED"]
    assert found["ok"]
    assert found["findings"][0]["message"] == (
        "a: the GPU at 0000:82:00.0 is GPU-9; at 2026-11-01T10:00Z it was GPU-2"
    )


def test_a_gpu_that_is_lost_for_a_while_is_remembered() -> None:
    entries = reread([verdict("a", "GPU-1", "GPU-2")])
    entries = reread(former.compare([verdict("a", "GPU-1", None)], entries), entries, SECOND)
    (found,) = former.compare([verdict("a", "GPU-1", "GPU-9")], entries)
    assert "at 2026-11-01T10:00Z it was GPU-2" in found["findings"][0]["message"]
    entries = reread([verdict("a")], entries, SECOND)
    assert [one["uuid"] for one in entries["a"]["gpus"]] == ["GPU-1", "GPU-2"]


def test_a_card_that_is_gone_is_a_failure_of_every_run() -> None:
    entries = reread([verdict("a", "GPU-1", "GPU-2")])
    for date in (SECOND, SECOND):
        (found,) = former.compare([verdict("a", "GPU-1")], entries)
        assert codes(found) == ["GPU_GONE"]
        assert not found["ok"]
        message, remedy = found["findings"][0]["message"], found["findings"][0]["remedy"]
        assert f"the GPU GPU-2 at 0000:82:00.0, which was there at {FIRST}" in message
        assert "set `gpu_count: 1` for this host" in remedy
        entries = reread([found], entries, date)
    assert former.compare([verdict("a")], entries) == [verdict("a")]  # not observed


def test_gpu_count_accepts_that_a_card_is_gone() -> None:
    entries = reread([verdict("a", "GPU-1", "GPU-2"), verdict("b", "GPU-3")])
    entries = reread(former.compare([verdict("a", "GPU-1")], entries), entries, SECOND)
    accepted = verdict("a", "GPU-1", declared=1)
    for expected in (["GPU_REMOVED"], []):
        left_out = {**accepted, "left_out": True}
        assert former.compare([left_out], entries) == [left_out]
        entries = reread([left_out], entries, SECOND)
        (found,) = former.compare([accepted], entries)
        assert codes(found) == expected
        assert found["ok"]
        entries = reread([found], entries, SECOND)
    assert [one["uuid"] for one in entries["a"]["gpus"]] == ["GPU-1"]
    assert [one["uuid"] for one in entries["b"]["gpus"]] == ["GPU-3"]
    assert former.compare([verdict("a", "GPU-1")], entries) == [verdict("a", "GPU-1")]


def test_gpu_count_that_differs_says_it_and_accepts_nothing() -> None:
    """GPU_COUNT_DIFFERS is the finding. Without gpu_count, the report still shows the loss."""
    entries = reread([verdict("a", "GPU-1", "GPU-2", declared=2)])
    fewer = verdict("a", "GPU-1", declared=2)
    assert former.compare([fewer], entries) == [fewer]
    entries = reread([fewer], entries, SECOND)
    (found,) = former.compare([verdict("a", "GPU-1")], entries)
    assert codes(found) == ["GPU_GONE"]


def test_a_card_is_gone_although_another_one_has_its_address_now() -> None:
    """A boot numbers the rest differently. The report keeps what it had, so every run says it."""
    entries = reread([verdict("a", "GPU-1", "GPU-2")])
    for _run in range(2):
        (found,) = former.compare([verdict("a", "GPU-2")], entries)
        assert codes(found) == ["GPU_REPLACED", "GPU_GONE"]
        assert "the GPU GPU-1 at 0000:03:00.0" in found["findings"][1]["message"]
        assert not found["ok"]
        entries = reread([found], entries, SECOND)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param({"A": "GPU-2", "B": "GPU-1"}, ["GPU_REPLACED"] * 2, id="swapped"),
        pytest.param({"A": "GPU-1", "C": "GPU-2"}, [], id="moved"),
        pytest.param({"A": "GPU-2", "B": "GPU-9"}, ["GPU_REPLACED"] * 2, id="moved and replaced"),
        pytest.param({"A": "GPU-1", "C": None}, [], id="perhaps moved: the driver does not say"),
        pytest.param({"A": None, "B": None}, [], id="the driver says nothing"),
        pytest.param({"A": "GPU-1", "C": "GPU-9"}, ["GPU_GONE"], id="another card elsewhere"),
        pytest.param({"A": None}, ["GPU_GONE"], id="the bus says enough"),
    ],
)
def test_which_cards_are_gone(now: dict[str, str | None], expected: list[str]) -> None:
    entries = reread([at("a", {"A": "GPU-1", "B": "GPU-2"})])
    (found,) = former.compare([at("a", now)], entries)
    assert codes(found) == expected


def test_a_card_that_only_the_kernel_module_still_has_is_gone() -> None:
    entries = reread([verdict("a", "GPU-1", "GPU-2")])
    for _run in range(2):
        left = verdict("a", "GPU-1", "GPU-2")
        left["layers"]["pci"] = 1
        left["seen"]["pci"] = {"number": 1, "gpus": [SLOTS[0]]}
        (found,) = former.compare([left], entries)
        assert codes(found) == ["GPU_GONE"]
        entries = reread([found], entries, SECOND)


def test_a_card_that_was_moved_and_then_replaced_is_not_gone() -> None:
    entries = reread([at("a", {"A": "GPU-1", "B": "GPU-2"})])
    entries = reread([at("a", {"A": "GPU-1", "C": "GPU-2"})], entries, SECOND)
    (found,) = former.compare([at("a", {"A": "GPU-1", "C": "GPU-9"})], entries)
    assert codes(found) == ["GPU_REPLACED"]


def test_hosts_that_are_not_in_this_run_stay_in_the_report() -> None:
    entries = reread([verdict("a", "GPU-1"), verdict("b", "GPU-2")])
    entries = reread([verdict("b", "GPU-2")], entries, SECOND)
    assert {host: entry["date"] for host, entry in entries.items()} == {"a": FIRST, "b": SECOND}


def test_two_nodes_do_not_have_the_same_gpu() -> None:
    found = former.compare(
        [verdict("a", "GPU-1", "GPU-2"), verdict("b", "GPU-2"), verdict("c", "GPU-3")], {}
    )
    assert [codes(one) for one in found] == [["GPU_UUID_TWICE"], ["GPU_UUID_TWICE"], []]
    assert [one["ok"] for one in found] == [False, False, True]
    assert found[0]["findings"][0]["message"] == "a: b reports GPUs with the same UUIDs: GPU-2"


def test_one_finding_for_one_machine_under_two_names() -> None:
    found = former.compare([verdict("a", "GPU-1", "GPU-2"), verdict("b", "GPU-1", "GPU-2")], {})
    assert [codes(one) for one in found] == [["GPU_UUID_TWICE"]] * 2


def test_a_host_that_was_left_out_is_not_compared() -> None:
    left_out = {**verdict("b", "GPU-1"), "left_out": True}
    assert [codes(one) for one in former.compare([verdict("a", "GPU-1"), left_out], {})] == [[], []]


def test_a_uuid_twice_on_one_node_is_a_finding_of_that_node() -> None:
    (found,) = former.compare([verdict("a", "GPU-1", "GPU-1")], {})
    assert codes(found) == []  # NVML_CONTRADICTS says it


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"version": 1, "hosts": {}}',
        '{"version": 1, "hosts": {}, "users": ["an inventory of somebody"]}',
        KIND + '"version": 1, "hosts": {}, "users": []}',
        KIND + '"version": 1}',
        KIND + '"version": 2, "hosts": {}}',
        KIND + '"version": 1, "hosts": []}',
        KIND + '"version": 1, "hosts": {"a": 7}}',
        KIND + '"version": 1, "hosts": {"a": {"verdict": {}, "gpus": [7]}}}',
        KIND + '"version": 1, "hosts": {"a": {"verdict": {}, "gpus": [{"uuid": "GPU-1"}]}}}',
        KIND
        + '"version": 1, "hosts": {"a": {"verdict": {}, "gpus": [{"address": "x", "uuid": 1}]}}}',
    ],
)
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(former.ReportInvalid):
        former.parse(text)
