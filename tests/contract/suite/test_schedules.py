"""On every variant: `windlass.testing.contract.test_schedules`."""

from windlass.testing.contract.test_schedules import *
