"""On every variant: `windlass.testing.contract.test_copies`."""

from windlass.testing.contract.test_copies import *
