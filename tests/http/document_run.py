"""Requests that schemathesis makes from the API's own document.

For each operation it makes valid and invalid requests, the same ones for the same seed, and checks
every answer: no failure of the server, only documented statuses and media types, and bodies of the
documented shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

SEED: Final = 18
#: An endless stream has no whole answer; it has tests of its own.
STREAMS: Final = ["/v1/events"]
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def run_document(url: str, token: str | None, examples: int) -> Iterator[str]:
    """Send about `examples` requests to every operation; yield the operations."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json").exclude(path=STREAMS)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operation = found.ok()
        _try(operation, url, headers, examples)
        yield f"{operation.method.upper()} {operation.path}"


def _try(operation: Any, url: str, headers: dict[str, str], examples: int) -> None:
    @seed(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        _end_at_once(case)
        case.call_and_validate(base_url=url, headers=headers, checks=CHECKS)

    send()


def _end_at_once(case: Any) -> None:
    """Ask for no wait: a long poll takes its time."""
    for part in (case.query, case.body):
        if isinstance(part, dict) and isinstance(part.get("wait_s"), int | float):
            part["wait_s"] = 0
