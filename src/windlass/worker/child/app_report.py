"""What a child reports about its app.

1. `declarations` are the schedules in its code, for the engine.
2. `idle_routes` are routes that match no task: the worker warns, because one may be misspelt.
"""

from __future__ import annotations

from windlass.app import Windlass
from windlass.settings import matches
from windlass.worker.ipc.channel import AppDeclaration


def declarations(app: Windlass) -> tuple[AppDeclaration, ...]:
    return tuple(AppDeclaration(name, entry.pack()) for name, entry in app.declared_schedules())


def idle_routes(app: Windlass) -> tuple[str, ...]:
    return tuple(
        pattern
        for pattern in app.settings.routes
        if not any(matches(pattern, name) for name in app.tasks)
    )
