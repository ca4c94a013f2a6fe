"""`windlass copy` loses and repeats none of 100,000 jobs, although it is killed 20 times.

1. A source gets jobs in every state that is copied, in queues with priorities, labels, ages and
   limits, with histories, unique keys and idempotency keys, and schedules.
2. `windlass copy` moves them through all `ENGINES` in turn. The proof kills the command with
   SIGKILL at random moments and gives it again, until the command ends by itself.
3. After each copy both sides count the same, every job is the same as in the beginning, and only
   the last engine would start a job.
4. The jobs are copied once more through all engines, without kills, and timed.
5. In the end the last engine runs all jobs: each of them once.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from tests.cli.forks import SCRIPT
from tests.contract.variants import fresh_url
from tests.engine_copy.stock import save_schedule, schedules_of
from windlass import Windlass
from windlass.core.states import Reason, State
from windlass.engine.contract import (
    Buried,
    Claim,
    Engine,
    Filter,
    JobRecord,
    NewJob,
    Outcome,
    Plan,
    QueueChange,
    Released,
    Retried,
    Revival,
    Succeeded,
    UniqueKey,
    Unroutable,
)
from windlass.engine_copy.jobs import COPIED
from windlass.testing.contract.world import claim_jobs

#: The names of the engines, in the order of the copies.
ENGINES: Final = ("sqlite-file", "postgres", "redis", "sqlite-file")
#: kind -> number of its jobs
NUMBERS: Final = {
    "plain": 45_000,
    "urgent": 5_000,
    "labelled": 5_000,
    "aged": 5_000,
    "unique": 5_000,
    "keyed": 5_000,
    "scheduled": 10_000,
    "retrying": 5_000,
    "dead": 10_000,
    "alone": 2_000,
    "held": 2_000,
    "paused": 1_000,
}
KILLS: Final = 20
#: The fewest jobs that a copy must copy and compare in a second.
LEAST_PER_S: Final = 1_000
_SEED: Final = 17
_DAY_MS: Final = 24 * 60 * 60 * 1000
_FILLER: Final = "filler@v1"
_ERROR: Final = b"an error of usual length, with a few lines of its traceback " * 5
#: kind -> how its jobs end their first run
_OUTCOMES: Final[dict[str, Callable[[str, str], Outcome]]] = {
    "dead": lambda id, token: Buried(id=id, token=token, reason=Reason.EXHAUSTED, error=_ERROR),
    "retrying": lambda id, token: Retried(id=id, token=token, delay_ms=_DAY_MS, error=_ERROR),
    "alone": lambda id, token: Released(id=id, token=token, started=True, alone=True),
    "held": lambda id, token: Unroutable(id=id, token=token, why=b"unknown"),
}
_PAGE: Final = 500
_nonces = count(1)


def prove(folder: Path, engines: Sequence[str] = ENGINES) -> Iterator[str]:
    urls = _new_urls(folder, [*engines, *engines[1:]])
    killed, timed = urls[: len(engines)], urls[len(engines) - 1 :]
    with Windlass(urls[0]) as app:
        _fill(app.engine)
        jobs, schedules = _jobs_of(app.engine), schedules_of(app.engine)
    numbers = Counter((record.queue, record.state) for record in jobs.values())
    yield f"{len(jobs):,} jobs in {len(numbers)} kinds of queue and state"
    rng, left = random.Random(_SEED), KILLS
    for hops, (source, target) in enumerate(pairwise(killed), 1):
        share = left // (len(killed) - hops)
        kills = _copy_with_kills(source, target, share, rng)
        left -= kills
        _compare(source, target, jobs, schedules)
        yield f"{engines[hops - 1]} to {engines[hops]}: killed {kills} times, counts and jobs equal"
    assert left == 0, f"{left} of {KILLS} kills came too late"
    for hops, (source, target) in enumerate(pairwise(timed), 1):
        begin_s = time.monotonic()
        report = _copy(source, target)
        rate = len(jobs) / (time.monotonic() - begin_s)
        assert report["copied"] == len(jobs)
        assert rate > LEAST_PER_S, f"only {rate:,.0f} jobs in a second"
        yield f"{engines[hops - 1]} to {engines[hops]}: {rate:,.0f} jobs/s copied and compared"
    for url in urls[:-1]:
        with Windlass(url) as app:
            assert not _claim(app.engine, Plan(labels=("gpu",))), f"{url} still runs jobs"
    with Windlass(urls[-1]) as app:
        ran = _run_all(app.engine)
    assert ran.keys() == {record.id for record in jobs.values()}, "not the jobs of the source"
    assert set(ran.values()) == {1}, f"{ran.total() - len(ran)} runs too many"
    yield f"{len(ran):,} jobs ran, each once"


def _new_urls(folder: Path, engines: Sequence[str]) -> list[str]:
    urls = []
    for number, engine in enumerate(engines):
        own = folder / str(number)
        own.mkdir()
        urls.append(fresh_url(engine, own))
    return urls


# -------------------------------------------------------------------------------------- the copies


def _copy_with_kills(source: str, target: str, kills: int, rng: random.Random) -> int:
    """Copy, and kill the copy this often on its way."""
    done = 0
    while done < kills:
        with _start(source, target) as copy:
            try:
                copy.wait(0.3 + rng.random() * 2.5)
            except subprocess.TimeoutExpired:
                copy.kill()
                done += 1
            else:
                break
    _copy(source, target)
    return done


def _copy(source: str, target: str) -> Any:
    with _start(source, target) as copy:
        out, err = copy.communicate()
    assert copy.returncode == 0, err
    return msgspec.json.decode(out)


def _start(source: str, target: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [SCRIPT, "copy", "--from", source, "--to", target, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _compare(
    source: str, target: str, jobs: dict[str, JobRecord], schedules: dict[str, Any]
) -> None:
    """Compare the target with the jobs of the beginning, and the counters of both sides."""
    with Windlass(source) as one, Windlass(target) as other:
        there = _jobs_of(other.engine)
        assert there.keys() == jobs.keys(), "other jobs"
        wrong = [id for id, record in jobs.items() if _lasting(there[id]) != _lasting(record)]
        assert not wrong, f"{len(wrong)} jobs differ: {there[wrong[0]]} {jobs[wrong[0]]}"
        assert _counted(other.engine) == _counted(one.engine), "other counters"
        assert schedules_of(other.engine) == schedules, "other schedules"
        assert one.engine.check() == other.engine.check() == []


def _counted(engine: Engine) -> dict[str, dict[State, int]]:
    found = {
        line: {state: number for state, number in states.items() if state in COPIED}
        for line, states in engine.stats().queues.items()
    }
    return {line: states for line, states in found.items() if states}


def _lasting(record: JobRecord) -> JobRecord:
    """A record without the id, whose partition may differ."""
    return replace(record, id="")


def _jobs_of(engine: Engine) -> dict[str, JobRecord]:
    """All jobs that are copied, whole, by the digits of their ids that no partition changes."""
    found: dict[str, JobRecord] = {}
    for state in sorted(COPIED):
        cursor, is_first = None, True
        while is_first or cursor is not None:
            is_first = False
            page = engine.find(Filter(state=state), cursor, _PAGE)
            cursor = page.cursor
            for record in engine.get([one.id for one in page.records]):
                assert record is not None
                found[record.id[:10] + record.id[12:]] = record
    return found


# -------------------------------------------------------------------------------------- the source


def _fill(engine: Engine) -> None:
    for kind in ("dead", "retrying", "alone", "held"):
        _put(engine, kind, queue="runs")
        while claims := _claim(engine, Plan(queues=("runs",)), _FILLER):
            engine.finish([_OUTCOMES[kind](claim.id, claim.token) for claim in claims])
    _put(engine, "paused", queue="paused", task="paused")
    engine.pause_task("paused")
    plan = Plan(queues=("paused",))
    while claim_jobs(engine, _FILLER, f"{next(_nonces):040}", plan, 1).next_in_ms == 0:
        pass  # a claim holds a bounded number
    engine.close(_FILLER, [], "ended")
    engine.change_queue("aged", QueueChange(ageing_ms=1_000))
    _put(engine, "plain", queue="mail")
    _put(engine, "urgent", queue="mail", priority=50)
    _put(engine, "labelled", queue="mail+gpu", expires_in_ms=9 * _DAY_MS)
    _put(engine, "aged", queue="aged", payload=b"\0" * 300)
    _put(engine, "scheduled", queue="later", run_in_ms=_DAY_MS)
    _put(engine, "unique", queue="other", unique=True)
    _put(engine, "keyed", queue="other", idempotent=True)
    engine.change_queue("other", QueueChange(max_waiting=10))
    for number in range(20):
        save_schedule(engine, f"schedule {number}", is_paused=number % 2 == 1)


def _put(
    engine: Engine,
    kind: str,
    queue: str,
    *,
    task: str = "task",
    payload: bytes = b"{}",
    unique: bool = False,
    idempotent: bool = False,
    **fields: Any,
) -> None:
    for begin in range(0, NUMBERS[kind], _PAGE):
        jobs = []
        for number in range(begin, begin + _PAGE):
            key = f"{kind} {number}" if idempotent else None
            own = UniqueKey(key=f"{kind} {number}") if unique else None
            id = engine.new_id(task, queue, key, None if own is None else own.key)
            jobs.append(
                NewJob(
                    id,
                    task,
                    queue,
                    payload,
                    unique=own,
                    idempotency_key=key,
                    fingerprint="f",
                    **fields,
                )
            )
        engine.put(jobs)


def _claim(engine: Engine, plan: Plan, session: str = "") -> tuple[Claim, ...]:
    nonce = f"{next(_nonces):040}"
    return claim_jobs(engine, session or f"proof-{nonce}", nonce, plan, _PAGE).claims


# ---------------------------------------------------------------------------------------- the runs


def _run_all(engine: Engine) -> Counter[str]:
    """Run all jobs, also those that wait, are held or dead."""
    ran: Counter[str] = Counter()
    while dead := engine.find(Filter(state=State.DEAD), None, _PAGE).records:
        engine.revive([Revival(id=record.id) for record in dead])
    while engine.resume_task("paused"):
        pass
    while engine.adopt(["task"]):
        pass
    engine.clock_offset_ms += 2 * _DAY_MS
    for suspects in (False, True):
        plan = Plan(labels=("gpu",), suspects=suspects)
        while claims := _claim(engine, plan):
            ran.update(claim.id for claim in claims)
            engine.finish([Succeeded(id=one.id, token=one.token) for one in claims])
    return ran
