"""The app of the worker in `proofs.metrics`: many tasks."""

from __future__ import annotations

from windlass import Windlass

app = Windlass()


def nothing() -> None:
    """The shortest job."""


for number in range(200):
    app.task(name=f"task{number}")(nothing)
