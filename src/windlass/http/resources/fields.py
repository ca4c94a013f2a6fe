"""Types of fields that several resources share. Their rules are part of the OpenAPI document."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from windlass.core.durations import MAX_DURATION_MS
from windlass.core.ids import RELEASE

#: The end of a text. In Python `$` alone would also match before a line break at the end.
_END: Final = r"$(?!\n)"

JobId: TypeAlias = Annotated[
    str, Meta(pattern=rf"^[A-Za-z0-9_-][A-Za-z0-9_.~-]{{0,63}}{_END}", description="A job's id.")
]
QueueName: TypeAlias = Annotated[
    str, Meta(pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,63}}{_END}", description="A queue.")
]
#: The name of a task or of a schedule.
PlainName: TypeAlias = Annotated[str, Meta(pattern=rf"^[^\s\x00-\x1f]{{1,200}}{_END}")]
#: The digest of similar failures.
Fingerprint: TypeAlias = Annotated[str, Meta(pattern=rf"^[0-9a-f]{{1,64}}{_END}")]
#: The version of the code of a worker.
Release: TypeAlias = Annotated[str, Meta(pattern=rf"^{RELEASE}{_END}")]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DURATION_MS / 1000)]
#: An instant, which must have a time zone.
Instant: TypeAlias = Annotated[datetime, Meta(tz=True)]
#: The length of a page.
PageLimit: TypeAlias = Annotated[int, Meta(ge=1, le=200)]


def seconds_of(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
