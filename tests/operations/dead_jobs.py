"""An app with dead jobs, and operations that are run to their end."""

from __future__ import annotations

from tests.worker.yard import until
from windlass import FailureText, Operation, State, Windlass
from windlass.core.states import Reason
from windlass.engine.contract import Buried, Plan
from windlass.operations.runner import OperationRunner
from windlass.testing.contract.world import claim_jobs


def new_app(url: str) -> Windlass:
    app = Windlass(url)
    app.task(name="charge")(charge)
    app.task(name="mail", queue="mail")(mail)
    return app


def charge(order: int) -> None:
    """A task."""


def mail(to: str) -> None:
    """Another one, in another queue."""


def bury(app: Windlass, *, task: str = "charge", number: int, why: str = "no") -> list[str]:
    """Enqueue jobs, and let all of them die."""
    jobs = app.tasks[task].enqueue_many(
        [(str(one) if task == "mail" else one,) for one in range(number)]
    )
    bury_ready(app, why)
    return [job.id for job in jobs]


_nonces = iter(range(1, 10**9))


def bury_ready(app: Windlass, why: str = "no") -> None:
    text = FailureText.of(ValueError(why))
    while True:
        batch = claim_jobs(app.engine, "w", f"{next(_nonces):040x}", Plan(), 200)
        if not batch.claims:
            return
        app.engine.finish(
            [
                Buried(
                    id=one.id,
                    token=one.token,
                    reason=Reason.EXHAUSTED,
                    error=text.pack(),
                    fingerprint=text.fingerprint,
                )
                for one in batch.claims
            ]
        )


def states(app: Windlass, ids: list[str]) -> dict[State | None, int]:
    found: dict[State | None, int] = {}
    for info in app.jobs.get_many(ids):
        state = None if info is None else info.state
        found[state] = found.get(state, 0) + 1
    return found


def ended(app: Windlass, operation: Operation) -> Operation:
    """The operation after its end."""

    def find() -> Operation | None:
        found = app.operations.get(operation.id)
        return None if found.is_running else found

    found = until(find, "the end of the operation")
    assert found is not None
    return found


def run(app: Windlass, operation: Operation) -> Operation:
    with OperationRunner(app):
        return ended(app, operation)


def counts(operation: Operation) -> tuple[int, int, int]:
    return operation.done, operation.refused, operation.failed
