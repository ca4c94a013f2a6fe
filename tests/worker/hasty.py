"""The scripted app in a child to which a short job seems a long one."""

from tests.worker.scripted import app
from windlass.worker import watch

watch.LONG_S = 0.3

__all__ = ["app"]
