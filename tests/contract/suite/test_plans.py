"""On every variant: `windlass.testing.contract.test_plans`."""

from windlass.testing.contract.test_plans import *
