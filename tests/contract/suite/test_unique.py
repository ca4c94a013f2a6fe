"""On every variant: `windlass.testing.contract.test_unique`."""

from windlass.testing.contract.test_unique import *
