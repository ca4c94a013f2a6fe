"""Checks of access tokens that are asked for at the same time.

The streams of an instance all check their tokens when a snapshot arrives. `TokenChecks` collects
what is asked for in one step of the event loop, and checks it with one call of the engine for
any number of tokens. Each text is compared with its own stored digest.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass.access_tokens import AccessToken, TokenCache

if TYPE_CHECKING:
    from windlass.app import Windlass


class TokenChecks:
    """The checks of one instance. Used by its event loop alone."""

    def __init__(self, cache: TokenCache) -> None:
        self._cache = cache
        self._asked: list[tuple[str, asyncio.Future[AccessToken | None]]] = []
        self._answering: set[asyncio.Task[None]] = set()

    async def check(self, app: Windlass, text: str) -> AccessToken | None:
        """Return the token of a text, or None; see `TokenCache.acheck`."""
        future: asyncio.Future[AccessToken | None] = asyncio.get_running_loop().create_future()
        self._asked.append((text, future))
        if len(self._asked) == 1:
            # The task begins after this step of the loop, in which others may ask too.
            task = asyncio.create_task(self._answer(app))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        return await future

    async def _answer(self, app: Windlass) -> None:
        asked, self._asked = self._asked, []
        try:
            tokens = await self._cache.acheck_all(app, [text for text, _ in asked])
        except Exception as error:  # noqa: BLE001  # every caller gets it
            for _, future in asked:
                if not future.done():  # its request may have been given up
                    future.set_exception(error)
            return
        for (_, future), token in zip(asked, tokens, strict=True):
            if not future.done():
                future.set_result(token)
