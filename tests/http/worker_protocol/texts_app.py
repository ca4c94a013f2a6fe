"""The app that a server of the tests serves: tasks without code."""

from __future__ import annotations

from windlass import Windlass

app = Windlass()
