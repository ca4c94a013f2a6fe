"""On every variant: `windlass.testing.contract.test_lost_replies`."""

from windlass.testing.contract.test_lost_replies import *
