"""The pure core: no input or output, no clock, no threads.

Rules that all engines and workers share: the states of a job, the stored form of calls and
results, ids, durations.
"""

from __future__ import annotations

from functools import cache
from typing import Final

#: The name for `pip install`. It differs from the import package, because an unrelated project on
#: the package index has that name.
DISTRIBUTION: Final = "windlass-queue"


def install_command(extra: str) -> str:
    """How to install an extra, from the index or in a clone."""
    return f"pip install '{DISTRIBUTION}[{extra}]', or in a clone pip install '.[{extra}]'"


@cache
def installed_version() -> str:
    from importlib.metadata import version  # slow to import, and seldom needed

    return version(DISTRIBUTION)
