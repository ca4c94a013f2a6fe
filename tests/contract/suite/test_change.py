"""On every variant: `windlass.testing.contract.test_change`."""

from windlass.testing.contract.test_change import *
