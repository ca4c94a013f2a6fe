"""`python -m proofs [NAME ...]`: run the proofs, print what each one saw, exit 1 if any fails."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.stage import compile_sources
from proofs import (
    alerts,
    autoscale,
    bulk_retry,
    dashboard,
    dashboard_scale,
    dead_letters,
    engine_copy,
    event_streams,
    figures,
    fleet,
    fresh_clone,
    history,
    http_document,
    http_polls,
    http_workers,
    killed_workers,
    lost_claim_reply,
    memory,
    metrics,
    old_snapshot,
    oldest_redis,
    outbox,
    packages,
    poison_zoo,
    postgres_outages,
    postgres_versions,
    promptness,
    queue_plans,
    recycling,
    redis_outages,
    restarted_worker,
    rolling,
    scheduled_at_scale,
    schedules,
    slow_links,
    stopped_worker,
    stuck_tasks,
    suspended_request,
    timeouts,
    transactions,
    typing_golden,
    unique,
    wake_ups,
)

#: In the order in which they are run; the longest comes last.
PROOFS: Final[dict[str, Callable[[Path], Iterator[str]]]] = {
    "killed-workers": killed_workers.prove,
    "postgres-killed-workers": killed_workers.prove_postgres,
    "restarted-worker": restarted_worker.prove,
    "stopped-worker": stopped_worker.prove,
    "suspended-request": suspended_request.prove,
    "outbox": outbox.prove,
    "lost-claim-reply": lost_claim_reply.prove,
    "slow-among-short": promptness.prove_slow_among_short,
    "priority": promptness.prove_priority,
    "delayed": promptness.prove_delayed,
    "queue-plans": queue_plans.prove,
    "wake-ups": wake_ups.prove_prompt,
    "wake-ups-tiers": wake_ups.prove_tiers,
    "idle-calls": wake_ups.prove_idle,
    "idle-fleet": fleet.prove,
    "killed-child": promptness.prove_killed_child,
    "stuck-tasks": stuck_tasks.prove,
    "poison-zoo": poison_zoo.prove,
    "rolling-deploy": rolling.prove_deploy,
    "rolling-restart": rolling.prove_restarts,
    "redis-enqueue-outage": redis_outages.prove_enqueue,
    "redis-killed": redis_outages.prove_killed,
    "redis-client-kill": redis_outages.prove_client_kill,
    "redis-readonly": redis_outages.prove_readonly,
    "redis-long-job": redis_outages.prove_long_job,
    "redis-frozen": redis_outages.prove_frozen,
    "postgres-enqueue-outage": postgres_outages.prove_enqueue,
    "postgres-restarted": postgres_outages.prove_restarted,
    "postgres-client-kill": postgres_outages.prove_client_kill,
    "postgres-frozen": postgres_outages.prove_frozen,
    "postgres-readonly": postgres_outages.prove_readonly,
    "postgres-long-job": postgres_outages.prove_long_job,
    "postgres-old-snapshot": old_snapshot.prove,
    "postgres-old-snapshot-long": old_snapshot.prove_long,
    "http-workers": http_workers.prove_killed,
    "http-frozen": http_workers.prove_frozen,
    "http-polls": http_polls.prove_idle,
    "http-turns": http_polls.prove_turns,
    "http-document": http_document.prove_document,
    "http-bad-input": http_document.prove_bad_input,
    "metrics": metrics.prove_sqlite,
    "redis-metrics": metrics.prove_redis,
    "postgres-metrics": metrics.prove_postgres,
    "metrics-recount": metrics.prove_recount,
    "slow-links": slow_links.prove,
    "redis-oldest": oldest_redis.prove,
    "postgres-versions": postgres_versions.prove,
    "postgres-older": postgres_versions.prove_older,
    "dead-letters": dead_letters.prove,
    "bulk-retry": bulk_retry.prove,
    "copy": engine_copy.prove,
    "alerts": alerts.prove,
    "dashboard": dashboard.prove,
    "unique": unique.prove,
    "transactions": transactions.prove_enqueues,
    "exactly-once": transactions.prove_exactly_once,
    "recycling": recycling.prove,
    "history": history.prove,
    "autoscale": autoscale.prove,
    "autoscale-frozen": autoscale.prove_frozen,
    "memory": memory.prove,
    "timeouts": timeouts.prove,
    "typing": typing_golden.prove,
    "schedules": schedules.prove,
    "event-streams": event_streams.prove,
    "scheduled-at-scale": scheduled_at_scale.prove,
    "dashboard-scale": dashboard_scale.prove,
    "figures": figures.prove_sqlite,
    "redis-figures": figures.prove_redis,
    "postgres-figures": figures.prove_postgres,
    "import-time": figures.prove_import,
    "wheel": packages.prove_wheel,
    "packages": packages.prove,
    "fresh-clone": fresh_clone.prove,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROOFS))
    _add_scale_options(parser)
    arguments = parser.parse_args()
    names = arguments.names or list(PROOFS)
    unknown = set(names) - set(PROOFS)
    if unknown:
        parser.error(f"expected some of {', '.join(PROOFS)}, found {', '.join(unknown)}")
    _use_scale_options(parser, arguments, names)
    compile_sources()
    passed = [run(name) for name in names]
    print(f"\n{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


def _add_scale_options(parser: argparse.ArgumentParser) -> None:
    """The options of `dashboard-scale`."""
    usual = dashboard_scale.ScaleOptions()
    options = parser.add_argument_group("dashboard-scale")
    options.add_argument("--engine", choices=usual.engines, help="fill only this engine")
    options.add_argument("--finished", type=int, help=f"finished jobs ({usual.finished:,})")
    options.add_argument("--ready", type=int, help=f"ready jobs ({usual.ready:,})")
    options.add_argument("--keep", type=Path, metavar="DIR", help="keep the data set here")
    options.add_argument("--use", type=Path, metavar="DIR", help="measure a data set that was kept")


def _use_scale_options(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace, names: Sequence[str]
) -> None:
    given = {
        name: value
        for name, value in vars(arguments).items()
        if name != "names" and value is not None
    }
    if not given:
        return
    if list(names) != ["dashboard-scale"]:
        parser.error(f"--{', --'.join(given)}: these options are for dashboard-scale alone")
    if "use" in given and len(given) > 1:
        parser.error("--use takes no other option: the data set has its engine and its size")
    if "keep" in given and "engine" not in given:
        parser.error("--keep is for one data set: name its engine with --engine")
    if "engine" in given:
        given["engines"] = (given.pop("engine"),)
    options = dashboard_scale.ScaleOptions(**given)
    PROOFS["dashboard-scale"] = partial(dashboard_scale.prove, options=options)


def run(name: str) -> bool:
    print(f"\n{name}", flush=True)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="windlass-proof-") as folder:
        try:
            for line in PROOFS[name](Path(folder)):
                print(f"  {line}", flush=True)
        except (AssertionError, OSError, TimeoutError):
            traceback.print_exc()
            print("  FAILED", flush=True)
            return False
    print(f"  holds ({time.monotonic() - started:.1f} s)", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
