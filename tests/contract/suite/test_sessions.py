"""On every variant: `windlass.testing.contract.test_sessions`."""

from windlass.testing.contract.test_sessions import *
