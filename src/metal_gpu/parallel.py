# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Do the same work for many things, a bounded number at a time.

The threads are daemons. So an interrupted program ends at once, and does not wait for a machine
that does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import Queue
from threading import Event, Lock, Thread
from typing import TypeVar

Thing = TypeVar("Thing")
Result = TypeVar("Result")

LIMIT = 32


def each(
    things: Iterable[Thing], work: Callable[[Thing], Result], limit: int = LIMIT
) -> Iterator[tuple[Thing, Result | Exception]]:
    """Yield each thing with the result of its work, or the exception, in the order of their ends.

    No result waits for another. At most `limit` results are kept until they are taken, so memory
    does not grow with the number of things. If the caller stops early, no new work begins.
    """
    waiting, lock, stop = iter(things), Lock(), Event()
    done: Queue[tuple[Thing, Result | Exception] | BaseException | None] = Queue(max(limit, 1))

    def worker() -> None:
        try:
            while not stop.is_set():
                with lock:
                    try:
                        thing = next(waiting)
                    except StopIteration:
                        break
                try:
                    answer: Result | Exception = work(thing)
                except Exception as error:
                    answer = error
                done.put((thing, answer))
        except BaseException as error:  # of the iterator: the caller gets it
            done.put(error)
        else:
            if not stop.is_set():
                done.put(None)

    running = max(limit, 1)
    for _number in range(running):
        Thread(target=worker, daemon=True).start()
    try:
        while running:
            message = done.get()
            if message is None:
                running -= 1
            elif isinstance(message, BaseException):
                raise message
            else:
                yield message
    finally:
        stop.set()
        # From now on, a worker has one message at most. There is room for all, so that none waits.
        while not done.empty():
            done.get_nowait()
