"""The enqueue calls of Dramatiq. It has no bulk call and no coroutines."""

from __future__ import annotations

from benchmarks.peers.adapters.dramatiq_.tasks import broker
from benchmarks.peers.adapters.protocol import arguments, serve


class DramatiqProducer:
    def single(self, name: str, count: int) -> None:
        send = broker.get_actor(name).send
        for number in range(count):
            send(*arguments(name, number))


if __name__ == "__main__":
    serve(DramatiqProducer())
