"""Find a task or a schedule by a short name: `send_mail` for `shop.tasks.send_mail`.

1. `full_name` completes a name that is the end of one task of the app.
2. `stored_name` does so for a filter of stored jobs, whose task may belong to another app: a name
   that stored jobs have is never completed.
3. `why_unknown` reports a task that neither the app nor a stored job has: probably a typo.
4. `schedule_name` completes the name of a schedule.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.app import Windlass
from windlass.cli.support.records import find_all
from windlass.core.foreign_words import suggest_dotted
from windlass.core.states import State
from windlass.engine.contract import Filter
from windlass.errors import InvalidTask
from windlass.schedules import schedule_names


def full_name(app: Windlass, name: str) -> str:
    """The name of the only task that ends in `name`, or else the same name. Aliases count only if
    no task has such a name: after a move, the old name of a task often has the same end.

    Raises `InvalidTask` if several tasks have this end."""
    if app.find_task(name) is not None:
        return name
    declared = (*app.tasks, *app.remote_tasks)
    found = _ending(name, declared) or _ending(name, app.known_tasks)
    return _only(name, found, "tasks")


def stored_name(app: Windlass, name: str, state: State | None = None) -> str:
    """The same for a filter of jobs, or of jobs in one state."""
    if app.find_task(name) or any(find_all(app.engine, Filter(state=state, task=name))):
        return name
    return full_name(app, name)


def pausable_name(app: Windlass, name: str) -> str:
    """The same for a task to pause or resume. A task may be known only by its pause."""
    paused = app.engine.paused_tasks()
    if name in paused:
        return name
    found = stored_name(app, name)
    return found if found != name else _only(name, _ending(name, paused), "tasks")


def declares_tasks(app: Windlass) -> bool:
    """Whether the app is more than a url: its tasks, with code or remote, are the known names."""
    return bool(app.tasks or app.remote_tasks)


def why_unknown(app: Windlass, name: str, known: Iterable[str] = ()) -> str:
    """A message for a task that is unknown, or nothing. `known` has further names to suggest."""
    known = {*app.known_tasks, *app.remote_tasks, *known}
    if name in known or app.engine.find(Filter(task=name), None, 1).records:
        return ""
    why = "the app does not declare it, and it has no jobs"
    if not declares_tasks(app):
        why = "it has no jobs, and no app with tasks was given (--app)"
    return f"Unknown task {name}: {why}.{suggest_dotted(name, known)}"


def schedule_name(app: Windlass, name: str) -> str:
    """The name of the only schedule that ends in `name`, or else the same name."""
    (record,) = app.engine.get_schedules([name])
    if record is not None:
        return name
    return _only(name, _ending(name, schedule_names(app.engine)), "schedules")


def _only(name: str, found: list[str], kind: str) -> str:
    if len(found) > 1:
        raise InvalidTask(
            f"{name!r} is short for several {kind}: {', '.join(found)}. Give one of these names."
        )
    return found[0] if found else name


def _ending(name: str, known: Iterable[str]) -> list[str]:
    return sorted(one for one in known if one.endswith(f".{name}"))
