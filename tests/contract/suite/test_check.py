"""On every variant: `windlass.testing.contract.test_check`."""

from windlass.testing.contract.test_check import *
