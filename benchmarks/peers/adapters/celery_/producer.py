"""The enqueue calls of Celery. It has no bulk call and no coroutines."""

from __future__ import annotations

from benchmarks.peers.adapters.celery_.tasks import app
from benchmarks.peers.adapters.protocol import arguments, serve


class CeleryProducer:
    def single(self, name: str, count: int) -> None:
        delay = app.tasks[name].delay
        for number in range(count):
            delay(*arguments(name, number))


if __name__ == "__main__":
    serve(CeleryProducer())
