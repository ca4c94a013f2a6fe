"""The settings of an app: an argument of `Windlass(...)`, else `WINDLASS_*`, else the default.

1. `SettingArguments` lists the arguments of `Windlass(...)`.
2. `Settings` holds the values, with durations in milliseconds, and the source of each value.
3. `read_settings` makes `Settings`; it refuses an unknown name and suggests the nearest one.
4. `without_secrets` and `mask_urls` hide passwords in urls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

import msgspec

from windlass.core.alerts.rules import Alert, default_alerts, join_rules, read_alerts
from windlass.core.alerts.webhook_url import WebhookUrl, read_webhook
from windlass.core.durations import Duration, describe_ms, to_ms
from windlass.core.foreign_words import OF_SETTINGS, instead_of_number, nearest
from windlass.core.ids import RELEASE
from windlass.core.queues.plans import QUEUE_NAME
from windlass.core.redaction import DEFAULT_NAMES
from windlass.core.retry import Retry
from windlass.core.serialization.codec import CODECS
from windlass.core.serialization.frame import HOW_TO_MAKE_ONE, SHORTEST, why_not_encrypting
from windlass.engine.url import absolute_url, default_url
from windlass.errors import SettingError
from windlass.outbox.url import OutboxUrl, read_outbox

if TYPE_CHECKING:
    from windlass.core.serialization.encryption import Keyring

PREFIX: Final = "WINDLASS_"
#: Variables with the prefix of windlass that only the command line reads: not settings.
OTHER_VARIABLES: Final = frozenset({"WINDLASS_APP", "WINDLASS_RUNTIME_DIR"})
#: Kubernetes adds these variables to every container in the namespace of a service `windlass`.
_OF_KUBERNETES: Final = r"WINDLASS_(\w+_)?(SERVICE_(HOST|PORT.*)|PORT(_\d+_.*)?)"

LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
WHEN_FULL: Final = ("reject", "block")
LOG_FORMATS: Final = ("text", "json")

#: The name of a module, with optional `*` parts.
_MODULE: Final = r"[^\W\d]\w*(\.([^\W\d]\w*|\*))*"
#: The name of an argument or a field: one letter at least.
_ARGUMENT: Final = r"(?=.*[^\W\d_])[\w.-]{1,64}"
#: The login of a url. Matches up to the last @ of the authority. With a colon or another @ before
#: that, the password may not be percent-encoded: then matches up to the last @ of the url.
_LOGIN: Final = r"^([^:/?#]+://)(?:[^/?#]*[:@].*|[^/?#]*)@"
#: The password of a url in any text, except for the placeholder PASSWORD.
_SECRET: Final = r"""://(?!\w*:PASSWORD@)(?:[^\s/"]*|[^\s/"@]*:[^\s"]*)@"""


class SettingArguments(TypedDict, total=False):
    """The settings that `Windlass(...)` takes in addition to the url."""

    lease: Duration
    shutdown_grace: Duration
    kill_after: Duration
    retry: Retry
    timeout: Duration
    result_ttl: Duration
    dead_ttl: Duration
    idempotency_ttl: Duration
    dead_alert: int
    dead_alert_growth: int
    alerts: Sequence[Alert]
    alert_webhook: str
    max_payload: int
    max_crashes: int
    max_snoozes: int
    enqueue_timeout: Duration
    when_full: str
    timezone: str
    log_level: str
    log_format: str
    include: Sequence[str]
    routes: Mapping[str, str]
    codec: Literal["json", "msgpack", "pickle"]
    secret: str | Sequence[str]
    encrypt: bool
    redact: Sequence[str]
    release: str
    outbox: str


class Source(StrEnum):
    """Where the value of a setting comes from."""

    OPTION = "option"  # of the command line
    ARGUMENT = "argument"
    ENVIRONMENT = "environment"
    DEFAULT = "default"


class Secrets:
    """The secrets of an app. The repr shows only key names."""

    __slots__ = ("ring",)

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self.ring: Keyring | None = None
        if secrets:
            from windlass.core.serialization.encryption import Keyring  # brings OpenSSL along

            self.ring = Keyring(secrets)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the keys."""
        return () if self.ring is None else self.ring.names

    def __repr__(self) -> str:
        return " ".join(f"key:{name}" for name in self.names) or "none"

    def __bool__(self) -> bool:
        return self.ring is not None

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other) if isinstance(other, Secrets) else NotImplemented

    def __hash__(self) -> int:
        return hash(repr(self))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The values of all settings. `sources` maps each name to the source of its value."""

    url: str
    lease_ms: int  # a worker without a heartbeat for this long counts as dead
    shutdown_grace_ms: int  # how long a stopping worker lets its jobs run on
    kill_after_ms: int  # a job still running this long after time-out or cancellation is killed
    retry: Retry  # the policy of tasks that declare none
    timeout_ms: int  # how long a job may run if its task sets no time-out; 0 is no limit
    result_ttl_ms: int  # how long results are kept; 0 stores none
    dead_ttl_ms: int  # how long dead jobs are kept
    idempotency_ttl_ms: int  # how long an idempotency key is remembered
    dead_alert: int  # an alert fires at more dead jobs than this; 0 is never
    dead_alert_growth: int  # an alert fires if more than this died within five minutes
    alerts: tuple[Alert, ...]  # further rules of alerts
    alert_webhook: WebhookUrl  # gets the alerts that fire and clear
    max_payload: int  # the largest call or result, in bytes
    max_crashes: int  # a job is dead after this many crashes of its process
    max_snoozes: int  # how often a job may snooze
    enqueue_timeout_ms: int  # a longer call of the engine fails
    when_full: str  # what an enqueue does at a full queue: one of WHEN_FULL
    timezone: str  # for a Cron without tz
    log_level: str  # what `windlass worker` shows: one of LOG_LEVELS
    log_format: str  # the format of its log: one of LOG_FORMATS
    include: tuple[str, ...]  # modules with tasks, imported by workers and commands
    routes: Mapping[str, str]  # from patterns of task names to queues, for tasks without a queue
    codec: str  # encodes calls and results: one of CODECS
    secret: Secrets  # sign and encrypt: the first writes, all read
    encrypt: bool  # whether calls, results and the texts of failures are encrypted
    redact: tuple[str, ...]  # names of arguments with secret values, which are not shown
    release: str  # the version of the code, stored with each attempt; empty for none
    outbox: OutboxUrl  # the database of callers in which jobs wait for a relay
    sources: Mapping[str, Source]

    @property
    def alert_rules(self) -> tuple[Alert, ...]:
        """All rules of alerts."""
        return join_rules(self.dead_alert, self.dead_alert_growth, self.alerts)

    def __repr__(self) -> str:
        shown = msgspec.structs.asdict(self) | {"url": without_secrets(self.url)}
        return f"Settings({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class _Setting(msgspec.Struct, frozen=True):
    """How to read one setting. Without `from_text` the environment cannot set it."""

    field: str
    default: object
    read: Callable[[str, Any], Any]
    from_text: Callable[[str], object] | None = str


def _duration(minimum_ms: int) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        milliseconds = to_ms(value, name=name)
        if milliseconds < minimum_ms:
            raise ValueError(f"{name} must be at least {minimum_ms} ms, found {value!r}")
        return milliseconds

    return read


def _whole(minimum: int) -> Callable[[str, Any], int]:
    def read(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(
                f"{name} must be a whole number of at least {minimum}, found {value!r}"
            )
        return value

    return read


def _url(name: str, value: Any) -> str:
    if isinstance(value, str) and "://" in value:
        return absolute_url(value)
    found = f"{value!r}" if not isinstance(value, str) else "text without ://"
    raise ValueError(f"{name} must be text such as 'sqlite:///jobs.db', found {found}")


def _retry(name: str, value: Any) -> Retry:
    if isinstance(value, Retry):
        return value
    instead = instead_of_number(value)
    raise ValueError(f"{name} must be a windlass.Retry(...){instead}, found {value!r}")


def _zone(name: str, value: Any) -> str:
    if value == "UTC":
        return "UTC"  # the usual case, without loading the time zone database
    from windlass.core.schedules.time_zones import zone_named

    if not isinstance(value, str):
        raise ValueError(f"{name} must be the name of a time zone, found {value!r}")
    try:
        zone_named(value)
    except ValueError as error:
        said = str(error).removeprefix("tz ").removesuffix(".")
        raise ValueError(f"{name} {said}") from None
    return value


def _one_of(choices: Sequence[str]) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if isinstance(value, str) and value.lower() in choices:
            return value.lower()
        raise ValueError(f"{name} must be one of {', '.join(choices)}, found {value!r}")

    return read


def _modules(name: str, value: Any) -> tuple[str, ...]:
    modules = value if isinstance(value, list | tuple) else [value]
    for module in modules:
        if not isinstance(module, str) or not re.fullmatch(_MODULE, module):
            raise ValueError(
                f"{name} must be a list of modules such as 'shop.tasks' or 'billing.*', found "
                f"{module!r}"
            )
    if isinstance(value, str):
        raise ValueError(f"{name} must be a list, found text: write [{value!r}]")
    return tuple(modules)


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{name} must be a list of names such as 'password', found {value!r}")
    for part in value:
        if not isinstance(part, str) or not re.fullmatch(_ARGUMENT, part):
            raise ValueError(
                f"{name} must be names of arguments, of 1 to 64 letters, digits, '_', '-' and '.', "
                f"found {part!r}"
            )
    return tuple(value)


def _release(name: str, value: Any) -> str:
    if isinstance(value, str) and (not value or re.fullmatch(RELEASE, value)):
        return value
    raise ValueError(
        f"{name} must be the version of the code, such as 'v1.4.2', of at most 64 letters, digits, "
        f"'.', '_', '+' and '-', or empty for none; found {value!r}"
    )


def _routes(name: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{name} must be a dict of patterns to queues, such as {{'billing.*': 'billing'}}, "
            f"found {value!r}"
        )
    for pattern, queue in value.items():
        if not isinstance(pattern, str) or not re.fullmatch(r"[^\s\x00-\x1f]{1,200}", pattern):
            raise ValueError(
                f"{name} must have a pattern such as 'billing.*', of 1 to 200 characters without "
                f"spaces, found {pattern!r}"
            )
        if not isinstance(queue, str) or not QUEUE_NAME.fullmatch(queue):
            raise ValueError(f"{name} must have the name of a queue for {pattern}, found {queue!r}")
    return dict(value)


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern of a route matches the name of a task. `*` matches any text."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _list_from_text(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _routes_from_text(text: str) -> object:
    """Parse `billing.*=billing,reports.*=slow`. Returns other text unchanged: `_routes` refuses
    it."""
    pairs = [part.partition("=") for part in _list_from_text(text)]
    if not all(pattern and queue for pattern, _, queue in pairs):
        return text
    return {pattern.strip(): queue.strip() for pattern, _, queue in pairs}


def _secret(name: str, value: Any) -> Secrets:
    """Read the secrets. No error message contains a secret."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError(
            f"{name} must be text or a list of texts (the first one encrypts and signs), found "
            f"{type(value).__name__}"
        )
    secrets = [part.strip() for part in parts if part.strip()]
    short = next((len(secret) for secret in secrets if len(secret) < SHORTEST), None)
    if short is not None:
        raise ValueError(
            f"{name} must have at least {SHORTEST} characters, found {short}: make one with "
            f"{HOW_TO_MAKE_ONE}"
        )
    return Secrets(secrets)


def _switch(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{name} must be true or false, found {value!r}")


def _switch_from_text(text: str) -> object:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower(), text)


def _whole_from_text(text: str) -> object:
    """Parse a number. Returns other text unchanged: the setting refuses it."""
    return int(text) if text.strip().isdecimal() else text


SETTINGS: Final[Mapping[str, _Setting]] = {
    "url": _Setting("url", None, _url),
    "lease": _Setting("lease_ms", "30s", _duration(minimum_ms=100)),
    "shutdown_grace": _Setting("shutdown_grace_ms", "25s", _duration(minimum_ms=0)),
    "kill_after": _Setting("kill_after_ms", "5s", _duration(minimum_ms=0)),
    "retry": _Setting("retry", Retry(), _retry, from_text=None),
    "timeout": _Setting("timeout_ms", 0, _duration(minimum_ms=0)),
    "result_ttl": _Setting("result_ttl_ms", "1h", _duration(minimum_ms=0)),
    "dead_ttl": _Setting("dead_ttl_ms", "14d", _duration(minimum_ms=1)),
    "idempotency_ttl": _Setting("idempotency_ttl_ms", "1d", _duration(minimum_ms=1)),
    "dead_alert": _Setting("dead_alert", 100, _whole(0), _whole_from_text),
    "dead_alert_growth": _Setting("dead_alert_growth", 100, _whole(0), _whole_from_text),
    "alerts": _Setting("alerts", default_alerts(), read_alerts, from_text=None),
    "alert_webhook": _Setting("alert_webhook", "", read_webhook),
    "max_payload": _Setting("max_payload", 1024 * 1024, _whole(1), _whole_from_text),
    "max_crashes": _Setting("max_crashes", 3, _whole(1), _whole_from_text),
    "max_snoozes": _Setting("max_snoozes", 100, _whole(0), _whole_from_text),
    "enqueue_timeout": _Setting("enqueue_timeout_ms", "5s", _duration(minimum_ms=1)),
    "when_full": _Setting("when_full", "reject", _one_of(WHEN_FULL)),
    "timezone": _Setting("timezone", "UTC", _zone),
    "log_level": _Setting("log_level", "info", _one_of(LOG_LEVELS)),
    "log_format": _Setting("log_format", "text", _one_of(LOG_FORMATS)),
    "include": _Setting("include", (), _modules, _list_from_text),
    "routes": _Setting("routes", {}, _routes, _routes_from_text),
    "codec": _Setting("codec", "json", _one_of(CODECS)),
    "secret": _Setting("secret", (), _secret),
    "encrypt": _Setting("encrypt", False, _switch, _switch_from_text),
    "redact": _Setting("redact", DEFAULT_NAMES, _names, _list_from_text),
    "release": _Setting("release", "", _release),
    "outbox": _Setting("outbox", "", read_outbox),
}


def read_settings(arguments: Mapping[str, object], environment: Mapping[str, str]) -> Settings:
    """Read all settings: an argument overrides the environment, which overrides the default."""
    _refuse_unknown_arguments(arguments)
    variables = _own_variables(environment)
    fields: dict[str, Any] = {}
    sources: dict[str, Source] = {}
    for name, setting in SETTINGS.items():
        if name in arguments:
            sources[name] = Source.ARGUMENT
            fields[setting.field] = _read(setting, name, arguments[name])
        elif name in variables:
            sources[name] = Source.ENVIRONMENT
            fields[setting.field] = _read_text(setting, name, variables[name])
        else:
            sources[name] = Source.DEFAULT
            default = default_url() if name == "url" else setting.default
            fields[setting.field] = setting.read(name, default)
    _check_sealing(fields["codec"], fields["secret"], fields["encrypt"])
    return Settings(**fields, sources=sources)


def _check_sealing(codec: str, secret: Secrets, encrypt: bool) -> None:
    """Raise if `codec` or `encrypt` lacks its secret or its package."""
    wanting = 'codec="pickle", which is never stored unsigned,' if codec == "pickle" else ""
    wanting = "encrypt" if encrypt else wanting
    if wanting and not secret:
        raise SettingError(
            f"The setting {wanting} needs a secret, found none: give one with Windlass(secret=...) "
            f"or WINDLASS_SECRET, the same in all processes. Make it with {HOW_TO_MAKE_ONE}."
        )
    missing = why_not_encrypting() if encrypt else ""
    if missing:
        raise SettingError(f"The setting encrypt cannot be used: {missing}.")


def without_secrets(url: str) -> str:
    """Remove the password from a url, for display."""
    return re.sub(_LOGIN, r"\1***@", url)


def describe_unusual(settings: Settings) -> dict[str, str]:
    """All settings except the url that differ from their defaults, as text."""
    unusual = {}
    for name, setting in SETTINGS.items():
        value = getattr(settings, setting.field)
        if name != "url" and value != setting.read(name, setting.default):
            unusual[name] = describe_ms(value) if setting.field.endswith("_ms") else _text(value)
    return unusual


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={held}" for key, held in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def find_overruled(settings: Settings, environment: Mapping[str, str]) -> dict[str, str]:
    """Settings with an environment variable that code overrides by another value: a map from
    setting to variable."""
    overruled = {}
    for name, setting in SETTINGS.items():
        text = environment.get(variable := PREFIX + name.upper())
        if text is None or settings.sources[name] is not Source.ARGUMENT:
            continue
        if not _says_the_same(setting, name, text, getattr(settings, setting.field)):
            overruled[name] = variable
    return overruled


def _says_the_same(setting: _Setting, name: str, text: str, value: object) -> bool:
    try:
        return _read_text(setting, name, text) == value
    except SettingError:
        return False


def mask_urls(text: str) -> str:
    """Mask the passwords of urls in a text."""
    return re.sub(_SECRET, "://***@", text) if "://" in text and "@" in text else text


def _read(setting: _Setting, label: str, value: object) -> object:
    try:
        return setting.read(label, value)
    except (TypeError, ValueError) as error:
        raise SettingError(f"The setting {error}.") from None


def _read_text(setting: _Setting, name: str, text: str) -> object:
    variable = PREFIX + name.upper()
    if setting.from_text is None:
        raise SettingError(
            f"The setting {name} cannot be given by the environment, found {variable}: write "
            f"Windlass({name}=...) in the code instead."
        )
    return _read(setting, variable, setting.from_text(text))


def _refuse_unknown_arguments(arguments: Mapping[str, object]) -> None:
    for name in arguments:
        if name in OF_SETTINGS:
            raise SettingError(f"There is no setting {name}: write {OF_SETTINGS[name]}.")
        if name not in SETTINGS:
            raise SettingError(
                f"There is no setting {name}.{nearest(name, SETTINGS)} "
                f"Windlass(...) takes {', '.join(SETTINGS)}."
            )


def _own_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in the environment by name. Refuses unknown variables: otherwise a typo would
    pass unnoticed."""
    known = {name.upper(): name for name in SETTINGS}
    found = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        if re.fullmatch(_OF_KUBERNETES, variable):
            continue
        name = variable.removeprefix(PREFIX)
        if name not in known:
            raise SettingError(
                f"The environment variable {variable} is not a setting of windlass."
                f"{nearest(name, known, PREFIX)} Unset it, or write after {PREFIX} one of "
                f"{', '.join(name for name in known if SETTINGS[known[name]].from_text)}."
            )
        found[known[name]] = text
    return found
