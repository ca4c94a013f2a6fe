"""Remote tasks: tasks whose code is in another program, often in another language.

1. `RemoteTask` is a task that this app can enqueue and not run. A signature, or a JSON Schema,
   describes its arguments, so that a wrong call fails at the caller.
2. `declare_remote` makes one for `app.task_named`, and registers it. A second declaration of the
   same name must be equal to the first.

A remote task always encodes JSON, with any codec of the app: its workers may not read another
codec. Its options are stored with each job, like those of `using`, because no decorator in this
program says how the job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from windlass.client.options import Choices
from windlass.core.serialization.annotations import resolve
from windlass.core.serialization.schema_codec import CallSchema, SchemaCodec
from windlass.errors import AnnotationError, InvalidTask
from windlass.registry import Registry, read_signature
from windlass.task import Home, Task

if TYPE_CHECKING:
    from windlass.app import Windlass

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class RemoteTask(Task[P, R_co]):
    """A task whose code is in another program. `schema` is None if a signature describes it."""

    def __init__(
        self,
        app: Windlass,
        function: Callable[..., Any],
        *,
        name: str,
        schema: CallSchema | None,
        options: Choices,
    ) -> None:
        super().__init__(Home(app, app.queue_for(name)), function, name=name, declared=options)
        self.schema = schema
        if schema is not None:
            self.codecs["json"] = SchemaCodec(name, function, schema)
        self.home.codec = self.codecs["json"]
        self._chosen = options

    @property
    def is_remote(self) -> bool:
        return True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        """Always raises: the code of the task is not here."""
        raise InvalidTask(
            f"{self.name} cannot be called here: it is a remote task, and its code is in another "
            "program. Enqueue it for a worker that has the code."
        )

    def __repr__(self) -> str:
        return f"<Task {self.name}, remote>"


def declare_remote(
    app: Windlass,
    registry: Registry,
    name: str,
    function: Callable[..., Any] | None,
    schema: Mapping[str, Any] | None,
    options: Choices,
) -> Task[..., Any]:
    """Declare a remote task for `app.task_named`. Returns the earlier task if the same declaration
    was made before. Raises `InvalidTask`."""
    if function is not None and schema is not None:
        raise InvalidTask(
            f"task_named({name!r}) takes a signature or a schema, found both: leave one out."
        )
    task = _make(app, name, function, schema, options)
    other = registry.remote.get(name)
    if other is None:
        registry.add_remote(task)
        return task
    if not _is_same(other, task):
        raise InvalidTask(
            f"The remote task {name} is declared twice, with another signature, schema or "
            "options: declare it once, and import it elsewhere. For other options of single calls "
            "write task.using(...)."
        )
    return other


def _make(
    app: Windlass,
    name: str,
    function: Callable[..., Any] | None,
    schema: Mapping[str, Any] | None,
    options: Choices,
) -> RemoteTask[..., Any]:
    if function is not None:
        described = read_signature(function)
        return RemoteTask(app, described, name=name, schema=None, options=options)

    def absent(**arguments: Any) -> Any: ...

    known = CallSchema(name, schema)
    return RemoteTask(app, absent, name=name, schema=known, options=options)


def _is_same(one: Task[..., Any], other: RemoteTask[..., Any]) -> bool:
    """Whether two declarations of one name describe the same task, with the same options."""
    if not isinstance(one, RemoteTask) or one._choices != other._choices:
        return False
    if one.schema is not None and other.schema is not None:
        return one.schema.canonical == other.schema.canonical
    if one.schema is not None or other.schema is not None:
        return False
    return _described(one.function) == _described(other.function)


def _described(function: Callable[..., Any]) -> list[tuple[object, ...]]:
    """The parameters and the result of a function, comparable between modules."""
    found = signature(function)
    result = Parameter("result", Parameter.KEYWORD_ONLY, annotation=found.return_annotation)
    return [
        (one.name, one.kind, one.default, _type_of(one.annotation, function))
        for one in (*found.parameters.values(), result)
    ]


def _type_of(annotation: object, function: Callable[..., Any]) -> object:
    try:
        return resolve(annotation, function)
    except AnnotationError:  # a name that exists for type checkers only
        return annotation
