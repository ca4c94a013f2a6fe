"""Bodies with very many values are refused before they are decoded."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from tests.http.client import Client
from tests.http.worker_protocol.remote import problem_of
from windlass.http import request_reader
from windlass.http.request_reader import has_too_many_values
from windlass.http.routes import MAX_VALUES

JSON = {"Content-Type": "application/json"}


def list_of(number: int, value: bytes = b"1") -> bytes:
    return b"[" + b",".join([value] * number) + b"]"


class TestCounts:
    @pytest.fixture(autouse=True)
    def most(self, monkeypatch: pytest.MonkeyPatch) -> int:
        monkeypatch.setattr(request_reader, "MAX_VALUES", 1_000)
        return 1_000

    @pytest.mark.parametrize("value", [b"1", b'"a,b"', b'"\\""', b'{"a":1}', b"[]"])
    def test_values_are_counted(self, most: int, value: bytes) -> None:
        assert not has_too_many_values(list_of(most + 1, value))
        assert has_too_many_values(list_of(most + 2, value))

    @pytest.mark.parametrize("unit", [",", ',"', ",\\", '\\",'])
    def test_commas_in_texts_do_not_count(self, most: int, unit: str) -> None:
        text = unit * 2 * most
        assert not has_too_many_values(json.dumps([text, text]).encode())

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("unit", [b'\\"', b'"', b"\\", b'"\\'])
    def test_damaged_bodies_are_counted_in_one_pass(self, most: int, unit: bytes) -> None:
        """A search that began again at each quote would take hours."""
        commas = b"," * (most + 1)
        for body in (b'"' + commas + unit * 2**20, b'"' + unit * 2**20 + commas):
            has_too_many_values(body)


def test_a_body_with_many_values_is_refused_before_it_is_decoded(client: Client) -> None:
    body = b'{"task":"shop.report","args":' + list_of(MAX_VALUES * 3) + b"}"
    tracemalloc.start()
    try:
        answer = client.post("/v1/jobs", content=body, headers=JSON)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert problem_of(answer) == (413, "too-large")
    assert "at most 200,000 values" in answer.json()["detail"]
    assert peak < 5 * len(body)


def test_a_long_text_with_commas_is_stored(client: Client) -> None:
    text = "a," * (MAX_VALUES + 1)
    answer = client.post("/v1/jobs", {"task": "shop.report", "args": [text]})
    assert answer.status_code == 201
