"""The contract suite, for whoever writes an engine: what it has to do, as tests to be passed.

Needs pytest and hypothesis: `pip install 'windlass[testing]'`. `suite` is all of it, `plugin` the
fixtures, `place` what the author of an engine gives, `model` the specification.
"""

from pathlib import Path

import pytest

# Asserts that tell what they found: pytest does so by itself only in files that it collects.
pytest.register_assert_rewrite(
    *(f"{__name__}.{file.stem}" for file in Path(__file__).parent.glob("[a-z]*.py"))
)
