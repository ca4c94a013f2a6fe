"""The page of mistakes has the real error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.mistakes import ALL, PAGE, Mistake, make, page, row
from tests.docs.pages import read, table_rows

#: The least number of mistakes on the page.
LEAST = 30


@pytest.mark.parametrize("mistake", ALL, ids=[mistake.title for mistake in ALL])
def test_a_mistake_is_answered_as_the_page_says(mistake: Mistake, tmp_path: Path) -> None:
    answer = make(mistake, tmp_path)
    told = f"not as the page says, which `python -m tests.docs.mistakes` writes: {answer}"
    assert row(mistake, answer) in read(PAGE).splitlines(), told


def test_there_are_no_others() -> None:
    titles = [mistake.title for mistake in ALL]
    assert len(set(titles)) == len(titles) >= LEAST
    assert [cells[0] for cells in table_rows(PAGE)] == titles
    assert read(PAGE).startswith(page(dict.fromkeys(titles, "")).partition("\n## ")[0])
