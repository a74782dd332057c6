# SPDX-FileCopyrightText: metal.gpu contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""A slow line: what a client sends arrives some seconds later. Answers come back at once.

`python -m metal_lab.delay ADDRESS TARGET PORT SECONDS` listens at ADDRESS and connects to TARGET.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter, delay_s: float) -> None:
    with contextlib.suppress(ConnectionError):  # one end is gone, so the other one goes as well
        while data := await source.read(65536):
            await asyncio.sleep(delay_s)
            to.write(data)
            await to.drain()
    to.close()


async def serve(address: str, target: str, port: int, seconds: float) -> None:
    """Serve until the process ends."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection(target, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, requests, seconds), _copy(answers, writer, 0))

    server = await asyncio.start_server(connect, address, port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m metal_lab.delay")
    parser.add_argument("address")
    parser.add_argument("target")
    parser.add_argument("port", type=int)
    parser.add_argument("seconds", type=float)
    asyncio.run(serve(**vars(parser.parse_args())))
