"""On every variant: `windlass.testing.contract.test_wait`."""

from windlass.testing.contract.test_wait import *
