"""On every variant: `windlass.testing.contract.test_matrix`."""

from windlass.testing.contract.test_matrix import *
