"""The scripted app in a child that counts short jobs as long ones."""

from tests.worker.apps.scripted import app
from windlass.worker.child import watchdog

watchdog.LONG_S = 0.3

__all__ = ["app"]
