"""On every variant: `windlass.testing.contract.test_races`."""

from windlass.testing.contract.test_races import *
