"""The engine contract: the operations of every engine, their arguments and results.

1. `jobs`, `claims`, `steps`, `sessions`, `dead_groups`, `schedules`, `documents`, `audit`,
   `history`, `copies`, `admin` and `transactions`: values and operations of one concern.
2. `pages`: the order of `find`, and its cursor.
3. `protocol`: the engine, which has the operations of all concerns; its options and capabilities.

Import all names from here.
"""

from windlass.engine.contract.admin import *
from windlass.engine.contract.audit import *
from windlass.engine.contract.claims import *
from windlass.engine.contract.copies import *
from windlass.engine.contract.dead_groups import *
from windlass.engine.contract.documents import *
from windlass.engine.contract.history import *
from windlass.engine.contract.jobs import *
from windlass.engine.contract.pages import *
from windlass.engine.contract.protocol import *
from windlass.engine.contract.schedules import *
from windlass.engine.contract.sessions import *
from windlass.engine.contract.steps import *
from windlass.engine.contract.transactions import *
