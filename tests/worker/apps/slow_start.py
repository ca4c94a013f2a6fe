"""An app that takes its time to be imported: whoever waits for it leaves a gap."""

import time

from tests.worker.apps.scripted import app

#: In seconds.
IMPORT_S = 2.0

time.sleep(IMPORT_S)

__all__ = ["app"]
