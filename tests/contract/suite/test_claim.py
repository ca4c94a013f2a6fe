"""On every variant: `windlass.testing.contract.test_claim`."""

from windlass.testing.contract.test_claim import *
