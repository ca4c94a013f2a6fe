"""A process that is suspended in the middle of a call of the PostgreSQL engine.

A proxy passes the first bytes of the call, and the process gets SIGSTOP. Later the proxy passes the
others, and the process continues.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from types import TracebackType
from typing import Final, Self

from tests.engine.conftest import new_job
from tests.proxy import Proxy, Side, Then
from tests.worker.yard import PROJECT, until
from windlass.engine.contract import EngineOptions, Plan, Succeeded
from windlass.engine.postgres.connections import call_mark
from windlass.engine.postgres.engine import PostgresEngine
from windlass.engine.postgres.url import read_address

SESSION: Final = "suspended"
#: Longer than a test: only a test lets it pass.
LEASE_MS: Final = 120_000
NONCE: Final = "00" * 16
#: The number of jobs that it reports, with their results: a round trip of more than 8 kB.
REPORTED: Final = 100
RESULT: Final = b"r" * 1_000
#: After how many bytes of the report it is suspended: the session is locked before them.
REPORT_PART: Final = 32_768
#: The number of jobs that it claims, and the size of each: more than the system keeps for a socket.
CLAIMED: Final = 24
CALL: Final = b"c" * 1_000_000


def report(engine: PostgresEngine) -> str:
    done = [
        Succeeded(id=new_job(number).id, token=NONCE, result=RESULT, result_ttl_ms=60_000)
        for number in range(REPORTED)
    ]
    turn = engine.turn(SESSION, done, "11" * 16, Plan(), 1)
    return " ".join(f"{verdict}:{number}" for verdict, number in Counter(turn.verdicts).items())


def claim(engine: PostgresEngine) -> str:
    turn = engine.turn(SESSION, [], NONCE, Plan(most_bytes=1 << 40), CLAIMED)
    return f"claimed:{len(turn.batch.claims)}"


CALLS: Final = {"report": report, "claim": claim}


class SuspendedProcess:
    """Suspended after a number of bytes of its call, from a proxy on."""

    def __init__(self, url: str, call: str, proxy: Proxy, side: Side, after_bytes: int) -> None:
        self._proxy = proxy
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, url, call],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._read() == "ready"
        proxy.cut(side, after_bytes, Then.FREEZE)
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        until(lambda: proxy.cuts, "the first part was sent")
        self._process.send_signal(signal.SIGSTOP)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def resume(self) -> str:
        """Let it continue; return what came of its call."""
        self._proxy.heal()
        self._process.send_signal(signal.SIGCONT)
        return self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def main(url: str, call: str) -> None:
    # With a long deadline, it repeats the call when it continues.
    engine = PostgresEngine(read_address(url), EngineOptions(lease_ms=LEASE_MS, timeout_ms=60_000))
    engine._connections.mark = call_mark("windlass", 0)  # others may end the call before
    engine.stats()
    print("ready", flush=True)
    sys.stdin.readline()
    print(CALLS[call](engine), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
