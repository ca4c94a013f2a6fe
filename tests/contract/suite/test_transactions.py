"""On every variant: `windlass.testing.contract.test_transactions`."""

from windlass.testing.contract.test_transactions import *
