"""Access tokens, with which clients of the HTTP API authenticate.

1. `Role` and `Right`: what the bearer of a token may do. `RIGHTS` is the only table of it.
2. `AccessToken` describes a token: name, role, queues, times. It never has the secret.
3. `AccessTokens`, as `app.access_tokens`: create, list, revoke and check tokens. They are documents
   of the engine, so all instances of the API know the same ones.
4. `TokenCache` remembers checks for a moment, so that not every request asks the engine.

The text of a token is `wl_<id>_<secret>`. The id finds the document without a search. Only the
SHA-256 of the secret is stored. A slow password hash protects secrets that people choose, and that
can be guessed. These have 256 random bits: a fast hash is as safe, and does not slow down requests.

"Token" alone is the fencing token of a claim, everywhere in this code.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from windlass.core.durations import Duration, instant, instant_ms, to_ms
from windlass.core.ids import random_digits
from windlass.engine.clock import read_clock
from windlass.engine.contract import Document, DocumentChange, Engine
from windlass.errors import AccessTokenNotFound, DuplicateAccessToken
from windlass.settings import matches
from windlass.twins import Steps, act, arun, run, twins

if TYPE_CHECKING:
    from windlass.app import Windlass

KIND: Final = "access-token"
#: A token names at most this many queues and patterns.
MAX_SCOPES: Final = 100
#: A check is remembered for this long, in seconds: a revoked token works at most this much longer.
CACHE_S: Final = 1.0
#: A cache remembers at most this many valid tokens, and as many invalid ones.
CACHE_SIZE: Final = 1_000

_FORMAT: Final = 1
_ID_DIGITS: Final = 12
_SECRET_DIGITS: Final = 52  # 5 bits each: 260 bits
_SHOWN: Final = 4
_PAGE: Final = 500
_ID: Final = rf"[0-9a-z]{{{_ID_DIGITS}}}"
_TEXT: Final = re.compile(rf"wl_({_ID})_([0-9a-z]{{{_SECRET_DIGITS}}})")
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.@:+-]{0,63}"
_SCOPE: Final = r"[A-Za-z0-9*][A-Za-z0-9_.*-]{0,63}"
#: Compared with when there is no such token, so that the answer takes the same time.
_NO_DIGEST: Final = "0" * 64

log: Final = logging.getLogger("windlass.access_tokens")


# ------------------------------------------------------------------------------------------- roles


class Role(StrEnum):
    """What the bearer of an access token is for."""

    PRODUCER = "producer"
    WORKER = "worker"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


class Right(StrEnum):
    """Something that roles may or may not do."""

    ENQUEUE = "enqueue"
    READ_JOBS = "read_jobs"  # one job by id, and its result
    WORK = "work"  # sessions, claims, finish
    LIST_JOBS = "list_jobs"  # also dead letters
    CHANGE_JOBS = "change_jobs"  # cancel, retry, edit, move, discard; bulk operations
    CHANGE_QUEUES = "change_queues"  # pause, resume, settings, purge; also tasks
    CHANGE_SCHEDULES = "change_schedules"
    READ_STATS = "read_stats"  # also queues, schedules and workers
    COMMAND_WORKERS = "command_workers"  # quiet and stop
    READ_AUDIT = "read_audit"
    MANAGE_TOKENS = "manage_tokens"


_PRODUCERS: Final = frozenset({Role.PRODUCER, Role.OPERATOR, Role.ADMIN})
#: An operator is no worker: a claim hands out the arguments of jobs, without redaction.
_WORKERS: Final = frozenset({Role.WORKER, Role.ADMIN})
_OPERATORS: Final = frozenset({Role.OPERATOR, Role.ADMIN})
#: A viewer sees what an operator sees, and has none of the rights to change anything.
_VIEWERS: Final = _OPERATORS | {Role.VIEWER}

#: The roles that have each right.
RIGHTS: Final[Mapping[Right, frozenset[Role]]] = {
    Right.ENQUEUE: _PRODUCERS,
    Right.READ_JOBS: _PRODUCERS | _VIEWERS,
    Right.WORK: _WORKERS,
    Right.LIST_JOBS: _VIEWERS,
    Right.CHANGE_JOBS: _OPERATORS,
    Right.CHANGE_QUEUES: _OPERATORS,
    Right.CHANGE_SCHEDULES: _OPERATORS,
    Right.READ_STATS: _VIEWERS,
    Right.COMMAND_WORKERS: _OPERATORS,
    Right.READ_AUDIT: _VIEWERS,
    Right.MANAGE_TOKENS: frozenset({Role.ADMIN}),
}


# ------------------------------------------------------------------------------------------ tokens


class AccessToken(msgspec.Struct, frozen=True, kw_only=True):
    """An access token, without its secret."""

    id: str
    name: str
    role: Role
    queues: tuple[str, ...]  # names or patterns such as `mail*`; every queue when empty
    created_at: datetime
    expires_at: datetime | None
    ends_with: str  # the last characters of its text, to recognise it

    def may(self, right: Right) -> bool:
        """Whether the role of the token has a right."""
        return self.role in RIGHTS[right]

    def may_use(self, queue: str) -> bool:
        """Whether the token is for jobs of this queue."""
        return not self.queues or any(matches(pattern, queue) for pattern in self.queues)


class _StoredToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a document."""

    name: str
    role: Role
    digest: str  # the SHA-256 of the secret, in hexadecimal digits
    ends_with: str
    created_ms: int
    expires_ms: int | None = None
    queues: tuple[str, ...] = ()
    format: int = 0

    def describe(self, id: str) -> AccessToken:
        return AccessToken(
            id=id,
            name=self.name,
            role=self.role,
            queues=self.queues,
            created_at=instant(self.created_ms),
            expires_at=instant(self.expires_ms),
            ends_with=self.ends_with,
        )


class AccessTokens:
    """The access tokens of an engine."""

    def __init__(self, app: Windlass) -> None:
        self._app = app

    @twins
    def create(
        self,
        *,
        name: str,
        role: Role | str,
        queues: Sequence[str] = (),
        expires: datetime | Duration | None = None,
    ) -> Steps[tuple[AccessToken, str]]:
        """Create a token. Returns its description and its text, which is not stored: keep it.

        `queues` are names or patterns such as "mail*"; the token is for all queues if there are
        none. `expires` is a datetime or an age such as "30d"; without it the token does not expire.
        Raises `DuplicateAccessToken` if another token has the name."""
        name, role, scopes = _read_name(name), _read_role(role), read_scopes(queues)
        return (yield from act(_create, name, role, scopes, expires))

    acreate = create.awaited

    @twins
    def list(self) -> Steps[tuple[AccessToken, ...]]:
        """All tokens, also expired ones, the oldest first."""
        return (yield from act(_list))

    alist = list.awaited

    @twins
    def exist(self) -> Steps[bool]:
        """Whether there is any token, even an expired one."""
        return (yield from act(_exist))

    aexist = exist.awaited

    @twins
    def revoke(self, name: str) -> Steps[str]:
        """Remove a token, by its name or its id, and return its id. It stops working within two
        seconds everywhere.

        Raises `AccessTokenNotFound`, or `DuplicateAccessToken` if several tokens have the name."""
        return (yield from act(_revoke, name))

    arevoke = revoke.awaited

    @twins
    def check(self, text: str) -> Steps[AccessToken | None]:
        """The token with this text; None if it is unknown, revoked, expired or malformed."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        return (yield from act(_check, found[1], found[2]))

    acheck = check.awaited


def read_scopes(queues: Sequence[str]) -> tuple[str, ...]:
    """Check names and patterns of queues."""
    if isinstance(queues, str):
        raise TypeError(f"queues must be a list of names, found {queues!r}: write [{queues!r}]")
    scopes = tuple(dict.fromkeys(queues))
    for scope in scopes:
        if not re.fullmatch(_SCOPE, scope):
            raise ValueError(
                f"queues must be names or patterns such as 'mail' or 'mail*', found {scope!r}"
            )
    if len(scopes) > MAX_SCOPES:
        raise ValueError(
            f"queues must be at most {MAX_SCOPES} names and patterns, found {len(scopes)}"
        )
    return scopes


def _read_name(name: str) -> str:
    if re.fullmatch(_NAME, name):
        return name
    raise ValueError(
        "name must be 1 to 64 characters out of letters, digits, '_', '.', '@', ':', '+' and '-', "
        f"the first one a letter or a digit, found {name!r}"
    )


def _read_role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise ValueError(f"role must be one of {', '.join(Role)}, found {role!r}") from None


# ------------------------------------------------------------------------------------- the engine


def _create(
    engine: Engine,
    name: str,
    role: Role,
    queues: tuple[str, ...],
    expires: datetime | Duration | None,
) -> tuple[AccessToken, str]:
    now_ms = read_clock(engine)
    expires_ms = _read_expiry(expires, now_ms)
    taken = tuple(token.id for token in _named(engine, name))
    if taken:
        raise DuplicateAccessToken(name, taken)
    while True:
        id, secret = random_digits(_ID_DIGITS), random_digits(_SECRET_DIGITS)
        stored = _StoredToken(
            name=name,
            role=role,
            digest=_digest(secret),
            ends_with=secret[-_SHOWN:],
            created_ms=now_ms,
            expires_ms=expires_ms,
            queues=queues,
            format=_FORMAT,
        )
        if _change(engine, id, "", msgspec.json.encode(stored)):
            return stored.describe(id), f"wl_{id}_{secret}"


def _read_expiry(expires: datetime | Duration | None, now_ms: int) -> int | None:
    if expires is None:
        return None
    if isinstance(expires, datetime):
        expires_ms = instant_ms(expires, name="expires")
    else:
        expires_ms = now_ms + to_ms(expires, name="expires")
    if expires_ms <= now_ms:
        raise ValueError(f"expires must be in the future, found {expires!r}")
    return expires_ms


def _list(engine: Engine) -> tuple[AccessToken, ...]:
    tokens = (_read(document) for document in _documents(engine))
    known = (token for token in tokens if token is not None)
    return tuple(sorted(known, key=lambda token: (token.created_at, token.name)))


def _exist(engine: Engine) -> bool:
    return bool(engine.list_documents(KIND, limit=1))


def _revoke(engine: Engine, name: str) -> str:
    """Remove a token. One that cannot be read is removed by its id."""
    while True:
        (document,) = engine.get_documents(KIND, [name]) if re.fullmatch(_ID, name) else [None]
        if document is None:
            document = _only(engine, name)
        if _change(engine, document.key, document.revision, None):
            return document.key


def _only(engine: Engine, name: str) -> Document:
    named = {token.id for token in _named(engine, name)}
    if len(named) > 1:
        raise DuplicateAccessToken(name, tuple(sorted(named)))
    (document,) = engine.get_documents(KIND, list(named)) if named else [None]
    if document is None:
        raise AccessTokenNotFound(name, engine.location)
    return document


def _named(engine: Engine, name: str) -> list[AccessToken]:
    return [token for token in _list(engine) if token.name == name]


def _check(engine: Engine, id: str, secret: str) -> AccessToken | None:
    return _check_all(engine, [(id, secret)])[0]


def _check_all(engine: Engine, pairs: Sequence[tuple[str, str]]) -> list[AccessToken | None]:
    """Check ids and secrets, with one read of all documents."""
    documents = engine.get_documents(KIND, [id for id, _ in pairs])
    return [
        _accept(engine, document, id, secret)
        for document, (id, secret) in zip(documents, pairs, strict=True)
    ]


def _accept(engine: Engine, document: Document | None, id: str, secret: str) -> AccessToken | None:
    stored = None if document is None else _decode(document)
    digest = _NO_DIGEST if stored is None else stored.digest
    if not hmac.compare_digest(digest, _digest(secret)) or stored is None:
        return None
    if stored.expires_ms is not None and read_clock(engine) >= stored.expires_ms:
        return None
    return stored.describe(id)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _documents(engine: Engine) -> Iterator[Document]:
    after = ""
    while page := engine.list_documents(KIND, after, _PAGE):
        yield from page
        after = page[-1].key


def _change(engine: Engine, id: str, expected: str, body: bytes | None) -> bool:
    revision = random_digits(26)
    change = DocumentChange(kind=KIND, key=id, expected=expected, revision=revision, body=body)
    return engine.change_documents([change])[0]


def _read(document: Document) -> AccessToken | None:
    stored = _decode(document)
    return None if stored is None else stored.describe(document.key)


def _decode(document: Document) -> _StoredToken | None:
    """The token of a document. A token that a newer version wrote may have limits that are not
    known here, so it is not accepted."""
    try:
        stored = msgspec.json.decode(document.body, type=_StoredToken)
    except msgspec.DecodeError as error:
        log.error("ignoring unreadable access token %s: %s", document.key, error)
        return None
    if stored.format != _FORMAT:
        log.error("ignoring access token %s: a newer version wrote it", document.key)
        return None
    return stored


# ------------------------------------------------------------------------------------------- cache


class _Remembered(msgspec.Struct, frozen=True):
    token: AccessToken | None
    until_s: float


class TokenCache:
    """Remember the checks of access tokens for a moment, valid and invalid ones apart: unknown
    tokens never displace valid ones. Safe to use from many threads. It keeps no secrets."""

    def __init__(
        self,
        ttl_s: float = CACHE_S,
        size: int = CACHE_SIZE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ttl_s = ttl_s
        self._size = size
        self._clock = clock
        self._lock = Lock()
        self._valid: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._invalid: OrderedDict[bytes, _Remembered] = OrderedDict()

    def check(self, app: Windlass, text: str) -> AccessToken | None:
        """`app.access_tokens.check`, at most `ttl_s` old."""
        return run(app, self._steps([text]))[0]

    async def acheck(self, app: Windlass, text: str) -> AccessToken | None:
        """`check`, for coroutines."""
        return (await arun(app, self._steps([text])))[0]

    async def acheck_all(self, app: Windlass, texts: Sequence[str]) -> list[AccessToken | None]:
        """`acheck` for several tokens, with one read of those that are not remembered."""
        return await arun(app, self._steps(texts))

    def _steps(self, texts: Sequence[str]) -> Steps[list[AccessToken | None]]:
        asked_s = self._clock()
        known: dict[str, AccessToken | None] = {}
        unknown: dict[str, tuple[str, str]] = {}  # text -> id and secret
        for text in texts:
            found = _TEXT.fullmatch(text)
            remembered = self._find(_key_of(text), asked_s) if found else None
            if found is not None and remembered is None:
                unknown[text] = (found[1], found[2])
            else:
                known[text] = remembered.token if remembered else None
        if unknown:
            checked = yield from act(_check_all, list(unknown.values()))
            for text, token in zip(unknown, checked, strict=True):
                # From before the call: a token may be revoked while its answer is under way.
                self._remember(_key_of(text), _Remembered(token, asked_s + self._ttl_s))
                known[text] = token
        return [known[text] for text in texts]

    def _find(self, key: bytes, now_s: float) -> _Remembered | None:
        with self._lock:
            known = self._valid.get(key) or self._invalid.get(key)
        return known if known is not None and now_s < known.until_s else None

    def _remember(self, key: bytes, found: _Remembered) -> None:
        with self._lock:
            self._valid.pop(key, None)
            self._invalid.pop(key, None)
            kept = self._invalid if found.token is None else self._valid
            kept[key] = found
            if len(kept) > self._size:
                kept.popitem(last=False)


def _key_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
