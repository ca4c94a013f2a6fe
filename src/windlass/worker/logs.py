"""How a worker logs: one line of text for each event, on standard error.

Only the processes of a worker call this. The root logger is left to the app."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d] %(message)s"


def configure_logging() -> None:
    """Show what `windlass` logs, once, however often this is called."""
    logger = logging.getLogger("windlass")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
