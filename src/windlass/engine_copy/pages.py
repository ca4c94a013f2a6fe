"""Read a list of an engine page by page, from its beginning or from a cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar


class HasCursor(Protocol):
    """A page of a list; `cursor` leads to the next one, None ends the list."""

    @property
    def cursor(self) -> str | None: ...


Page = TypeVar("Page", bound=HasCursor)


def read_pages(read: Callable[[str | None], Page], cursor: str | None = None) -> Iterator[Page]:
    """Yield the pages of a list. At least one page is read."""
    while True:
        page = read(cursor)
        yield page
        cursor = page.cursor
        if cursor is None:
            return
