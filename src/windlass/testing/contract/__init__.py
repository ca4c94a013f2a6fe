"""The contract suite: the tests that every engine must pass.

The suite needs pytest and hypothesis: the extra `testing`. `suite` has all tests, `plugin` the
fixtures, `place` the part that the author of an engine provides, `model` the specification.
"""

from pathlib import Path

import pytest

# Rewrite asserts for detailed failures: by default, pytest does so only in files that it collects.
pytest.register_assert_rewrite(
    *(f"{__name__}.{file.stem}" for file in Path(__file__).parent.glob("[a-z]*.py"))
)
