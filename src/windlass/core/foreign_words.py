"""Names from other task queues, and their equivalents in windlass.

Users of other libraries first write `task.delay(...)` or `countdown=5`. The error then names the
equivalent in windlass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import wraps
from typing import Final, ParamSpec

P = ParamSpec("P")


def _by_name(words: Mapping[str, str]) -> Mapping[str, str]:
    """Split keys with several names: the table has one entry for each name."""
    return {name: own for names, own in words.items() for name in names.split()}


#: Attributes of a task.
ATTRIBUTES: Final = _by_name(
    {
        "delay send kiq defer delay_on_commit": "task.enqueue(...)",
        "apply_async send_with_options": (
            "task.using(...).enqueue(...): options go to using, arguments to enqueue"
        ),
        "configure options set kicker": "task.using(...)",
        "schedule": "task.using(run_after=...).enqueue(...), or @app.task(schedule=...)",
        "s si signature message": "task.bind(...)",
        "apply": "task(...), which runs here",
        "map starmap chunks": "task.enqueue_many(...)",
        "AsyncResult": "task.job(id)",
        "request": "current_context()",
        "update_state": "ctx.progress(share, message)",
    }
)

#: Options that other libraries take as arguments of a call or of the decorator.
OPTIONS: Final = _by_name(
    {
        "countdown eta delay run_at schedule_in schedule_at": (
            "task.using(run_after=...).enqueue(...)"
        ),
        "task_id job_id": "task.using(idempotency_key=...)",
        "queue_name routing_key": "queue=...",
        "bind": "takes_context=True",
        "time_limit soft_time_limit job_timeout": "timeout=...",
        "ignore_result": "result_ttl=0",
        "store_results": "result_ttl=0, or longer",
        "result_expires": "result_ttl=...",
        "max_retries retries retry_backoff retry_kwargs default_retry_delay": (
            "@app.task(retry=Retry(...))"
        ),
        "autoretry_for": "@app.task(retry=Retry(retry_on=...))",
        "on_failure failure_callback link_error": "@app.task(on_dead=...) or on_retry=...",
        "success_callback link": "@app.task(on_success=...)",
        "acks_late": "nothing: a job is always acknowledged when it has ended",
        "reject_on_worker_lost": "nothing: a job whose worker is lost always runs again",
    }
)

#: Attributes of a job.
OF_JOBS: Final = _by_name(
    {
        "get get_result return_value wait wait_result join": (
            "job.result(timeout=...), in coroutines await job.aresult(timeout=...)"
        ),
        "state status get_status": "job.info().state",
        "ready": "job.info().state.is_final",
        "successful": "job.info().state is State.SUCCEEDED",
        "failed": "job.info().state is State.DEAD",
        "traceback": "job.info().error",
        "revoke abort terminate": "job.cancel()",
        "forget": "@app.task(result_ttl=...)",
    }
)

#: Attributes of an app.
OF_APPS: Final[Mapping[str, str]] = {
    "send_task": "app.task_named(name).enqueue(...)",
    "enqueue": "task.enqueue(...), or app.task_named(name).enqueue(...)",
    "conf": "app.settings to read them, Windlass(...) or WINDLASS_... to give them",
    "config_from_object": "Windlass(...) or WINDLASS_...",
    "autodiscover_tasks": 'Windlass(include=["shop.tasks"])',
    "add_periodic_task": "@app.task(schedule=...), or app.schedules.save(...)",
    "on_after_configure": "@app.task(schedule=...)",
    "periodic_task": "@app.task(schedule=...)",
    "AsyncResult": "app.job(id)",
    "control": "app.job(id).cancel(), or app.queue(name).pause()",
    "actor": "@app.task",
    "worker_main": "windlass worker in a shell, or with app.worker(): ...",
}

#: Attributes of a context.
OF_CONTEXTS: Final[Mapping[str, str]] = {
    "retry": "raise RetryLater(60)",
    "request": "ctx itself, which has job_id, attempt, queue and headers",
    "id": "ctx.job_id",
    "retries": "ctx.attempt, which is 1 for the first try",
    "update_state": "ctx.progress(share, message)",
    "is_aborted": "ctx.cancelled",
}

#: Arguments of `Retry`.
OF_RETRY: Final = _by_name(
    {
        "max_retries retries max_tries attempts": (
            "max_attempts=..., which counts the first try too"
        ),
        "delay countdown interval default_retry_delay": "base=...",
        "backoff retry_backoff": "factor=...",
        "max_delay retry_backoff_max": "cap=...",
        "retry_jitter": "jitter=...",
        "autoretry_for exceptions": "retry_on=...",
        "dont_autoretry_for": "reject_on=...",
    }
)

#: Arguments of `Every`.
OF_EVERY: Final[Mapping[str, str]] = {
    "seconds": 'Every("5s")',
    "minutes": 'Every("5m")',
    "hours": 'Every("5h")',
    "days": 'Every("5d")',
    "weeks": 'Every("7d")',
    "run_every": 'Every("5m")',
}

#: Arguments of `Windlass`.
OF_SETTINGS: Final = _by_name(
    {
        "broker broker_url redis_url": 'url="redis://localhost:6379/0", or WINDLASS_URL',
        "backend result_backend": "nothing: results are kept where the jobs are, in url",
        "imports": "include=[...]",
        "task_routes": "routes={...}",
        "task_serializer": "codec=...",
        "result_expires": "result_ttl=...",
        "task_time_limit": "timeout=...",
        "visibility_timeout": "nothing: a job may run for as long as it needs",
    }
)

#: Python's message for `raise` of something that is not an exception.
_NO_EXCEPTION: Final = "exceptions must derive from BaseException"


def missing_attribute(
    owner: object, name: str, kind: str = "A task", words: Mapping[str, str] = ATTRIBUTES
) -> AttributeError:
    """The error for a missing attribute of an object of windlass."""
    if name.startswith("_"):  # Python itself probes these names often
        return AttributeError(name, name=name, obj=owner)
    if name in words:
        said = f"{kind} has no {name}: write {words[name]}."
    else:
        known = [known for known in dir(owner) if not known.startswith("_")]
        said = f"{kind} has no {name}.{nearest(name, known)}"
    # With the owner, Python would add a suggestion of its own to the traceback.
    return AttributeError(said, name=name, obj=None)


def refuse_foreign_arguments(
    kind: str, words: Mapping[str, str]
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Decorate an `__init__` to refuse arguments that have another name in windlass."""

    def explain(function: Callable[P, None]) -> Callable[P, None]:
        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            for name in kwargs:
                if name in words:
                    raise TypeError(f"{kind}(...) takes no {name}: write {words[name]}.")
            function(*args, **kwargs)

        return checked

    return explain


def instead_of_number(found: object) -> str:
    """Suggest a `Retry` in place of a number that was given as a policy."""
    if isinstance(found, bool) or not isinstance(found, int):
        return ""
    return f", such as Retry(max_attempts={found})"


def refuse_unknown_keywords(place: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `TypeError` for a keyword that a method with a typed dictionary does not take. Without
    the check a misspelt filter would match everything."""
    for name in given:
        if name not in known:
            raise TypeError(
                f"{place} takes no {name}.{nearest(name, known)} It takes {', '.join(known)}."
            )


def unexpected_keyword(name: str, known: Iterable[str], options: Iterable[str]) -> str:
    """A hint for the error about a keyword that the function does not take."""
    near = nearest(name, known)
    if near:
        return f".{near}"
    if name in OPTIONS:
        return f". An option is not an argument: write {OPTIONS[name]}."
    return (
        f". An option is not an argument: write task.using({name}=...)." if name in options else ""
    )


def explain_raise(error: BaseException) -> None:
    """Add a hint to Python's error for `raise Retry(...)`."""
    if type(error) is TypeError and error.args == (_NO_EXCEPTION,):
        error.add_note(
            "The task raised something that is not an exception. Retry(...) is a policy, for "
            "@app.task(retry=...): a task that wants another try raises RetryLater(60), and one "
            "that wants none raises Reject(...)."
        )


def nearest(name: str, known: Iterable[str], prefix: str = "", *, alike: float = 0.6) -> str:
    """Suggest the known name most similar to `name`, or nothing."""
    found = most_similar(name, known, alike=alike)
    return f" Did you mean {prefix}{found}?" if found else ""


def most_similar(name: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """Find the known name most similar to `name`; "" if none is."""
    import difflib  # slow to import, and needed only after a mistake

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=alike)), "")


def nearest_dotted(name: str, known: Iterable[str], *, alike: float = 0.6) -> str:
    """Find the known dotted name most similar to `name`, which may be the end of one; "" if none
    is. The last parts must be similar: names of one module have a long common beginning."""
    import difflib  # slow to import, and needed only after a mistake

    def similarity(one: str) -> tuple[float, float]:
        end = ".".join(one.split(".")[-name.count(".") - 1 :])
        lasts = difflib.SequenceMatcher(None, one.rpartition(".")[2], name.rpartition(".")[2])
        return lasts.ratio(), difflib.SequenceMatcher(None, end, name).ratio()

    likeness, found = max(((similarity(one), one) for one in known), default=((0.0, 0.0), ""))
    return found if likeness[0] >= alike else ""


def suggest_dotted(name: str, known: Iterable[str]) -> str:
    """`nearest_dotted` as a question, or nothing."""
    found = nearest_dotted(name, known)
    return f" Did you mean {found}?" if found else ""
