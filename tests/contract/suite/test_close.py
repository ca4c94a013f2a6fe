"""On every variant: `windlass.testing.contract.test_close`."""

from windlass.testing.contract.test_close import *
