"""Check that a value survives a round trip through JSON.

1. `children` and `find` walk a value: lists, dicts, sets and the fields of classes.
2. `in_one_form` gives equal values the same form: sets in an order that is the same in every
   process, dataclasses with all their fields.
3. `difference` compares the passed value with the value that the worker would get.

The rule: the worker passes the same values to the function as a plain call. Where the annotation
names a type, the worker rebuilds that type, so only these changes are allowed:

- an int for a float that holds it exactly (never a bool for a number);
- a subclass of a built-in type as that type, when both are equal: a StrEnum as str, an OrderedDict
  as dict, a datetime of another library as datetime; and text or a number for the member of a
  StrEnum or IntEnum that it is equal to;
- a tuple for a list and a list for a tuple, a set for a frozenset and the reverse;
- a time zone as its UTC offset at that moment.

Everything else is a difference: text for a UUID or a UUID for text, a float for a Decimal, a
derived class for its base, extra keys of a TypedDict, a number that becomes null, a naive datetime.
If an annotation leaves a type open somewhere (`Any`, a bare `list`), only the first and the last
change in the list are allowed: the intended types are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import msgspec

_PLAIN: Final = frozenset({bool, bytes, date, float, int, str, timedelta, type(None), UUID})
_BUILT_IN: Final = frozenset({*_PLAIN, bytearray, datetime, Decimal, dict, time})
_ARRAYS: Final = (list, tuple)
_SETS: Final = (set, frozenset)
_COLLECTIONS: Final = (*_ARRAYS, *_SETS)
#: Scalars for which `==` is not enough.
_DELICATE: Final = (datetime, Decimal, time)
_MISSING: Final = object()
_NO_OFFSET: Final = (
    "a UTC offset with seconds cannot be stored, and in msgpack none where the annotation names no "
    "datetime: use .astimezone(UTC)"
)


class Traits(msgspec.Struct, frozen=True):
    """The properties of an annotation, anywhere inside, that decide how values are compared."""

    #: An open type: the rebuilt type depends on JSON.
    is_open: bool
    #: A type for which `==` is not enough: every part is compared separately.
    is_exact: bool
    #: A set, because its order differs between processes. Or a dataclass with plain defaults:
    #: msgspec does not set them in instances that it builds, and does not write unset fields.
    has_forms: bool
    #: A datetime: not every wire keeps its offset.
    has_datetimes: bool


class Difference(msgspec.Struct, frozen=True):
    """The first place where a round trip would change a value."""

    path: str
    reason: str


def field_names(kind: type) -> tuple[str, ...]:
    """The field names of a msgspec, attrs or data class. Empty for other types."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if hasattr(kind, "__dataclass_fields__"):
        data_class: Any = kind
        return _fields_of_dataclass(data_class)
    return tuple(attribute.name for attribute in getattr(kind, "__attrs_attrs__", ()))


@lru_cache(maxsize=1024)
def _fields_of_dataclass(kind: Any) -> tuple[str, ...]:
    from dataclasses import fields  # already loaded by the module of that class

    return tuple(field.name for field in fields(kind))


def children(value: object) -> Iterator[tuple[str, object]]:
    """The parts of a value, each with its path step, such as `[0]` or `.name`."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"[{key!r}]", item
    elif isinstance(value, _COLLECTIONS):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    else:
        for name in field_names(type(value)):
            yield f".{name}", getattr(value, name, None)


def find(
    value: object, wanted: Callable[[object], bool], path: str = "$"
) -> tuple[str, object] | None:
    """Find the first matching leaf. Returns its path and the leaf."""
    is_leaf = True
    for step, child in children(value):
        is_leaf = False
        found = find(child, wanted, path + step)
        if found is not None:
            return found
    return (path, value) if is_leaf and wanted(value) else None


def in_one_form(value: object, sort_key: Callable[[object], bytes]) -> object:
    """Convert every set in a value to a list, in an order that depends only on its items, and every
    dataclass to a dict of all its fields."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, dict):
        return {key: in_one_form(item, sort_key) for key, item in value.items()}
    if isinstance(value, _ARRAYS):
        return [in_one_form(item, sort_key) for item in value]
    if isinstance(value, _SETS):
        return _sorted((in_one_form(item, sort_key) for item in value), sort_key)
    names = field_names(type(value))
    if not names:
        return value
    if not hasattr(value, "__dataclass_fields__"):
        return _with_fields(value, names, lambda part: in_one_form(part, sort_key))
    whole = {}
    for name in names:
        part = getattr(value, name, _MISSING)
        if type(part) in _PLAIN:  # the usual case: avoid a slow recursive call
            whole[name] = part
        elif part is not _MISSING:
            whole[name] = in_one_form(part, sort_key)
    return whole


def with_leaves(value: object, change: Callable[[object], object]) -> object:
    """Apply `change` to every leaf of a value, and to the keys of dicts."""
    if isinstance(value, dict):
        return {change(key): with_leaves(item, change) for key, item in value.items()}
    if isinstance(value, _COLLECTIONS):
        return [with_leaves(item, change) for item in value]
    names = field_names(type(value))
    if not names:
        return change(value)
    return _with_fields(value, names, lambda part: with_leaves(part, change))


def difference(value: Any, rebuilt: Any, traits: Traits, path: str = "$") -> Difference | None:
    """The first relevant difference between a passed value and its rebuilt form, or None."""
    if type(value) in _PLAIN and type(value) is type(rebuilt):
        same = value == rebuilt or (value != value and rebuilt != rebuilt)  # NaN
        return None if same else Difference(path, _changed(value))
    if not traits.is_exact and equal(value, rebuilt):
        return None
    if type(value) is not type(rebuilt) and not _admissible(value, rebuilt, traits):
        return Difference(path, _mismatch(value, rebuilt, traits))
    if isinstance(value, _DELICATE):
        return _in_scalar(value, rebuilt, path)
    if isinstance(value, _COLLECTIONS):
        return _in_items(value, rebuilt, traits, path)
    if isinstance(value, dict):
        return _in_dict(value, rebuilt, traits, path)
    names = field_names(type(value))
    if names:
        parts = ((f".{n}", getattr(value, n, None), getattr(rebuilt, n, None)) for n in names)
        return _first(parts, traits, path)
    return _in_scalar(value, rebuilt, path)


def equal(value: object, rebuilt: object) -> bool:
    """Whether two values are equal. False if the comparison raises."""
    try:
        return bool(rebuilt == value)
    except Exception:  # noqa: BLE001 - a class that cannot compare is compared part by part
        return False


def _sorted(items: Iterable[object], sort_key: Callable[[object], bytes]) -> list[Any]:
    unsorted: list[Any] = list(items)
    kinds = set(map(type, unsorted))
    # Only these types have a total order. Others, such as sets, are ordered by their stored bytes.
    if kinds <= {int, float} or kinds == {str}:
        return sorted(unsorted)
    return sorted(unsorted, key=sort_key)


def _with_fields(
    value: object, names: tuple[str, ...], change: Callable[[object], object]
) -> object:
    clone = _copy(value)
    for name in names:
        part = change(getattr(value, name))
        # The clone may be frozen. Changing it is safe: only the encoder uses it.
        if isinstance(clone, msgspec.Struct):
            msgspec.structs.force_setattr(clone, name, part)
        else:
            object.__setattr__(clone, name, part)
    return clone


def _copy(value: object) -> object:
    own: Callable[[], object] | None = getattr(value, "__copy__", None)
    if own is not None:  # every msgspec class has it
        return own()
    from copy import copy  # already loaded by dataclasses or attrs

    return copy(value)


def _admissible(value: Any, rebuilt: Any, traits: Traits) -> bool:
    if isinstance(rebuilt, float) and isinstance(value, int):
        return value == rebuilt
    if traits.is_open:
        return False
    for group in (_ARRAYS, _SETS):
        if isinstance(value, group) and isinstance(rebuilt, group):
            return True
    if isinstance(rebuilt, Enum):
        return isinstance(rebuilt, type(value))
    return type(rebuilt) in _BUILT_IN and isinstance(value, type(rebuilt))


def _in_items(value: Any, rebuilt: Any, traits: Traits, path: str) -> Difference | None:
    if len(value) != len(rebuilt):
        return Difference(path, f"{len(value)} items would come back as {len(rebuilt)}")
    if _all_plain(value) and _all_plain(rebuilt) and value == rebuilt:
        return None
    if isinstance(value, _SETS):
        value, rebuilt = _aligned(value, rebuilt)
    pairs = zip(value, rebuilt, strict=True)
    return _first(((f"[{i}]", old, new) for i, (old, new) in enumerate(pairs)), traits, path)


def _in_dict(value: Any, rebuilt: Any, traits: Traits, path: str) -> Difference | None:
    if len(value) != len(rebuilt):
        lost = [f"the key {key!r}" for key in value if key not in rebuilt]
        return Difference(path, f"{_listed(lost)} would be lost")
    pairs = list(zip(value.items(), rebuilt.items(), strict=True))
    keys = ((f"[{old!r}]", old, new) for (old, _), (new, _) in pairs)
    items = ((f"[{key!r}]", old, new) for (key, old), (_, new) in pairs)
    return _first(keys, traits, path) or _first(items, traits, path)


def _in_scalar(value: Any, rebuilt: Any, path: str) -> Difference | None:
    if isinstance(value, datetime):
        return _in_datetime(value, rebuilt, path)
    if isinstance(value, time) and (value.tzinfo is None) != (rebuilt.tzinfo is None):
        return Difference(path, "a time cannot keep this time zone: use a fixed offset")
    if isinstance(value, Decimal):  # NaN is not equal to itself, and 1.0 is equal to 1.00
        return None if str(value) == str(rebuilt) else Difference(path, _changed(value))
    return None if equal(value, rebuilt) else Difference(path, _changed(value))


def _in_datetime(value: datetime, rebuilt: datetime, path: str) -> Difference | None:
    offset = value.utcoffset()
    if offset is None:
        return Difference(
            path, "a naive datetime: give it a time zone, for example datetime.now(UTC)"
        )
    if offset != rebuilt.utcoffset():
        return Difference(path, _NO_OFFSET)
    # Between zones `==` is never true in the hours when clocks are put back or forward.
    same = value == rebuilt or value.replace(tzinfo=None) == rebuilt.replace(tzinfo=None)
    return None if same else Difference(path, _changed(value))


def _first(
    parts: Iterable[tuple[str, object, object]], traits: Traits, path: str
) -> Difference | None:
    for step, old, new in parts:
        found = difference(old, new, traits, path + step)
        if found is not None:
            return found
    return None


def _all_plain(items: Iterable[object]) -> bool:
    return _PLAIN.issuperset(map(type, items))


def _aligned(value: Iterable[object], rebuilt: Iterable[object]) -> tuple[list[Any], list[Any]]:
    """Convert two sets to lists with equal items at the same index, and the rest sorted."""
    unmatched = {item: item for item in rebuilt}
    both = [(item, unmatched.pop(item)) for item in value if item in unmatched]
    matched = {old for old, _ in both}
    rest = sorted((item for item in value if item not in matched), key=str)
    return (
        [*(old for old, _ in both), *rest],
        [*(new for _, new in both), *sorted(unmatched, key=str)],
    )


def _mismatch(value: object, rebuilt: object, traits: Traits) -> str:
    found, back = type(value).__name__, type(rebuilt).__name__
    if traits.is_open:
        return f"found {found}, which would come back as {back}"
    if isinstance(rebuilt, float) and isinstance(value, int):
        return f"expected float, found an {found} that no float holds exactly"
    return f"expected {back}, found {found}"


def _changed(value: object) -> str:
    return f"this {type(value).__name__} would come back changed"


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
