"""On every variant: `windlass.testing.contract.test_put`."""

from windlass.testing.contract.test_put import *
