"""An app whose import changes the current folder."""

import os

from tests.worker.apps.scripted import Script
from windlass.app import Windlass

app = Windlass()
os.chdir(os.environ["SCRIPT_ELSEWHERE"])
script = Script(app)
