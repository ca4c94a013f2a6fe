"""On every variant: `windlass.testing.contract.test_dead_groups`."""

from windlass.testing.contract.test_dead_groups import *
