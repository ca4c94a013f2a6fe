"""The scripted app in a child to which a short job seems a long one."""

from tests.worker.apps.scripted import app
from windlass.worker.child import watchdog

watchdog.LONG_S = 0.3

__all__ = ["app"]
