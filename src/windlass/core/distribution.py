"""The name of the distribution for `pip install`. It differs from the import package, because an
unrelated project on the package index has that name."""

from __future__ import annotations

from functools import cache
from typing import Final

DISTRIBUTION: Final = "windlass-queue"


def install_command(extra: str) -> str:
    """How to install an extra, from the index or in a clone."""
    return f"pip install '{DISTRIBUTION}[{extra}]', or in a clone pip install '.[{extra}]'"


@cache
def installed_version() -> str:
    from importlib.metadata import version  # slow to import, and seldom needed

    return version(DISTRIBUTION)
