"""The settings of a queue that its engine keeps: the same for all who put jobs into it or claim.

An engine stores them for those queues only that have others than the usual ones, all together in
one value, which it reads along with what it reads anyway.
"""

from __future__ import annotations

from typing import Final

import msgspec


class QueueSettings(msgspec.Struct, frozen=True, array_like=True):
    """Of one queue. Stored as an array: fields are only ever added at the end."""

    paused: bool = False


#: Of a queue that nobody has changed.
USUAL: Final = QueueSettings()
