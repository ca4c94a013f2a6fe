"""Tools to test code that enqueues: an engine in memory, a clock that tests can move, and faults.

No other package of windlass imports this one. `windlass.testing.contract` is for authors of
engines.
"""

from windlass.testing.faults import Faults
from windlass.testing.sandbox import Drained, Sandbox, SandboxJob, forbid_engines

__all__ = ["Drained", "Faults", "Sandbox", "SandboxJob", "forbid_engines"]
