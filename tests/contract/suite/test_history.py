"""On every variant: `windlass.testing.contract.test_history`."""

from windlass.testing.contract.test_history import *
