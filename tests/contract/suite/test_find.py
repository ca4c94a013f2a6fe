"""On every variant: `windlass.testing.contract.test_find`."""

from windlass.testing.contract.test_find import *
