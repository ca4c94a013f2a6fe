"""On every variant: `windlass.testing.contract.test_pause`."""

from windlass.testing.contract.test_pause import *
