"""Words of other task queues, and what is written here instead.

Whoever comes from another library writes `task.delay(...)` or `countdown=5` first. A message that
names our word is worth more than one that says only what is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_ENQUEUE: Final = "task.enqueue(...)"
_RUN_AFTER: Final = "task.using(run_after=...).enqueue(...)"
_RETRY: Final = "@app.task(retry=Retry(...))"

#: Attributes of a task.
ATTRIBUTES: Final[Mapping[str, str]] = {
    "delay": _ENQUEUE,
    "send": _ENQUEUE,
    "kiq": _ENQUEUE,
    "defer": _ENQUEUE,
    "delay_on_commit": _ENQUEUE,
    "apply_async": "task.using(...).enqueue(...): options go to using, arguments to enqueue",
    "send_with_options": "task.using(...).enqueue(...): options go to using, arguments to enqueue",
    "configure": "task.using(...)",
    "options": "task.using(...)",
    "set": "task.using(...)",
    "kicker": "task.using(...)",
    "schedule": "task.using(run_after=...).enqueue(...), or @app.task(schedule=...)",
    "s": "task.bind(...)",
    "apply": "task(...), which runs here",
    "si": "task.bind(...)",
    "signature": "task.bind(...)",
    "message": "task.bind(...)",
    "map": "task.enqueue_many(...)",
    "starmap": "task.enqueue_many(...)",
    "chunks": "task.enqueue_many(...)",
    "AsyncResult": "task.job(id)",
    "request": "current_context()",
    "update_state": "ctx.progress(share, message)",
}

#: Options that others take among the arguments of a call, or of the decorator.
OPTIONS: Final[Mapping[str, str]] = {
    "countdown": _RUN_AFTER,
    "eta": _RUN_AFTER,
    "delay": _RUN_AFTER,
    "run_at": _RUN_AFTER,
    "schedule_in": _RUN_AFTER,
    "schedule_at": _RUN_AFTER,
    "task_id": "task.using(idempotency_key=...)",
    "job_id": "task.using(idempotency_key=...)",
    "queue_name": "queue=...",
    "routing_key": "queue=...",
    "bind": "takes_context=True",
    "time_limit": "timeout=...",
    "soft_time_limit": "timeout=...",
    "job_timeout": "timeout=...",
    "ignore_result": "result_ttl=0",
    "store_results": "result_ttl=0, or longer",
    "result_expires": "result_ttl=...",
    "max_retries": _RETRY,
    "retries": _RETRY,
    "retry_backoff": _RETRY,
    "retry_kwargs": _RETRY,
    "autoretry_for": "@app.task(retry=Retry(retry_on=...))",
    "default_retry_delay": _RETRY,
    "acks_late": "nothing: a job is acknowledged when it has ended, always",
    "reject_on_worker_lost": "nothing: a job whose worker is lost is run again, always",
}

#: What Python says of something raised that is no exception.
_NO_EXCEPTION: Final = "exceptions must derive from BaseException"


def missing_attribute(owner: object, name: str) -> str:
    """What to say of an attribute that a task does not have."""
    if name in ATTRIBUTES:
        return f"A task has no {name}: write {ATTRIBUTES[name]}."
    known = [known for known in dir(owner) if not known.startswith("_")]
    return f"A task has no {name}.{_nearest(name, known)}"


def unexpected_keyword(name: str, known: Iterable[str], options: Iterable[str]) -> str:
    """What to do about a keyword that the function does not take, behind a message about it."""
    near = _nearest(name, known)
    if near:
        return f".{near}"
    if name in OPTIONS:
        return f". An option is no argument: write {OPTIONS[name]}."
    return f". An option is no argument: write task.using({name}=...)." if name in options else ""


def explain_raise(error: BaseException) -> None:
    """Add what to write to the error that Python makes of `raise Retry(...)`."""
    if type(error) is TypeError and error.args == (_NO_EXCEPTION,):
        error.add_note(
            "Something was raised that is no exception. Retry(...) is a policy, for "
            "@app.task(retry=...): a task that wants another try raises RetryLater(60), and one "
            "that wants none raises Reject(...)."
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib  # slow to import, and needed only after a mistake

    matches = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {matches[0]}?" if matches else ""
