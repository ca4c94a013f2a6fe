"""Read annotations of tasks.

1. `resolve` turns an annotation, also one given as text, into a type.
2. `traits_of` finds the properties of that type that decide how values are compared, and refuses
   types that cannot be rebuilt from JSON.
3. `exact_types` finds the types whose values always survive the round trip.
4. `describe` formats an annotation like source code.

msgspec rebuilds values. Paths and pydantic models are supported in addition. Models are recognised
by their methods, so that this module never imports pydantic.
"""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import msgspec
import msgspec.inspect as described

from windlass.core.serialization.round_trip import Traits
from windlass.errors import AnnotationError

_OPEN: Final = (described.AnyType, described.RawType)
_EXACT: Final = (described.DateTimeType, described.DecimalType, described.TimeType)
_SETS: Final = (described.SetType, described.FrozenSetType)
#: Annotations for which the exact type of a value proves that the value comes back. An annotation
#: with a constraint (`Meta(max_length=10)`) is not equal to any of them.
_EXACT_TYPES: Final[tuple[tuple[described.Type, frozenset[type]], ...]] = (
    (described.NoneType(), frozenset({type(None)})),
    (described.BoolType(), frozenset({bool})),
    (described.IntType(), frozenset({int})),
    (described.FloatType(), frozenset({float})),
    (described.StrType(), frozenset({str})),
    (described.BytesType(), frozenset({bytes})),
    (described.UUIDType(), frozenset({UUID})),
    (described.AnyType(), frozenset({type(None), bool, int, float, str})),
)


def resolve(annotation: object, function: Callable[..., object]) -> Any:
    """Resolve an annotation of this function to a type. Without an annotation, return `Any`."""
    if annotation is inspect.Parameter.empty:
        return Any
    holder = types.SimpleNamespace(__annotations__={"annotation": annotation})
    try:
        hints = typing.get_type_hints(
            holder, _namespace(function), _type_parameters(function), include_extras=True
        )
    except Exception as error:
        raise AnnotationError(
            f"the annotation {describe(annotation)} cannot be resolved ({error}). Use a "
            "name that exists in the module at run time, not only under TYPE_CHECKING or inside a "
            "function."
        ) from error
    return hints["annotation"]


def traits_of(annotation: Any) -> Traits:
    """The traits of an annotation. Raises `AnnotationError` if JSON cannot represent its types."""
    nodes = list(_nodes(described.type_info(annotation)))
    custom = {node.cls for node in nodes if isinstance(node, described.CustomType)}
    for kind in custom - {object}:
        if not (is_path(kind) or is_model(kind)):
            raise AnnotationError(
                f"the annotation {describe(annotation)} names {describe(kind)}, which cannot be "
                "rebuilt from JSON. Use JSON types, or a dataclass, msgspec, attrs or pydantic "
                "class; or pass an id and load the object in the task."
            )
    is_open = object in custom or any(isinstance(node, _OPEN) for node in nodes)
    return Traits(
        is_open=is_open,
        is_exact=is_open or any(isinstance(node, _EXACT) for node in nodes),
        has_forms=any(isinstance(node, _SETS) or _has_plain_defaults(node) for node in nodes),
        has_datetimes=any(isinstance(node, described.DateTimeType) for node in nodes),
    )


def exact_types(annotation: Any) -> frozenset[type]:
    """The types whose values come back equal and with the same type, for every value. The
    exceptions show in the encoded bytes: see `CallCodec.encode`."""
    root = described.type_info(annotation)
    members = root.types if isinstance(root, described.UnionType) else (root,)
    proven = [types for member in members for node, types in _EXACT_TYPES if node == member]
    return frozenset().union(*proven) if len(proven) == len(members) else frozenset()


def is_path(kind: type) -> bool:
    """Whether instances are paths. Does not import pathlib, which is slow: while pathlib is not
    loaded, or another thread is loading it, no path exists."""
    path = getattr(sys.modules.get("pathlib"), "PurePath", None)
    return path is not None and issubclass(kind, path)


def is_model(kind: type) -> bool:
    """Whether the type is a pydantic model, to write and read by its own methods."""
    return hasattr(kind, "model_dump_json") and hasattr(kind, "model_validate_json")


def _has_plain_defaults(node: described.Type) -> bool:
    """Whether the type is a dataclass with field defaults as class attributes. Instances of attrs
    classes, and of classes with slots, have all fields."""
    if not isinstance(node, described.DataclassType) or not node.cls.__dictoffset__:
        return False
    has_defaults = any(field.default is not msgspec.NODEFAULT for field in node.fields)
    return has_defaults and hasattr(node.cls, "__dataclass_fields__")


def describe(annotation: object) -> str:
    """The annotation as source code, without the names of modules."""
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation.__name__
    return str(annotation).replace("typing.", "")


def _nodes(root: described.Type) -> Iterator[described.Type]:
    """Every type inside a type, each once: a class may contain itself."""
    pending: list[object] = [root]
    seen: set[int] = set()
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(node)
        elif isinstance(node, described.Field):
            pending.append(node.type)
        elif isinstance(node, described.Type) and id(node) not in seen:
            seen.add(id(node))
            yield node
            pending.extend(getattr(node, name) for name in node.__struct_fields__)


def _namespace(function: Callable[..., object]) -> dict[str, Any]:
    namespace: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return namespace


def _type_parameters(function: Callable[..., object]) -> Mapping[str, Any]:
    parameters = getattr(inspect.unwrap(function), "__type_params__", ())
    return {parameter.__name__: parameter for parameter in parameters}
