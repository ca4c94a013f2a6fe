"""On every variant: `windlass.testing.contract.test_steps`."""

from windlass.testing.contract.test_steps import *
