"""The engine contract: what every engine does, and the values that it takes and gives.

1. `jobs`, `claims`, `sessions`, `schedules` and `admin`: the values and the verbs of one concern.
2. `protocol`: the engine, which has the verbs of all concerns, and its options and capabilities.

Import all of them from here: each name is listed once, where it is defined.
"""

from windlass.engine.contract.admin import *
from windlass.engine.contract.claims import *
from windlass.engine.contract.jobs import *
from windlass.engine.contract.protocol import *
from windlass.engine.contract.schedules import *
from windlass.engine.contract.sessions import *
