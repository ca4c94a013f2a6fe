"""Hard time-outs in the supervisor, with fake children and real slot tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.worker.supervisor.test_retirement import Wooden
from tests.worker.yard import until
from windlass.core.failures import FailureText
from windlass.core.states import Reason
from windlass.engine.contract import Buried, Outcome, Retried
from windlass.worker.ipc.channel import MOST_IDS, Cancel, Disown, DrainChild
from windlass.worker.ipc.shared_memory import NEVER, Limit, SlotTable
from windlass.worker.run.slot_queue import Lease
from windlass.worker.supervisor.child_process import ChildProcess
from windlass.worker.supervisor.hard_timeouts import Enforcement
from windlass.worker.supervisor.reactor import Reactor
from windlass.worker.supervisor.retirement import Retirements


class Child(Wooden):
    def __init__(self, *, is_solo: bool = False) -> None:
        super().__init__(is_solo=is_solo)
        self.table = SlotTable.create(2)
        self.has_limits = False
        self.was_killed = False
        self.disowned: set[int] = set()
        self.retries: list[tuple[float, Retried]] = []

    def has_ended(self) -> bool:
        return False


class Scene:
    def __init__(self, child: Child) -> None:
        self.reactor = Reactor([])
        self.outcomes: list[Outcome] = []
        self.killed: list[Child] = []
        self.replaced = 0
        self._child = cast(ChildProcess, child)
        retirements = Retirements(self.reactor, 2, self._replace, self._kill)
        retirements.grace_s = 60.0
        self._enforcement = Enforcement(
            self.reactor,
            20,
            living=lambda: [self._child],
            retirements=retirements,
            finish=self.outcomes.append,
            kill=self._kill,
        )

    def _replace(self) -> None:
        self.replaced += 1

    def _kill(self, child: ChildProcess) -> None:
        self.killed.append(cast(Child, child))

    def watch(self) -> None:
        self._enforcement.watch(self._child)

    def report_retries(self) -> None:
        self._enforcement.report_retries(self._child)

    def cancel(self, *ids: str) -> None:
        self._enforcement.cancel(self._child, ids)

    def wait_for(self, happened: Callable[[], object]) -> None:
        def look() -> object:
            self.reactor.wait()
            return happened()

        with self.reactor:
            until(look, "what was waited for")

    def wait_a_while(self) -> None:
        ticks: list[int] = []
        self.reactor.after(0.25, lambda: ticks.append(1))
        self.wait_for(lambda: ticks)


def limit(generation: int, *, ends_at: float = 0.0, delay_ms: int = 7, id: str = "job") -> Limit:
    return Limit(generation, ends_at, 1_000, delay_ms, id, "token")


def test_a_run_beyond_its_limit_loses_its_job_once_and_its_child_retires() -> None:
    child = Child()
    scene = Scene(child)
    child.table.limit(0, limit(1, delay_ms=60_000))
    child.table.limit(1, limit(2, ends_at=NEVER, id="neighbour"))
    scene.watch()
    scene.wait_a_while()
    assert scene.outcomes == []  # its code still runs
    scene.report_retries()
    scene.report_retries()
    [outcome] = scene.outcomes
    assert isinstance(outcome, Retried)
    assert (outcome.id, outcome.token) == ("job", "token")
    assert 0 < outcome.delay_ms < 60_000  # counted from the time-out
    error = FailureText.unpack(outcome.error)
    assert error.type == "windlass.errors.TimedOut"
    assert "time-out, 1s, and did not end within 20ms" in error.message
    assert child.sent == [Disown("job", "token"), DrainChild()]
    assert (scene.replaced, scene.killed, child.disowned) == (1, [], {1})


def test_without_attempts_left_it_is_buried() -> None:
    child = Child()
    scene = Scene(child)
    child.table.limit(0, limit(1, delay_ms=-1))
    scene.watch()
    scene.wait_for(lambda: scene.outcomes)
    [outcome] = scene.outcomes
    assert isinstance(outcome, Buried)
    assert (outcome.reason, outcome.started) == (Reason.TIMED_OUT, True)
    assert outcome.fingerprint == FailureText.unpack(outcome.error).fingerprint


def test_a_solo_child_is_killed_and_begins_nothing_more() -> None:
    child = Child(is_solo=True)
    scene = Scene(child)
    child.table.limit(0, limit(1, delay_ms=0))
    scene.watch()
    scene.wait_for(lambda: scene.killed)
    assert scene.outcomes == []
    scene.report_retries()
    [outcome] = scene.outcomes
    assert isinstance(outcome, Retried)
    assert (outcome.id, outcome.delay_ms) == ("job", 0)
    assert (scene.killed, child.sent, child.table.is_shut()) == ([child], [], True)


class Passing(SlotTable):
    """A table whose run ends, and is followed by another, just before the supervisor acts."""

    def shut(self, shut: bool) -> None:
        if shut:
            self.limit(0, limit(2, ends_at=NEVER, id="next"))
        super().shut(shut)


@pytest.mark.parametrize("wish", ["time-out", "cancellation"])
def test_the_job_that_comes_next_is_never_hit(wish: str) -> None:
    child = Child(is_solo=True)
    child.table = Passing.create(2)
    child.table.limit(0, limit(1, ends_at=0.0 if wish == "time-out" else NEVER))
    scene = Scene(child)
    if wish == "time-out":
        scene.watch()
    else:
        scene.cancel("job")
    scene.wait_a_while()
    assert (scene.killed, scene.outcomes) == ([], [])
    assert not child.table.is_shut()


def test_a_cancelled_job_that_runs_alone_is_told_first_and_then_its_child_is_killed() -> None:
    child = Child(is_solo=True)
    scene = Scene(child)
    child.table.limit(0, limit(1, ends_at=NEVER))
    scene.cancel("job", "unknown")
    assert (child.sent, scene.killed) == ([Cancel(("job", "unknown"))], [])
    scene.wait_for(lambda: scene.killed)
    assert scene.outcomes == []  # the end of its session ends the job


def test_one_beside_others_is_told_and_nothing_more() -> None:
    child = Child()
    scene = Scene(child)
    child.table.limit(0, limit(1, ends_at=NEVER))
    scene.cancel("job")
    scene.wait_a_while()
    assert (child.sent, scene.killed) == ([Cancel(("job",))], [])


def test_many_cancelled_jobs_are_named_in_several_messages() -> None:
    child = Child()
    ids = [f"job-{number}" for number in range(2 * MOST_IDS + 1)]
    scene = Scene(child)
    with scene.reactor:
        scene.cancel(*ids)
    told = [len(command.ids) for command in child.sent if isinstance(command, Cancel)]
    assert told == [MOST_IDS, MOST_IDS, 1]


def test_a_child_that_is_shut_starts_nothing() -> None:
    table = SlotTable.create(1)
    lease = Lease(table, 30_000, is_solo=True)
    lease.confirm(100.0)
    assert lease.is_held(100.0)
    table.shut(True)
    assert not lease.is_held(100.0)
    table.shut(False)
    assert lease.is_held(100.0)


def test_a_limit_that_is_being_written_is_not_read() -> None:
    table = SlotTable.create(1)
    assert list(table.limits()) == []
    table.limit(0, limit(5))
    assert [one.generation for one in table.limits()] == [5]
    table._memory[table._limits_at] = 6  # the first byte of the next one, and no more yet
    assert list(table.limits()) == []
