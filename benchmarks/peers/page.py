"""Write the page of the comparison, its charts, and the table of the README from stored results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.page import shown
from benchmarks.peers.charts import Bar, draw
from benchmarks.peers.environments import ROOT
from benchmarks.peers.losses import losses
from benchmarks.peers.measures import MEASURES
from benchmarks.peers.reference import earlier, is_suspect
from benchmarks.peers.results import Measured, PeerResults, Series, write_results
from benchmarks.peers.summary import write_readme
from benchmarks.peers.targets import TARGETS, PeerTarget, best, reached

RESULTS: Final = ROOT / "benchmarks" / "peers" / "results.json"
FOLDER: Final = ROOT / "docs" / "benchmarks"
PAGE: Final = FOLDER / "README.md"
POSTGRES_RESULTS: Final = RESULTS.with_name("postgres-results.json")
POSTGRES_PAGE: Final = FOLDER / "postgres.md"

BENCH: Final = "make bench-peers"
STORE_TITLES: Final = {
    "redis": "redis",
    "sqlite": "sqlite",
    "sqlite-normal": "sqlite",
    "postgres": "postgres",
    "postgres-snapshot": "postgres, an old snapshot is open",
    "postgres-finished": "postgres, 10 million finished jobs",
}
POSTGRES_STORES: Final = [name for name in STORE_TITLES if name.startswith("postgres")]
#: A heading, its measures, and the sentence below it.
SECTIONS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "Enqueue": (
        ("enqueue", "bulk", "concurrent"),
        "Jobs per second of one producer. Bulk and coroutines: where the library has them.",
    ),
    "Drain": (
        ("drain-sync-1", "drain-sync-2", "drain-async-1", "drain-async-2"),
        "Jobs per second of workers with one and with two processes, on two cores that the store "
        "shares.",
    ),
    "Drain with I/O": (
        ("drain-io-1", "drain-io-2"),
        "Each job waits for 1 ms, in a coroutine where the library has them.",
    ),
    "CPU": (
        ("cpu-sync-1", "cpu-sync-2", "cpu-async-1", "cpu-async-2"),
        "CPU time per job of all processes during a drain: workers and store.",
    ),
    "Pick-up": (
        ("pick-up-p50", "pick-up-p99"),
        "From the call of enqueue to the first line of the task, with an idle worker.",
    ),
    "Memory and start": (
        ("stored", "stored-long", "idle-memory", "idle-cpu", "import"),
        "Stored bytes per queued job with three arguments, and an idle worker with one process.",
    ),
    "kill -9": (
        ("unfinished", "recovery"),
        "A worker with 20 tasks of one second is killed with all of its processes after half a "
        "second, and another one starts, which has {recovery_s:.0f} s.",
    ),
}
#: A file, its title, its note, and the measures whose best one is drawn.
CHARTS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "enqueue": ("Enqueue one by one", "jobs per second, more is better", ("enqueue",)),
    "bulk": ("Enqueue in bulk", "jobs per second, more is better", ("bulk",)),
    "concurrent": (
        "Enqueue from 100 coroutines",
        "jobs per second, more is better",
        ("concurrent",),
    ),
    "drain-1": (
        "Drain no-op jobs with one process",
        "jobs per second, more is better",
        ("drain-sync-1", "drain-async-1"),
    ),
    "drain-2": (
        "Drain no-op jobs with two processes",
        "jobs per second, more is better",
        ("drain-sync-2", "drain-async-2"),
    ),
    "cpu-2": (
        "CPU time per job, two processes and the store",
        "microseconds, less is better",
        ("cpu-sync-2", "cpu-async-2"),
    ),
    "pick-up": (
        "Pick-up of a job by an idle worker, p50",
        "milliseconds, less is better",
        ("pick-up-p50",),
    ),
    "stored": (
        "Stored per queued job with three short arguments",
        "bytes, less is better",
        ("stored",),
    ),
}
_CHARTS_OF: Final = {
    "Enqueue": ("enqueue", "bulk", "concurrent"),
    "Drain": ("drain-1", "drain-2"),
    "CPU": ("cpu-2",),
    "Pick-up": ("pick-up",),
    "Memory and start": ("stored",),
}


def write_all(results: PeerResults) -> list[Path]:
    """Write the page and its charts, and the README unless the sizes were small. Systems on
    PostgreSQL alone have a page without charts."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    if _is_of_postgres(results):
        write_results(POSTGRES_RESULTS, results)
        POSTGRES_PAGE.write_text(page(results), encoding="utf-8")
        return [POSTGRES_RESULTS, POSTGRES_PAGE]
    write_results(RESULTS, results)
    files = {PAGE: page(results), **{FOLDER / f"{n}.svg": chart(results, n) for n in CHARTS}}
    for file, text in files.items():
        file.write_text(text, encoding="utf-8")
    if not results.is_quick:
        write_readme(results)
    return [RESULTS, *files]


def _is_of_postgres(results: PeerResults) -> bool:
    return all(system.store.startswith("postgres") for system in results.systems)


def page(results: PeerResults) -> str:
    parts = [
        "# Benchmarks on PostgreSQL\n" if _is_of_postgres(results) else "# Benchmarks\n",
        _introduction(results),
        "## Targets\n",
        _targets(results),
        *_sections(results),
        *(() if _is_of_postgres(results) else ("## The limit\n", _limits(results))),
        "## Where windlass is behind\n",
        _losses(results),
        "## Systems and settings\n",
        _systems(results),
        _left_out(results),
        _suspects(results),
    ]
    return "\n".join(part for part in parts if part)


def _introduction(results: PeerResults) -> str:
    machine = dict(results.machine)
    cores, processor = machine.pop("cores"), machine.pop("processor")
    memory, system = machine.pop("memory"), machine.pop("system")
    programs = ", ".join(f"{name} {version}" for name, version in machine.items())
    is_of_postgres = _is_of_postgres(results)
    command = f'{BENCH} STORE="{" ".join(POSTGRES_STORES)}"' if is_of_postgres else BENCH
    lines = [
        f"windlass next to other task queues, measured by `{command}` in one run. Compare "
        "the figures with each other, and not with those of another machine. [Method and "
        "fairness](../decisions/0051-peer-benchmarks.md).\n",
        f"{_runs(results)} {cores} cores ({processor}), {memory}, {system}; {programs}. Each cell "
        "is the median, with the range of all rounds in brackets. Producer, worker and store share "
        "the cores.\n",
    ]
    if results.is_quick:
        lines.insert(
            1, "**A trial with small sizes on a busy machine. Do not cite these figures.**\n"
        )
    return "\n".join(lines)


def _runs(results: PeerResults) -> str:
    least = min((len(series.values) for series in results.series), default=results.runs)
    if results.runs == 1:
        return f"One round, {results.minutes:.0f} minutes."
    if least < results.runs:
        numbers = f"{least} to {results.runs} rounds"
        return f"{numbers}, {results.minutes:.0f} minutes; a cell without a range has one value."
    return f"{results.runs} rounds, {results.minutes:.0f} minutes."


def _targets(results: PeerResults) -> str:
    measured = {system.name for system in results.systems}
    return "\n".join(
        [
            "What windlass aims for, as a ratio to others in the same run.\n",
            *_table(
                ("ratio", "target", "reached", "met", "windlass", "other"),
                [_target_row(results, target) for target in TARGETS if target.ours in measured],
                words=1,
            ),
        ]
    )


def _target_row(results: PeerResults, target: PeerTarget) -> list[str]:
    made = reached(results, target)
    sign = "at least" if target.more_is_better else "at most"
    bound = f"{sign} {target.bound:g}"
    if made is None:
        return [target.title, bound, "not measured", "", "", ""]
    other = "bare loop" if made.peer == target.ours else title_of(results, made.peer)
    return [
        target.title,
        bound,
        f"{made.ratio:.2f}",
        "yes" if made.is_met else "no",
        shown(made.ours),
        f"{shown(made.theirs)} ({other})",
    ]


def title_of(results: PeerResults, name: str) -> str:
    titles = {system.name: system.title for system in results.systems}
    return titles.get(name, name)


def _sections(results: PeerResults) -> Iterator[str]:
    for heading, (measures, sentence) in SECTIONS.items():
        present = [measure for measure in measures if _is_measured(results, measure)]
        if present:
            yield f"## {heading}\n"
            yield f"{sentence.format(recovery_s=results.recovery_s)}\n"
            for name in () if _is_of_postgres(results) else _CHARTS_OF.get(heading, ()):
                if _bars(results, CHARTS[name][2]):
                    yield f"![{CHARTS[name][0]}]({name}.svg)\n"
            yield _section_table(results, present)


def _is_measured(results: PeerResults, measure: str) -> bool:
    return any(series.measure == measure for series in results.series)


def _section_table(results: PeerResults, measures: Sequence[str]) -> str:
    heads = [f"{MEASURES[measure].title}, {MEASURES[measure].unit}" for measure in measures]
    rows = []
    for system in results.systems:
        cells = [_cell(results.find(system.name, measure)) for measure in measures]
        if any(cells):
            rows.append([_name(system), *cells])
    return "\n".join(_table(("system", *heads), rows, words=1))


def _name(system: Measured) -> str:
    return f"**{system.title}**" if system.is_ours else system.title


def _cell(series: Series | None) -> str:
    if series is None:
        return ""
    unit = MEASURES[series.measure].unit
    if len(series.values) == 1:
        return _number(series.median, unit)
    low, high = _number(series.least, unit), _number(series.most, unit)
    return f"{_number(series.median, unit)} ({low} .. {high})"


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit == "jobs" else shown(value)


def _limits(results: PeerResults) -> str:
    """The bare loop makes the same state changes, recorded from windlass."""
    pairs = (
        ("enqueue", "limit-enqueue"),
        ("bulk", "limit-bulk"),
        ("drain-sync-1", "limit-drain"),
    )
    rows = []
    for system in results.systems:
        for measure, bound in pairs:
            ours, most = results.median(system.name, measure), results.median(system.name, bound)
            if ours is not None and most:
                title = MEASURES[measure].title
                rows.append([system.title, title, shown(ours), shown(most), f"{ours / most:.0%}"])
    sentence = (
        "A bare loop sends the commands that windlass sends, recorded before, on a raw socket or a "
        "plain cursor. On SQLite it takes no lock file and wakes no worker. A drain can exceed the "
        "loop, which has one process and no overlap of claims and replies.\n"
    )
    heads = ("engine", "what", "windlass, jobs/s", "bare loop, jobs/s", "share")
    return "\n".join([sentence, *_table(heads, rows, words=2)])


def _losses(results: PeerResults) -> str:
    rows = [
        [
            MEASURES[loss.measure].title,
            MEASURES[loss.measure].unit,
            f"{shown(loss.ours)} ({title_of(results, loss.our_system)})",
            f"{shown(loss.theirs)} ({title_of(results, loss.peer)})",
            f"{loss.factor:.1f}",
        ]
        for loss in losses(results)
    ]
    if not rows:
        return "In no figure of this run.\n"
    heads = ("what", "unit", "best windlass engine", "best other", "factor")
    return "\n".join(_table(heads, rows, words=2))


def _systems(results: PeerResults) -> str:
    rows = [
        [_name(system), STORE_TITLES[system.store], _versions(system), system.settings]
        for system in results.systems
    ]
    note = (
        "Redis stores nothing on disk here. PostgreSQL has its default settings, fsync included. "
        "Other guarantees differ: see [the decision](../decisions/0051-peer-benchmarks.md).\n"
    )
    return "\n".join([note, *_table(("system", "store", "versions", "settings"), rows, words=4)])


def _versions(system: Measured) -> str:
    return ", ".join(f"{name} {version}" for name, version in system.versions.items())


def _left_out(results: PeerResults) -> str:
    if not results.left_out:
        return ""
    lines = [f"- {one.name}: {one.reason}" for one in results.left_out]
    return "\n".join(["## Left out\n", *lines, ""])


def _suspects(results: PeerResults) -> str:
    lines = [
        f"- {title_of(results, series.system)}, {MEASURES[series.measure].title}: "
        f"{shown(series.median)}, earlier {shown(known)} {MEASURES[series.measure].unit}"
        for series in results.series
        if is_suspect(series.system, series.measure, series.median)
        and (known := earlier(series.system, series.measure))
    ]
    if not lines:
        return ""
    sentence = "Far worse than in an earlier run on a similar machine. Repeat the run.\n"
    return "\n".join(["## Suspect figures\n", sentence, *lines, ""])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> Iterator[str]:
    """A table whose first columns are words, and whose other columns are numbers."""
    yield f"| {' | '.join(heads)} |"
    yield f"|{' --- |' * words}{' ---: |' * (len(heads) - words)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def chart(results: PeerResults, name: str) -> str:
    title, note, measures = CHARTS[name]
    return draw(title, note, _bars(results, measures))


def _bars(results: PeerResults, measures: tuple[str, ...]) -> list[Bar]:
    bars = [bar for system in results.systems if (bar := _bar(results, system, measures))]
    is_more = MEASURES[measures[0]].more_is_better
    return sorted(bars, key=lambda bar: bar.value, reverse=is_more)


def _bar(results: PeerResults, system: Measured, measures: tuple[str, ...]) -> Bar | None:
    """The best of the measures, for example of functions and coroutines."""
    found = [series for measure in measures if (series := results.find(system.name, measure))]
    top = best(results, (system.name,), measures)
    for series in found:
        if top and series.median == top[1]:
            return Bar(system.title, series.median, series.least, series.most, system.is_ours)
    return None
