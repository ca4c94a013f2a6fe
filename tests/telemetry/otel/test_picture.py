"""The picture of a trace shows what really happens."""

from __future__ import annotations

import pytest

from tools.draw_trace import TARGET, collect, draw, load, shape


def test_the_picture_is_drawn_from_the_saved_spans() -> None:
    assert TARGET.read_text(encoding="utf-8") == draw(load())


@pytest.mark.slow
def test_the_saved_spans_are_those_of_a_run() -> None:
    """A real worker has the same spans, parents and links; only the times differ."""
    assert shape(load()) == shape(collect())
