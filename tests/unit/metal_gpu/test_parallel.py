# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same work for many things at once."""

from __future__ import annotations

import threading

import pytest

from metal_gpu.parallel import each


def test_results_and_errors_of_all():
    found = dict(each(range(20), lambda number: 12 // (number - 5), limit=4))
    assert isinstance(found.pop(5), ZeroDivisionError)
    assert found[6] == 12
    assert len(found) == 19


def test_one_that_waits_does_not_keep_the_others():
    gate = threading.Event()
    results = each([True, False, False], lambda waits: waits and gate.wait(), limit=2)
    assert [next(results)[0], next(results)[0]] == [False, False]
    gate.set()
    assert [*results] == [(True, True)]


def test_at_most_the_limit_at_once_and_no_more_after_the_end():
    running, most, started = 0, 0, 0
    lock, full = threading.Lock(), threading.Barrier(3)

    def work(number):
        nonlocal running, most, started
        with lock:
            running, started = running + 1, started + 1
            most = max(most, running)
        if number < 3:
            full.wait(10)
        with lock:
            running -= 1

    results = each(range(1000), work, limit=3)
    assert next(results)
    results.close()
    assert most == 3
    assert started < 20


def test_no_thread_is_left_if_the_caller_stops_early():
    before = {*threading.enumerate()}
    results = each(range(1000), str, limit=8)
    assert next(results)
    workers = {*threading.enumerate()} - before
    results.close()
    for worker in workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in workers)


def test_error_of_the_source():
    def source():
        yield 1
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        [*each(source(), str, limit=2)]


def test_nothing_to_do():
    assert [*each([], str)] == []
