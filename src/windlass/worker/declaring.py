"""The schedules that an app declares in code, as its worker hands them to the engine."""

from __future__ import annotations

from windlass.app import Windlass
from windlass.worker.control import Declaration


def declarations(app: Windlass) -> tuple[Declaration, ...]:
    return tuple(Declaration(name, entry.pack()) for name, entry in app.declared_schedules())
