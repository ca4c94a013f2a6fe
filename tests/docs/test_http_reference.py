"""The reference of the HTTP API is made from the routes, and names all of them."""

from __future__ import annotations

from tests.docs.pages import read
from tools.make_http_reference import PAGE, make
from windlass.http.table import ROUTES


def test_the_page_is_current() -> None:
    assert read(PAGE) == make(), "run: python tools/make_http_reference.py"


def test_every_route_is_there_once() -> None:
    text = read(PAGE)
    for route in ROUTES:
        assert text.count(f"`{route.method} {route.path}` for ") == 1, route


def test_comments_of_fields_are_their_meaning() -> None:
    row = next(line for line in make().splitlines() if line.startswith("| `expires_in_s`"))
    assert row.endswith("| cancel the job if it has not started by then |")


def test_each_part_has_one_heading() -> None:
    headings = [line for line in make().splitlines() if line.startswith("## ")]
    assert sorted(set(headings)) == sorted(headings)
