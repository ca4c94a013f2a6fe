"""On every variant: `windlass.testing.contract.test_ends`."""

from windlass.testing.contract.test_ends import *
