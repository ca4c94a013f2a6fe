"""On every variant: `windlass.testing.contract.test_audit`."""

from windlass.testing.contract.test_audit import *
