"""The reactor of a supervisor."""

from __future__ import annotations

import socket
from functools import partial

from windlass.worker.supervisor.reactor import Reactor


def test_a_source_that_was_just_closed_is_not_read() -> None:
    """Two children speak at once, and hearing the first ends the second."""
    pairs = [socket.socketpair() for _ in range(2)]
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        other, _ = pairs[1 - number]
        reactor.unwatch(other)
        other.close()

    with Reactor([]) as reactor:
        for number, (reader, writer) in enumerate(pairs):
            reactor.watch(reader, partial(hear, number))
            writer.send(b"x")
        reactor.wait()
        assert len(heard) == 1
        reactor.unwatch(pairs[heard[0]][0])
    for reader, writer in pairs:
        reader.close()
        writer.close()


def test_a_post_is_done_by_the_one_who_waits() -> None:
    done: list[str] = []
    with Reactor([]) as reactor:
        reactor.post(lambda: done.append("posted"))
        reactor.wait()
        assert done == ["posted"]
        reactor.after(0, lambda: done.append("in time"))
        reactor.wait()
        assert done == ["posted", "in time"]
