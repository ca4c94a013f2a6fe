"""On every variant: `windlass.testing.contract.test_heartbeats`."""

from windlass.testing.contract.test_heartbeats import *
