"""How the processes of a worker log: one line for each record, on standard error, as text or JSON.

1. Only `windlass worker` calls this; a process that merely uses the library is left alone.
2. What `windlass` logs has a handler of its own, unless the app has given it another one. The root
   logger, and with it the loggers of the app, gets the same handler only where the app has left it
   without any.
3. Records made while a job runs carry `job_id`, `task`, `queue` and `attempt`: by `JobFilter`,
   which an app that has handlers of its own can add to them.
4. No line can be forged, and no password of a url is shown, whoever logs it.
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from windlass.context import running
from windlass.settings import LOG_FORMATS, LOG_LEVELS, PREFIX, mask_urls
from windlass.worker.logs.events import describe

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s[%(process)d] %(message)s"
#: What a record is given of the job in which it was made.
JOB_FIELDS: Final = ("job_id", "task", "queue", "attempt")

#: The loggers of the worker's own lines.
_OURS: Final = ("windlass.worker", "windlass.dead_letters")
#: All that the standard library itself puts into a record; the rest is `extra` of whoever logs.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", *JOB_FIELDS}
#: What a terminal would obey, or take for the end of a line.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_CONTINUED: Final = "\n    "


# ------------------------------------------------------------------------------------- configuring


def configure_early() -> None:
    """Before the app is loaded only the environment can say how to log. A value that makes no sense
    is refused with the other settings, in a moment."""
    level = os.environ.get(f"{PREFIX}LOG_LEVEL", "").lower()
    format = os.environ.get(f"{PREFIX}LOG_FORMAT", "").lower()
    configure_own(
        level if level in LOG_LEVELS else "info", format if format in LOG_FORMATS else "text"
    )


def configure_own(level: str, format: str) -> None:
    """Show what `windlass` logs, once, however often this is called."""
    logger = logging.getLogger("windlass")
    _enable_again()
    _remove_ours(logger)
    if not logger.handlers:
        logger.addHandler(WorkerHandler(format))
        logger.propagate = False
    logger.setLevel(level.upper())


def configure_all(level: str, format: str) -> None:
    """The same when the app is loaded, and for its own loggers too if it has not seen to them."""
    configure_own(level, format)
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(WorkerHandler(format))
        root.setLevel(level.upper())


def _remove_ours(logger: logging.Logger) -> None:
    for handler in list(logger.handlers):
        if isinstance(handler, WorkerHandler):
            logger.removeHandler(handler)
            logger.propagate = True


def _enable_again() -> None:
    """`logging.config` of an app switches off every logger that was there before, unless told."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "windlass" and isinstance(logger, logging.Logger):
            logger.disabled = False


# ---------------------------------------------------------------------------------------- handling


class JobFilter(logging.Filter):
    """Lets every record pass, and tells it in which job it was made; None outside of one. What the
    record has by the same name already is left as it is."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = running.get(None)
        for name in JOB_FIELDS:
            if not hasattr(record, name):
                setattr(record, name, getattr(context, name, None))
        return True


class WorkerHandler(logging.StreamHandler[Any]):
    """On standard error."""

    def __init__(self, format: str) -> None:
        super().__init__()
        self.addFilter(JobFilter())
        self.setFormatter(JsonFormatter() if format == "json" else TextFormatter(FORMAT))

    def format(self, record: logging.LogRecord) -> str:
        return mask_urls(super().format(record))


class TextFormatter(logging.Formatter):
    """A line that continues is indented: nothing that is logged looks like another record."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return _CONTROL.sub(_escape, text).replace("\n", _CONTINUED)

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        job_id = getattr(record, "job_id", None)
        if job_id is None or record.name.startswith("windlass"):
            return line  # or it names the job itself
        job = f"job {job_id}, task {getattr(record, 'task', None)}"
        return f"{line} ({job}, attempt {getattr(record, 'attempt', None)})"


class JsonFormatter(logging.Formatter):
    """One object a line: what every record has, its job, its event, and `extra` of whoever logs."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.name in _OURS:  # others may use the same words
            fields |= describe(record.msg, record.args)
        for name in JOB_FIELDS:
            if getattr(record, name, None) is not None:
                fields.setdefault(name, getattr(record, name))
        for name, value in vars(record).items():
            if name not in _STANDARD:
                fields.setdefault(name, value)
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        return _encode(fields)


def _encode(fields: dict[str, object]) -> str:
    try:
        return msgspec.json.encode(fields, enc_hook=str).decode()
    except Exception:  # noqa: BLE001  # what JSON cannot hold, or what cannot even be shown
        shown = {ascii(name)[1:-1]: _encode_alone(value) for name, value in fields.items()}
        return msgspec.json.encode(shown).decode()


def _encode_alone(value: object) -> msgspec.Raw:
    """As it is if that is possible: one odd value leaves the others what they are."""
    for show in (_as_it_is, ascii, _type_of):
        with suppress(Exception):  # of the class of the value; the last one never fails
            return msgspec.Raw(msgspec.json.encode(show(value), enc_hook=str))
    return msgspec.Raw(b"null")


def _as_it_is(value: object) -> object:
    return value


def _type_of(value: object) -> str:
    return f"a {type(value).__qualname__} that cannot be shown"


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
