"""Testing code that enqueues: the real engine in memory, a clock that can be moved, and faults.

Nothing else of windlass imports this package. `windlass.testing.contract` is for those who write an
engine of their own.
"""

from windlass.testing.faults import Faults
from windlass.testing.sandbox import Drained, Sandbox, SandboxJob

__all__ = ["Drained", "Faults", "Sandbox", "SandboxJob"]
