"""The contradictions that `check` looks for on every SQL engine, in words. Each engine has its own
queries that find them, and its own statements that fix them.

1. A `Contradiction` is a sentence about a row of such a query, and the fix in words.
2. The constants below are those that several engines have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple


class Contradiction(NamedTuple):
    """A kind of disagreement between stored data, and its fix. Without one, it is only reported."""

    sentence: str  # with placeholders {0}, {1} ... for the columns of the query
    fix: str = ""  # what the repair does

    def describe(self, row: Sequence[object]) -> str:
        return self.sentence.format(*row)

    def describe_fix(self, row: Sequence[object]) -> str:
        return f"{self.describe(row).removesuffix('.')}: {self.fix}."


FAILURE_OF_NO_JOB: Final = Contradiction(
    "A failure is stored for row {0}, which is no job.", "it is removed"
)
STEP_OF_NO_JOB: Final = Contradiction(
    "A step is stored for row {0}, which is no job.", "it is removed"
)
UNKNOWN_SESSION: Final = Contradiction(
    "Job {0} is running for session {1}, which is unknown: no worker will ever take it back.",
    "the session gets a lease, and beats or loses the job",
)
WRONG_COUNTER: Final = Contradiction(
    "Queue {0} counts {2} jobs as {1}, but there are {3}.", "corrected"
)
BEYOND_SEQUENCE: Final = Contradiction(
    "Job {0} has a place or row beyond the sequence.", "the sequence continues after it"
)
WRONG_HOLD: Final = Contradiction("Job {0} is held as {1} in state {2}.", "the hold ends")
WRONG_RETENTION: Final = Contradiction(
    "Job {0} is {1}, and its time to be kept is {2}.", "corrected"
)
WRONG_DUE_TIME: Final = Contradiction(
    "Job {0} is {1}, held as {2}, and its due time is {3}.", "corrected"
)
UNKNOWN_STATE: Final = Contradiction("Job {0} is in state {1}, which does not exist.")
KEY_OF_NO_JOB: Final = Contradiction(
    "Unique key {1} of task {0} leads to job {2}, which has another one or does not exist.",
    "it leads nowhere",
)
LOST_KEY: Final = Contradiction(
    "Job {0} is {1} and holds the unique key {2}, but that does not lead to it.", "it leads to it"
)
WRONG_BUDGETS: Final = Contradiction(
    "Job {0} was started {1} times, but its budgets account for {2}."
)
DEATH_OF_NO_JOB: Final = Contradiction(
    "Row {0} is in a group of dead jobs, but is no dead job, or of another group or instant.",
    "it leaves the group",
)
DEAD_WITHOUT_GROUP: Final = Contradiction(
    "Job {0} is dead and in no group.", "it gets one, without a fingerprint"
)
WRONG_GROUP_SIZE: Final = Contradiction(
    "A group of dead jobs of task {1} counts {2}, but there are {3}.", "corrected"
)
EMPTY_GROUP: Final = Contradiction("A group of dead jobs of task {1} is empty.", "it is removed")
SCHEDULE_WITHOUT_BODY: Final = Contradiction(
    "Schedule {0} has no body.",
    "what is left of it is removed; the app declares it again",
)
BODY_OF_NO_SCHEDULE: Final = Contradiction(
    "A body is stored for row {0}, which is no schedule.", "it is removed"
)
