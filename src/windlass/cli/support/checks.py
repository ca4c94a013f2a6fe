"""The checks of `windlass doctor`, except those of the engine itself.

1. The program: versions, the app and its tasks, ignored settings.
2. The round trip to the engine, if the engine does not measure it itself.
3. The jobs: whether the engine was ever used, live, silent and dead workers, queues that no worker
   serves, paused queues and tasks, jobs of unknown tasks, and dead letters.

The checks read counters and at most `holds.LOOKED_AT` jobs: they may run while workers run.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from windlass.app import Windlass
from windlass.cli.support.holds import find_held, what_was_cut, why_held
from windlass.cli.support.wording import count, has_stored, never_stored, span
from windlass.core import installed_version
from windlass.core.introduction import Introduction
from windlass.core.queues.labels import labels_of, may_take, queue_of
from windlass.core.queues.plans import read_tiers
from windlass.core.states import WAITING, State
from windlass.engine.contract import Engine, Filter, Finding, Grade, JobRecord, Stats
from windlass.engine_copy.documents import target_of_copy
from windlass.fleet import WorkerInfo, WorkerState, read_fleet
from windlass.settings import find_overruled
from windlass.worker.ipc.process_identity import has_died, machine

#: The largest number of dead letters without advice.
MANY_DEAD: Final = 1_000
#: Advice for jobs that no worker of this app runs.
RUN_ELSEWHERE: Final = "start the program that runs its remote tasks"
#: The doctor gives advice if a round trip takes longer, in milliseconds.
SLOW_MS: Final = 50.0
_ROUNDS: Final = 5


def examine_program(app: Windlass, name: str) -> Iterator[Finding]:
    """Check the program. `name` is the name of the app, empty if only a url is given."""
    import platform  # slow to import

    python = f"Python {platform.python_version()}, windlass {installed_version()}"
    yield Finding(Grade.OK, "program", python)
    if not name:
        yield Finding(Grade.OK, "app", "not checked: no --app was given")
    elif app.tasks or app.remote_tasks:
        remote = count(len(app.remote_tasks), "remote task")
        text = f"{name}, {count(len(app.tasks), 'task')}"
        yield Finding(Grade.OK, "app", f"{text}, {remote}" if app.remote_tasks else text)
    else:
        text = f"{name} has no tasks: import the modules that declare them where the app is made"
        yield Finding(Grade.ADVICE, "app", text)
    overruled = find_overruled(app.settings, os.environ) if name else {}
    for setting, variable in overruled.items():
        text = f"{variable} ignored: overridden in code by {setting}"
        yield Finding(Grade.ADVICE, "settings", f"{text}. Remove one of them")
    if not overruled:
        yield Finding(Grade.OK, "settings", "none is ignored; `windlass config` shows them")


def examine_answers(engine: Engine) -> Finding:
    took_ms = []
    for _ in range(_ROUNDS):
        began_at = time.perf_counter()
        engine.queues()
        took_ms.append((time.perf_counter() - began_at) * 1000)
    usual_ms = sorted(took_ms)[_ROUNDS // 2]
    text = f"{usual_ms:.2f} ms, the median of {_ROUNDS}"
    if usual_ms > SLOW_MS:
        return Finding(Grade.ADVICE, "round trip", f"{text}: check the disk and other load")
    return Finding(Grade.OK, "round trip", text)


# -------------------------------------------------------------------------------------------- jobs


def examine_jobs(app: Windlass) -> Iterator[Finding]:
    engine = app.engine
    if not engine.is_used():  # further calls would set up the engine
        yield Finding(Grade.ADVICE, "jobs", never_stored(engine.location))
        return
    stats, fleet = engine.stats(), read_fleet(engine)
    if not has_stored(stats):
        yield Finding(Grade.ADVICE, "jobs", never_stored(engine.location))
    dead = _find_dead(engine)
    alive = [worker for worker in fleet if not dead.issuperset(_sessions(worker))]
    yield from _workers(alive, _ready(engine, stats), app)
    yield from (_died(worker) for worker in fleet if worker not in alive)
    if alive:
        yield from _served(stats, alive, remote_lines(app))
    yield from _paused(engine, stats)
    yield from _paused_tasks(engine)
    yield from _unroutable(engine, stats, fleet, app.remote_tasks)
    yield dead_letters(_sum(stats, [State.DEAD]))


def remote_lines(app: Windlass) -> set[str]:
    """The queues, with labels, of remote tasks alone: no worker of this app should serve them."""
    own = {task.builder.line for task in app.tasks.values()}
    return {task.builder.line for task in app.remote_tasks.values()} - own


def _sum(stats: Stats, states: Sequence[State]) -> int:
    return sum(counts.get(state, 0) for counts in stats.queues.values() for state in states)


def _ready(engine: Engine, stats: Stats) -> int:
    """How many ready jobs wait for a worker. Jobs that a copy has paused do not."""
    if target_of_copy(engine) is None:
        return _sum(stats, [State.READY])
    paused = {record.queue for record in engine.queues() if record.paused}
    return sum(
        counts.get(State.READY, 0)
        for line, counts in stats.queues.items()
        if queue_of(line) not in paused
    )


def _workers(fleet: Sequence[WorkerInfo], ready: int, app: Windlass) -> Iterator[Finding]:
    heard = [worker for worker in fleet if not worker.silent]
    if heard:
        children = sum(len(worker.children) for worker in heard)
        text = f"{count(len(heard), 'worker')} with {count(children, 'child', 'children')}"
        quiet = sum(worker.state is WorkerState.QUIET for worker in heard)
        text = f"{text}, {quiet} of them quiet" if quiet else text
        yield Finding(Grade.OK, "workers", text)
    yield from (_silent(worker) for worker in fleet if worker.silent)
    if not fleet and ready:
        text = f"no worker is running, and {count(ready, 'ready job')} will wait until one starts"
        is_remote = bool(app.remote_tasks) and not app.tasks
        start = RUN_ELSEWHERE if is_remote else "windlass worker MODULE:ATTR"
        yield Finding(Grade.PROBLEM, "workers", f"{text}: {start}")
    elif not fleet:
        text = "no worker is running: jobs wait until one starts"
        yield Finding(Grade.ADVICE, "workers", text)


def _silent(worker: WorkerInfo) -> Finding:
    """A worker that may be dead: its lease has not expired yet."""
    jobs = sum(child.jobs for child in worker.silent)
    age = span(max(child.beat_age_ms for child in worker.silent) // 1_000 * 1_000)
    left = span(max(child.expires_in_ms for child in worker.silent) // 1_000 * 1_000)
    text = f"worker {worker.place} on {worker.host} has not sent a heartbeat for {age}"
    if not jobs:
        return Finding(Grade.ADVICE, "workers", f"{text}: check that it runs. It holds no jobs")
    back = count(jobs, "job returns", "jobs return")
    advice = f"check that it runs. Its {back} to the queue when its lease ends, in {left}"
    return Finding(Grade.ADVICE, "workers", f"{text}: {advice}")


def _find_dead(engine: Engine) -> set[str]:
    """The sessions of workers that died on this machine. The engine learns of it only when their
    leases end, or when the next worker starts here."""
    here = machine()
    return {
        record.session
        for record in engine.sessions()
        if has_died(Introduction.unpack(record.info), here)
    }


def _sessions(worker: WorkerInfo) -> set[str]:
    return {child.session for child in worker.children}


def _died(worker: WorkerInfo) -> Finding:
    text = f"worker {worker.pid} on {worker.host}, this machine, has died"
    if worker.jobs:
        back = count(worker.jobs, "job returns", "jobs return")
        left = span(max(child.expires_in_ms for child in worker.children) // 1_000 * 1_000)
        text = f"{text}. Its {back} to the queue when a worker starts here, or in {left}"
    return Finding(Grade.ADVICE, "workers", text)


def _served(
    stats: Stats, fleet: Sequence[WorkerInfo], remote: Collection[str]
) -> Iterator[Finding]:
    """Find ready jobs that no worker may claim because it lacks their queue or labels. `remote` are
    the lines that only other programs serve."""
    alone = {
        line: number
        for line, counts in sorted(stats.queues.items())
        if (number := counts.get(State.READY, 0))
        and not any(_serves(worker, line) for worker in fleet)
    }
    for line, number in alone.items():
        start = RUN_ELSEWHERE if line in remote else _start_for(line, fleet)
        text = f"{_describe_unserved(line, number)}: {start}"
        yield Finding(Grade.PROBLEM, "queues", text)
    idle = [] if alone else list(_commanded(stats, fleet))
    yield from idle
    if not alone and not idle:
        yield Finding(Grade.OK, "queues", "all queues with ready jobs are served")


def _commanded(stats: Stats, fleet: Sequence[WorkerInfo]) -> Iterator[Finding]:
    """Find ready jobs whose workers were all commanded to claim no more."""
    for line, counts in sorted(stats.queues.items()):
        serving = [worker for worker in fleet if _serves(worker, line)]
        number = counts.get(State.READY, 0)
        if not number or any(worker.state is WorkerState.RUNNING for worker in serving):
            continue
        text = f"{queue_of(line)} has {count(number, 'ready job')}, and its only workers are"
        quiet = [worker.name for worker in serving if worker.state is WorkerState.QUIET]
        if quiet:
            advice = f"quiet: windlass workers resume {' '.join(quiet[:3])}"
        else:
            advice = "stopping: start another one"
        yield Finding(Grade.ADVICE, "queues", f"{text} {advice}")


def _describe_unserved(line: str, number: int) -> str:
    labels = labels_of(line)
    waits = f", waiting for {' and '.join(labels)}" if labels else ""
    return f"{queue_of(line)} has {count(number, 'ready job')}{waits}, and no worker serves it"


def _start_for(line: str, fleet: Sequence[WorkerInfo]) -> str:
    """The options that no worker has: the queue, the labels, or both."""
    options = [f"--label {label}" for label in labels_of(line)]
    if not any(_serves_queue(worker, line) for worker in fleet):
        options.insert(0, f"-q {queue_of(line)}")
    return f"start one with {' '.join(options)}"


def _serves(worker: WorkerInfo, line: str) -> bool:
    return _serves_queue(worker, line) and may_take(line, worker.labels)


def _serves_queue(worker: WorkerInfo, line: str) -> bool:
    names = {queue for tier in read_tiers(worker.queues) for queue in tier.queues}
    return not names or queue_of(line) in names


def _paused(engine: Engine, stats: Stats) -> Iterator[Finding]:
    waiting: Mapping[str, int] = _waiting(stats)
    paused = [one.queue for one in engine.queues() if one.paused and waiting.get(one.queue, 0)]
    target = target_of_copy(engine) if paused else None
    for queue in paused:
        jobs_wait = count(waiting[queue], "job waits", "jobs wait")
        text = f"{queue} is paused, and {jobs_wait} there"
        advice = f"windlass queue resume {queue} resumes it"
        if target is not None:
            advice = (
                f"`windlass copy` has paused it, because its jobs are copied to {target}. Do not "
                "resume it: its jobs would run twice"
            )
        yield Finding(Grade.ADVICE, "queues", f"{text}: {advice}")


def _paused_tasks(engine: Engine) -> Iterator[Finding]:
    for task in engine.paused_tasks():
        states = (State.READY, State.SCHEDULED, State.RETRYING)
        if any(engine.find(Filter(state=one, task=task), None, 1).records for one in states):
            text = f"the task {task} is paused, and its jobs wait"
            yield Finding(Grade.ADVICE, "tasks", f"{text}: windlass task resume {task} resumes it")


def _waiting(stats: Stats) -> Counter[str]:
    waiting: Counter[str] = Counter()
    for line, counts in stats.queues.items():
        waiting[queue_of(line)] += sum(counts.get(state, 0) for state in WAITING)
    return waiting


def _unroutable(
    engine: Engine, stats: Stats, fleet: Sequence[WorkerInfo], remote: Collection[str]
) -> Iterator[Finding]:
    found = find_held(engine, stats)
    cut = what_was_cut(found)
    where = f" ({cut})" if cut else ""
    held = [job for job in found if job.task not in remote]
    misled = [job for job in found if job.task in remote]
    if misled:
        text = f"{count(len(misled), 'job')} of {_names_of(misled)}{where}"
        advice = (
            "their code is in another program. Give each of these tasks a queue or a label that "
            "only the workers with its code have, and move the jobs there with windlass job move"
        )
        text = f"workers without the code claimed {text}, which are remote tasks: {advice}"
        yield Finding(Grade.ADVICE, "remote tasks", text)
    if held:
        text = f"{count(len(held), 'job')} of {_names_of(held)}{where}"
        advice = (
            "start a worker whose app declares them, in the version and with the secret that they "
            "were enqueued with. Jobs of an unknown task are kept until then; a call that does not "
            "fit its function, or that no worker can read, is dead after a day"
        )
        example = f"{held[0].id}: {_why_held(engine, held[0], fleet)}"
        text = f"no worker can run {text}: {advice}. The first is {example}"
        yield Finding(Grade.ADVICE, "unknown tasks", text)
    if not found:
        text = "no job waits for a worker that has its task"
        yield Finding(Grade.OK, "unknown tasks", text)


def _names_of(held: Sequence[JobRecord]) -> str:
    return ", ".join(sorted({job.task for job in held})[:10])


def _why_held(engine: Engine, job: JobRecord, fleet: Sequence[WorkerInfo]) -> str:
    """Why one job is held. Reads its call, which names the key: lists do not include calls."""
    record = engine.get([job.id])[0]
    why = None if record is None else why_held(record, fleet)
    return why or "it was claimed meanwhile"


def dead_letters(number: int) -> Finding:
    text = count(number, "dead letter")
    if number > MANY_DEAD:
        text = f"{text}: see windlass dead list, then retry or discard them"
        return Finding(Grade.ADVICE, "dead letters", text)
    return Finding(Grade.OK, "dead letters", text)
