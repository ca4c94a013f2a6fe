"""The pytest plugin with the fixture `windlass_sandbox`, found by its entry point.

Every run of pytest in an environment with windlass imports this module. So it is a separate
package, and loads the library only when a test uses the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from windlass import Windlass
    from windlass.testing import Sandbox


@pytest.fixture
def windlass_app() -> Windlass:
    """The app under test. Override it by a fixture of the same name that returns the app."""
    pytest.fail(
        "windlass_sandbox does not know your app. Write a fixture that returns it into "
        "conftest.py:\n\n"
        "    @pytest.fixture\n"
        "    def windlass_app():\n"
        "        from shop.tasks import app\n\n"
        "        return app",
        pytrace=False,
    )


@pytest.fixture
def windlass_sandbox(windlass_app: Windlass) -> Iterator[Sandbox]:
    """The app in a sandbox for the length of the test: see `windlass.testing.Sandbox`."""
    from windlass.testing import Sandbox

    with Sandbox(windlass_app) as box:
        yield box
