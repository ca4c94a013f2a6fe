"""The app of the tests for a server in a process of its own; its url comes from the command."""

from __future__ import annotations

from tests.http.shop import add_tasks
from windlass import Windlass

app = Windlass()
add_tasks(app)
