"""`check` and `repair`."""

from __future__ import annotations

from typing import Any

from windlass.engine.contract import Repaired
from windlass.engine.sql.statements import Statements


def check(db: Statements) -> list[str]:
    return []


def repair(read: Any, write: Any, cursor: str | None, *, change: bool) -> Repaired:
    return Repaired()
