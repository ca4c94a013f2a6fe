"""The whole suite, for a test module of an engine: `from windlass.testing.contract.suite import *`.

Test names are unique in the whole suite, so that no test hides another test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from windlass.testing.contract import (
    test_audit,
    test_change,
    test_check,
    test_claim,
    test_close,
    test_copies,
    test_dead_groups,
    test_documents,
    test_ends,
    test_find,
    test_finish,
    test_heartbeats,
    test_history,
    test_lost_replies,
    test_matrix,
    test_operator,
    test_pause,
    test_plans,
    test_put,
    test_races,
    test_schedules,
    test_sessions,
    test_steps,
    test_transactions,
    test_unique,
    test_wait,
)
from windlass.testing.contract.machine import run_machine
from windlass.testing.contract.place import Place
from windlass.testing.contract.world import World

MODULES: Final = (
    test_audit,
    test_change,
    test_check,
    test_claim,
    test_close,
    test_copies,
    test_dead_groups,
    test_documents,
    test_ends,
    test_find,
    test_finish,
    test_heartbeats,
    test_history,
    test_lost_replies,
    test_matrix,
    test_operator,
    test_pause,
    test_plans,
    test_put,
    test_races,
    test_schedules,
    test_sessions,
    test_steps,
    test_transactions,
    test_unique,
    test_wait,
)


def test_an_engine_does_what_the_model_does(new_place: Callable[[], Place]) -> None:
    """Run many examples of an engine, each compared with the reference model."""
    run_machine(lambda: World(new_place()))


_TESTS: Final = {
    name: test
    for module in MODULES
    for name, test in vars(module).items()
    if name.startswith("test_") and callable(test)
}
globals().update(_TESTS)
__all__ = [name for name, test in globals().items() if name.startswith("test_") and callable(test)]
