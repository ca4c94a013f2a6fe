"""Rules that all engines and workers share: job states, stored calls and results, ids, durations.

The core is pure: no input or output, no clock, no threads.
"""

from __future__ import annotations

from functools import cache
from typing import Final

#: The name for `pip install`. The name of the import package belongs to an unrelated project on the
#: package index.
DISTRIBUTION: Final = "windlass-queue"


def install_command(extra: str) -> str:
    """The command that installs an extra, from the package index or in a clone."""
    return f"pip install '{DISTRIBUTION}[{extra}]', or in a clone pip install '.[{extra}]'"


@cache
def installed_version() -> str:
    from importlib.metadata import version  # slow to import, and seldom needed

    return version(DISTRIBUTION)
