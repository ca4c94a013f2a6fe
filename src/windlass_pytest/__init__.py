"""The pytest plugin, found by its entry point: the fixture `windlass_sandbox`, its marker, and the
option `--windlass-sandbox-only`.

Every run of pytest in an environment with windlass imports this module. So it is a separate
package, and loads the library only when a test uses the fixture or the run uses the option.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from windlass import Windlass
    from windlass.testing import Sandbox

_MARKER = "windlass(now=..., schedules=False): options of the sandbox of a test"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("windlass").addoption(
        "--windlass-sandbox-only",
        action="store_true",
        help="refuse to open an engine outside of a sandbox, such as the real database",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    if config.getoption("--windlass-sandbox-only"):
        from windlass.testing import forbid_engines

        stack = ExitStack()
        stack.enter_context(forbid_engines())
        config.add_cleanup(stack.close)


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
def windlass_now() -> datetime | None:
    """The time at which sandboxes start. Override it for a folder or module of tests; for one test
    write `@pytest.mark.windlass(now=...)`."""
    return None


@pytest.fixture
def windlass_sandbox(
    request: pytest.FixtureRequest, windlass_app: Windlass, windlass_now: datetime | None
) -> Iterator[Sandbox]:
    """The app in a sandbox for the length of the test: see `windlass.testing.Sandbox`."""
    from windlass.testing import Sandbox

    options: dict[str, Any] = {"now": windlass_now}
    for marker in reversed(list(request.node.iter_markers("windlass"))):  # the closest one last
        if marker.args or not marker.kwargs.keys() <= {"now", "schedules"}:
            pytest.fail(
                f"Expected @pytest.mark.{_MARKER.partition(':')[0]}, found {marker.args!r} and "
                f"{marker.kwargs!r}.",
                pytrace=False,
            )
        options |= marker.kwargs
    with Sandbox(windlass_app, **options) as box:
        yield box
