"""The end of a child that is asked to hand back its jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from windlass.worker.child.main import Child
from windlass.worker.ipc.channel import HandBack


def test_a_shutdown_that_begins_at_this_moment_waits_for_no_hook() -> None:
    """The fetcher has reported all jobs, so it reads no command any more."""
    asked: list[str] = []
    child: Any = Child.__new__(Child)  # without a supervisor
    child._is_ending = False
    child._fetcher = SimpleNamespace(hand_back=lambda: asked.append("fetcher"))
    child._assembly = SimpleNamespace(hooks=SimpleNamespace(abandon=lambda: asked.append("hooks")))
    child._table = SimpleNamespace(answered_at=lambda: 1)
    child._handle(HandBack())
    assert sorted(asked) == ["fetcher", "hooks"]
