"""JSON Schemas of tasks, for documents about them.

`task_schema` describes the parameters and the result of a task. msgspec derives schemas from
annotations, and pydantic those of its models. A type without a schema becomes `{}`, which fits any
value: a document about many tasks must not fail because of one annotation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from windlass.core.serialization.annotations import is_model, is_path
from windlass.core.serialization.schema_codec import SchemaCodec, subschemas
from windlass.core.serialization.signature import Slot

if TYPE_CHECKING:
    from windlass.core.serialization.signature import Signature
    from windlass.task import Task

REFERENCES: Final = "#/$defs/{name}"
_OWN_DEFS: Final = "#/$defs/"

Schema = dict[str, Any]

#: Fits any value, like {}, which msgspec does not take for an answer.
_ANY_VALUE: Final[Schema] = {"$comment": "any value"}


def task_schema(task: Task[..., Any], ref_template: str = REFERENCES) -> Schema:
    """Describe a task. Never raises.

    `parameters` is the schema of an object with all parameters by name; `positional` are those that
    a caller may pass by position, in order, and `more_positional` is the schema of any further ones
    or None. `result` is the schema of the result. `$defs` are the schemas of named classes, which
    the others refer to by `ref_template`."""
    codec = task.codecs["json"]
    if isinstance(codec, SchemaCodec):
        return _of_schema(codec.schema.plain, ref_template)
    signature = codec.signature
    slots = [*signature.parameters.values(), signature.result]
    schemas, defs = _schemas_of(slots, ref_template)
    by_slot = dict(zip(map(id, slots), schemas, strict=True))
    extra, more = signature.extra_keywords, signature.extra_positional
    return {
        "parameters": {
            "type": "object",
            "properties": _properties(signature, by_slot),
            "required": [slot.name for slot in signature.required],
            "additionalProperties": False if extra is None else by_slot[id(extra)],
        },
        "positional": [slot.name for slot in signature.positional],
        "more_positional": None if more is None else by_slot[id(more)],
        "result": by_slot[id(signature.result)],
        "$defs": defs,
    }


def _properties(signature: Signature, schemas: Mapping[int, Schema]) -> dict[str, Schema]:
    defaults: Mapping[str, msgspec.Raw] = {}
    with suppress(Exception):  # classes of the user write themselves and may raise anything
        defaults = signature.plain_defaults
    properties = {}
    for name in signature.names:
        schema = schemas[id(signature.parameters[name])]
        if name in defaults:
            schema = {**schema, "default": msgspec.json.decode(defaults[name])}
        properties[name] = schema
    return properties


def _of_schema(plain: Schema, ref_template: str) -> Schema:
    """Describe a task with a schema. Its definitions are moved out, like those of classes."""
    parameters = copy.deepcopy(plain)
    for _, part in subschemas(parameters):
        if "$ref" in part:
            part["$ref"] = ref_template.format(name=part["$ref"].removeprefix(_OWN_DEFS))
    defs = parameters.pop("$defs", {})
    empty: Schema = {"positional": [], "more_positional": None, "result": {}}
    return {"parameters": parameters, **empty, "$defs": defs}


# -------------------------------------------------------------------------------------- annotations


def _schemas_of(slots: Sequence[Slot], ref_template: str) -> tuple[list[Schema], Schema]:
    """The schemas of these slots, and of the classes that they name. All of them in one call of
    msgspec, which then gives classes of the same name different names."""
    types = [_type_of(slot, ref_template) for slot in slots]
    models = _Models(ref_template)
    schemas, defs = _components(types, models.schema, ref_template)
    if any(models.defs[name] != defs[name] for name in models.defs.keys() & defs.keys()):
        # A model and another class have the same name: do not describe the models.
        models.defs = {}
        schemas, defs = _components(types, lambda _: _ANY_VALUE, ref_template)
    return schemas, {**models.defs, **defs}


def _components(
    types: Sequence[Any], hook: Callable[[type], Schema], ref_template: str
) -> tuple[list[Schema], Schema]:
    try:
        schemas, defs = msgspec.json.schema_components(
            types, schema_hook=hook, ref_template=ref_template
        )
    except Exception:  # noqa: BLE001 - types that work one by one; user code can raise anything
        return [{} for _ in types], {}
    return list(schemas), defs


def _type_of(slot: Slot, ref_template: str) -> Any:
    """The type of a slot, or `Any` if it has no schema."""
    try:
        slot.resolve()  # inspects the class under a lock: see `windlass.core.serialization.values`
        annotation = slot.annotation
        hook = _Models(ref_template).schema
        msgspec.json.schema_components([annotation], schema_hook=hook)
    except Exception:  # noqa: BLE001 - any annotation must do, and user code can raise anything
        return Any
    return Any if annotation is object else annotation


class _Models:
    """Makes the schemas of types that msgspec does not know, and collects their definitions."""

    def __init__(self, ref_template: str) -> None:
        self._ref_template = ref_template.replace("{name}", "{model}")
        self.defs: Schema = {}

    def schema(self, kind: type) -> Schema:
        if is_path(kind):
            return {"type": "string"}
        if not is_model(kind):
            return _ANY_VALUE
        model: Any = kind
        schema: Schema = model.model_json_schema(ref_template=self._ref_template)
        defs = schema.pop("$defs", {})
        if any(self.defs.get(name, one) != one for name, one in defs.items()):
            return _ANY_VALUE  # another class has the same name
        self.defs.update(defs)
        return schema
