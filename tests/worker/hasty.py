"""The scripted app in a child whose watch loses its patience soon."""

from tests.worker.scripted import app
from windlass.worker import pump_watch, watch

watch.LONG_S = 0.3
pump_watch.WEDGED_S = 0.3

__all__ = ["app"]
