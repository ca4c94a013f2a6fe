"""On every variant: `windlass.testing.contract.test_documents`."""

from windlass.testing.contract.test_documents import *
