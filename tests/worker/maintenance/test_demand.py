"""The share of a worker in the demand of its queues: the share alone, and read from engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from windlass.core.introduction import Introduction
from windlass.core.queues.load import QueueLoad
from windlass.engine.contract import SessionCommand, SessionRecord
from windlass.worker.maintenance.demand import (
    ServingWorker,
    WorkerDemand,
    list_others,
    name_queues,
    share_demand,
)

MAIL, REPORTS = frozenset({"mail"}), frozenset({"reports"})
EVERY: frozenset[str] = frozenset()


def session(
    name: str,
    worker: int = 1,
    *,
    slots: int = 10,
    most: int = 0,
    queues: tuple[str, ...] = (),
    is_solo: bool = False,
    expires_in_ms: int = 1_000,
    command: SessionCommand = SessionCommand.RUN,
) -> SessionRecord:
    info = Introduction(
        host="web-1",
        worker=worker,
        slots=slots,
        queues=queues,
        is_solo=is_solo,
        least_children=1 if most else 0,
        most_children=most,
    )
    return SessionRecord(
        session=name, expires_in_ms=expires_in_ms, jobs=0, info=info.pack(), command=command
    )


def test_a_worker_without_others_has_all_of_the_demand() -> None:
    loads = [
        QueueLoad(queue="mail", ready=100, running=7, oldest_s=3, demand_slots=30, mean_run_s=2),
        QueueLoad(queue="low", ready=5, running=1, oldest_s=9, demand_slots=2, mean_run_s=None),
    ]
    assert share_demand(loads, 80, []) == WorkerDemand(105, 8, 9, 32, 205, 2)


@pytest.mark.parametrize(
    ("others", "slots"),
    [
        ([ServingWorker(EVERY, 80)], 15),
        ([ServingWorker(EVERY, 80)] * 9, 3),
        ([ServingWorker(MAIL, 20), ServingWorker(REPORTS, 500)], 24),
    ],
)
def test_workers_share_the_demand_of_a_queue_by_capacity(
    others: list[ServingWorker], slots: float
) -> None:
    load = QueueLoad(queue="mail", ready=60, demand_slots=30, mean_run_s=1)
    demand = share_demand([load], 80, others)
    assert demand.slots == pytest.approx(slots)
    assert demand.work_s == pytest.approx(2 * slots)
    assert demand.ready == 60, "of all workers"


class CountedPasses(list[ServingWorker]):
    """A list that counts how often it is passed."""

    passes = 0

    def __iter__(self) -> Iterator[ServingWorker]:
        self.passes += 1
        return super().__iter__()


def test_other_workers_are_passed_once_however_many_queues_there_are() -> None:
    others = CountedPasses([ServingWorker(MAIL, 20), ServingWorker(EVERY, 60)])
    loads = [QueueLoad(queue=f"q{number}", demand_slots=8) for number in range(50)]
    assert share_demand(loads, 60, others).slots == pytest.approx(50 * 4)
    assert others.passes == 1


def test_a_worker_whose_queues_cannot_be_read_serves_every_queue() -> None:
    assert list_others([session("newer", queues=("mail=5",))], ()) == [ServingWorker(EVERY, 10)]


@pytest.mark.parametrize("why", ["paused", "held"])
def test_ready_jobs_that_cannot_start_are_no_backlog(why: str) -> None:
    load = QueueLoad(queue="mail", ready=60, running=3, oldest_s=99, demand_slots=3)
    load = replace(load, **{why: True})
    assert share_demand([load], 80, []) == WorkerDemand(0, 3, 0, 3, 0, 0)


def test_the_capacity_of_a_worker_is_that_of_its_children_or_of_the_most_of_them() -> None:
    sessions = [
        session("a1", 1, slots=10),
        session("a2", 1, slots=10),
        session("b1", 2, slots=5, most=8, queues=("mail:3,low",)),
        session("b2", 2, slots=5, most=8, queues=("mail:3,low",)),
    ]
    assert list_others(sessions, ()) == [
        ServingWorker(EVERY, 20),
        ServingWorker(frozenset({"mail", "low"}), 40),
    ]


def test_workers_that_claim_nothing_have_no_share() -> None:
    sessions = [
        session("own", 1),
        session("solo", 2, is_solo=True),
        session("gone", 3, expires_in_ms=-1),
        session("quiet", 4, command=SessionCommand.QUIET),
        session("stopping", 5, command=SessionCommand.STOP),
    ]
    assert list_others(sessions, {"own"}) == []


def test_a_worker_serves_the_queues_of_all_its_tiers() -> None:
    assert name_queues(("critical", "default:5,low:1")) == {"critical", "default", "low"}
