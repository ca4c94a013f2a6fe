"""Find a task by a short name: `send_mail` for `shop.tasks.send_mail`.

1. `full_name` completes a name that is the end of one task of the app.
2. `stored_name` does so for a filter of stored jobs, whose task may belong to another app: a name
   that stored jobs have is never completed.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.app import Windlass
from windlass.cli.support.records import find_all
from windlass.core.states import State
from windlass.engine.contract import Filter
from windlass.errors import InvalidTask


def full_name(app: Windlass, name: str) -> str:
    """The name of the only task that ends in `name`, or else the same name. Aliases count only if
    no task has such a name: after a move, the old name of a task often has the same end.

    Raises `InvalidTask` if several tasks have this end."""
    if name in app.known_tasks:
        return name
    found = _ending(name, app.tasks) or _ending(name, app.known_tasks)
    if len(found) > 1:
        raise InvalidTask(
            f"{name!r} is short for several tasks: {', '.join(found)}. Give one of these names."
        )
    return found[0] if found else name


def stored_name(app: Windlass, name: str, state: State | None = None) -> str:
    """The same for a filter of jobs, or of jobs in one state."""
    if name in app.known_tasks or any(find_all(app.engine, Filter(state=state, task=name))):
        return name
    return full_name(app, name)


def _ending(name: str, known: Iterable[str]) -> list[str]:
    return sorted(one for one in known if one.endswith(f".{name}"))
