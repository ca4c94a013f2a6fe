"""An app whose import is slow: a worker that waits for it without overlap leaves a gap."""

import time

from tests.worker.apps.scripted import app

#: In seconds.
IMPORT_S = 2.0

time.sleep(IMPORT_S)

__all__ = ["app"]
