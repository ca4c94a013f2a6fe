"""The log of the processes of a worker: one line for each record, on standard error, text or JSON.

1. Only `windlass worker` configures logging; using the library does not.
2. The logger `windlass` gets a handler, unless the app has added one. The root logger, and with it
   the loggers of the app, gets the same handler only if the app has added none.
3. Records of a running job have `job_id`, `task`, `queue` and `attempt`, set by `JobFilter`.
   Handlers that the app has when it is loaded get this filter too. A record factory is no
   alternative: a call with one of these names in `extra` would raise `KeyError`.
4. No text can forge a line, and passwords of urls are masked in every line.
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
#: The fields of the running job that a record gets.
JOB_FIELDS: Final = ("job_id", "task", "queue", "attempt")

#: Attributes of a record that the standard library sets. All others come from `extra`.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", *JOB_FIELDS}
#: Control characters of terminals, and line separators.
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_CONTINUED: Final = "\n    "


# ------------------------------------------------------------------------------------- configuring


def configure_early(level: str | None = None) -> None:
    """Configure logging from the environment, before the app is loaded; `level` is the option of
    the command. An invalid value is refused later, with the other settings."""
    level = (level or os.environ.get(f"{PREFIX}LOG_LEVEL", "")).lower()
    format = os.environ.get(f"{PREFIX}LOG_FORMAT", "").lower()
    configure_own(
        level if level in LOG_LEVELS else "info", format if format in LOG_FORMATS else "text"
    )


def configure_own(level: str, format: str) -> None:
    """Add one handler to the logger `windlass`, however often this is called."""
    logger = logging.getLogger("windlass")
    _enable_again()
    _remove_ours(logger)
    if not logger.handlers:
        logger.addHandler(WorkerHandler(format))
        logger.propagate = False
    logger.setLevel(level.upper())


def configure_all(level: str, format: str) -> None:
    """Configure logging after the app is loaded, also for the root logger if it has no handler."""
    configure_own(level, format)
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(WorkerHandler(format))
        root.setLevel(level.upper())
    _name_jobs_in_all_handlers()


def _name_jobs_in_all_handlers() -> None:
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    for logger in loggers:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            if not any(isinstance(one, JobFilter) for one in handler.filters):
                handler.addFilter(JobFilter())


def _remove_ours(logger: logging.Logger) -> None:
    for handler in list(logger.handlers):
        if isinstance(handler, WorkerHandler):
            logger.removeHandler(handler)
            logger.propagate = True


def _enable_again() -> None:
    """Enable our loggers again: `logging.config` disables existing loggers by default."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "windlass" and isinstance(logger, logging.Logger):
            logger.disabled = False


# ---------------------------------------------------------------------------------------- handling


class JobFilter(logging.Filter):
    """Add the fields of the running job to every record; None outside of a job. Fields that the
    record already has stay."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = running.get(None)
        for name in JOB_FIELDS:
            if not hasattr(record, name):
                setattr(record, name, getattr(context, name, None))
        return True


class WorkerHandler(logging.StreamHandler[Any]):
    """A handler for standard error."""

    def __init__(self, format: str) -> None:
        super().__init__()
        self.addFilter(JobFilter())
        self.setFormatter(JsonFormatter() if format == "json" else TextFormatter(FORMAT))

    def format(self, record: logging.LogRecord) -> str:
        return mask_urls(super().format(record))


class TextFormatter(logging.Formatter):
    """Indent continuation lines, so that no text looks like another record."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return _CONTROL.sub(_escape, text).replace("\n", _CONTINUED)

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        job_id = getattr(record, "job_id", None)
        if job_id is None or record.name.startswith("windlass"):
            return line  # a line of windlass already names its job
        job = f"job {job_id}, task {getattr(record, 'task', None)}"
        return f"{line} ({job}, attempt {getattr(record, 'attempt', None)})"


class JsonFormatter(logging.Formatter):
    """One JSON object per line: the record, its job, its event, and the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
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
    except Exception:  # noqa: BLE001  # JSON cannot hold a value, or its repr fails
        shown = {ascii(name)[1:-1]: _encode_alone(value) for name, value in fields.items()}
        return msgspec.json.encode(shown).decode()


def _encode_alone(value: object) -> msgspec.Raw:
    """Encode a value, else its `ascii`, else its type, so that it affects no other field."""
    with suppress(Exception):  # the code of the value's class may fail
        return msgspec.Raw(msgspec.json.encode(value, enc_hook=str))
    shown = f"a {type(value).__qualname__} that cannot be shown"
    with suppress(Exception):
        shown = ascii(value)
    return msgspec.Raw(msgspec.json.encode(shown))


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
