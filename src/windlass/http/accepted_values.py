"""What a place in a request accepts: the names of fields, and the values of an enum.

msgspec says that a name or a value is wrong. The caller also needs to know the right ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import inspect

#: The parts of a place such as `.outcomes[0].outcome`.
_STEP: Final = re.compile(r"\.([^.\[]+)|(\[[^\]]*\])")


def accepted_fields(kind: Any, place: str) -> list[str]:
    """Return the fields of the object at a place; none if the object may be of several kinds."""
    found = [one for one in _types_at(kind, place) if isinstance(one, inspect.StructType)]
    return [field.encode_name for field in found[0].fields] if len(found) == 1 else []


def accepted_values(kind: Any, place: str) -> list[str]:
    """Return the values of the enum or literal at a place, or of the tag that names the kind of an
    object."""
    values = [str(value) for one in _types_at(kind, place) for value in _values_of(one)]
    parent, _, name = place.rpartition(".")
    tags = [
        str(one.tag)
        for one in _types_at(kind, parent)
        if isinstance(one, inspect.StructType) and one.tag_field == name
    ]
    return values + tags


def _values_of(one: inspect.Type) -> Iterator[object]:
    if isinstance(one, inspect.EnumType):
        yield from (member.value for member in one.cls)
    elif isinstance(one, inspect.LiteralType):
        yield from one.values


def _types_at(kind: Any, place: str) -> list[inspect.Type]:
    found = list(_alternatives(inspect.type_info(kind)))
    for name, item in _STEP.findall(place):
        found = list(_items(found) if item else _fields(found, name))
    return found


def _alternatives(one: inspect.Type) -> Iterator[inspect.Type]:
    if isinstance(one, inspect.Metadata):
        yield from _alternatives(one.type)
    elif isinstance(one, inspect.UnionType):
        for member in one.types:
            yield from _alternatives(member)
    else:
        yield one


def _items(types: Iterable[inspect.Type]) -> Iterator[inspect.Type]:
    for one in types:
        if isinstance(one, inspect.CollectionType):
            yield from _alternatives(one.item_type)
        elif isinstance(one, inspect.DictType):
            yield from _alternatives(one.value_type)


def _fields(types: Iterable[inspect.Type], name: str) -> Iterator[inspect.Type]:
    for one in types:
        if isinstance(one, inspect.StructType):
            for field in one.fields:
                if field.encode_name == name:
                    yield from _alternatives(field.type)
