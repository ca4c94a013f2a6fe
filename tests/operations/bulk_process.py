"""A process that does bulk operations: `python bulk_process.py URL VERB NUMBER LEASE`.

After the call of the verb with this number took effect, and before the runner gets its answer, the
process prints a line and halts until SIGUSR1. It ends when its standard input is closed.
"""

from __future__ import annotations

import signal
import sys
from typing import Any, cast

from windlass import Windlass
from windlass.engine.contract import Engine
from windlass.operations.runner import OperationRunner


class Halting:
    """An engine that halts once."""

    def __init__(self, engine: Engine, verb: str, number: int) -> None:
        self._engine = engine
        self._verb = verb
        self._left = number

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._engine, name)
        return real if name != self._verb else self._halting(real)

    def _halting(self, real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            answer = real(*arguments)
            self._left -= 1
            if self._left == 0:
                print("halted", flush=True)
                signal.sigwait([signal.SIGUSR1])
                print("continued", flush=True)
            return answer

        return call


def main(url: str, verb: str, number: str, lease_s: str) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    app = Windlass(url)
    app.wrap_engine(lambda engine: cast(Engine, Halting(engine, verb, int(number))))
    with OperationRunner(app, lease_s=float(lease_s)):
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
