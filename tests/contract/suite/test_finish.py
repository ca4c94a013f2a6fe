"""On every variant: `windlass.testing.contract.test_finish`."""

from windlass.testing.contract.test_finish import *
