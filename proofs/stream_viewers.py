"""Viewers of the dashboard by script: many event streams in a process of their own.

`python -m proofs.stream_viewers PORT TOKENS` reads commands from its input. `open` opens a stream
for each access token in the file TOKENS, and answers when each has had an event. `close` closes the
streams. Each answer is one line, with the number of events since the last `open`.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from pathlib import Path


class Viewers:
    """Open streams, and the events that they have had."""

    def __init__(self, port: int, tokens: list[str]) -> None:
        self._port = port
        self._tokens = tokens
        self._watching: list[asyncio.Task[None]] = []
        self._seen = [0] * len(tokens)

    async def open(self) -> int:
        self._seen = [0] * len(self._tokens)
        self._watching = [asyncio.create_task(self._watch(at)) for at in range(len(self._seen))]
        while not all(self._seen):
            for one in self._watching:
                if one.done():
                    one.result()  # raises what went wrong
            await asyncio.sleep(0.05)
        return sum(self._seen)

    async def close(self) -> int:
        for one in self._watching:
            one.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        return sum(self._seen)

    async def _watch(self, at: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await self._read(reader, writer, at)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _read(self, reader: StreamReader, writer: StreamWriter, at: int) -> None:
        token = self._tokens[at]
        head = f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}"
        writer.write(f"{head}\r\n\r\n".encode())
        status = await reader.readline()
        assert b" 200 " in status, status
        while line := await reader.readline():
            self._seen[at] += line.startswith(b"event: stats")
        raise ConnectionError("the server has ended a stream")


async def main(port: int, tokens: list[str]) -> None:
    viewers = Viewers(port, tokens)
    while command := await asyncio.to_thread(sys.stdin.readline):
        number = await (viewers.open() if command.strip() == "open" else viewers.close())
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]).read_text().split()))
