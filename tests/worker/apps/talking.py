"""An app that configures logging in one of several ways, selected by the environment."""

from __future__ import annotations

import logging
import logging.config
import os
import sys

from windlass import Retry, Windlass

WAY = "TALKING_WAY"

way = os.environ.get(WAY, "none")
if way == "own root":
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("MINE %(job_id)s %(task)s %(queue)s %(attempt)s %(message)s")
    )
    logging.getLogger().addHandler(handler)
elif way == "dictConfig":
    logging.config.dictConfig({"version": 1, "root": {"level": "ERROR"}})
elif way == "own windlass":
    logging.getLogger("windlass").addHandler(logging.StreamHandler(sys.stdout))

log = logging.getLogger("shop")
app = Windlass()


@app.task(name="talk")
def talk(text: str) -> str:
    log.info("working on\n%s", text, extra={"customer": 7})
    return "talked"


@app.task(name="atalk")
async def atalk(text: str) -> str:
    log.warning("at %s", text, extra={"queue": "counter"} if text == "the counter" else None)
    return "talked"


@app.task(name="lose", retry=Retry(max_attempts=2, base=0.01, jitter=0))
def lose(secret: str) -> None:
    raise ValueError(f"cannot use {secret}")
