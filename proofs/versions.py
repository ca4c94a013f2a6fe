"""Two versions of one app: the second has one more task."""

from __future__ import annotations

import time

from windlass import Windlass
from windlass.task import Task


def steady(number: int) -> int:
    time.sleep(0.002)
    return number


def fresh(number: int) -> int:
    time.sleep(0.002)
    return number


def declare_all(app: Windlass) -> tuple[Task[[int], int], Task[[int], int]]:
    return app.task(name="steady")(steady), app.task(name="fresh")(fresh)


version_1 = Windlass()
version_1.task(name="steady")(steady)

version_2 = Windlass()
declare_all(version_2)
