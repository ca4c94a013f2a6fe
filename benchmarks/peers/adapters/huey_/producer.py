"""The enqueue calls of Huey. It has no bulk call and no coroutines."""

from __future__ import annotations

from benchmarks.peers.adapters.huey_ import tasks
from benchmarks.peers.adapters.protocol import arguments, serve


class HueyProducer:
    def single(self, name: str, count: int) -> None:
        call = getattr(tasks, name)
        for number in range(count):
            call(*arguments(name, number))


if __name__ == "__main__":
    serve(HueyProducer())
