"""On every variant: `windlass.testing.contract.test_operator`."""

from windlass.testing.contract.test_operator import *
