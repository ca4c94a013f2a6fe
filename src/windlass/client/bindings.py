"""Tasks by their number of parameters, so that type checkers compare tuples of arguments with them.

`enqueue_many` takes tuples of positional arguments. A type checker cannot derive their types from
the parameters of a task in general, only for a fixed number of parameters: these protocols have a
`bind` of that number. They exist for type checkers only; no module imports them at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from windlass.task import Call

A = TypeVar("A", contravariant=True)
B = TypeVar("B", contravariant=True)
C = TypeVar("C", contravariant=True)
D = TypeVar("D", contravariant=True)
E = TypeVar("E", contravariant=True)
R = TypeVar("R", covariant=True)

#: The arguments of a task with more parameters than the protocols have; their types are unknown.
ManyArguments: TypeAlias = tuple[Any, Any, Any, Any, Any, Any, *tuple[Any, ...]]


class Binds0(Protocol[R]):
    def bind(self) -> Call[R]: ...


class Binds1(Protocol[A, R]):
    def bind(self, a: A, /) -> Call[R]: ...


class Binds2(Protocol[A, B, R]):
    def bind(self, a: A, b: B, /) -> Call[R]: ...


class Binds3(Protocol[A, B, C, R]):
    def bind(self, a: A, b: B, c: C, /) -> Call[R]: ...


class Binds4(Protocol[A, B, C, D, R]):
    def bind(self, a: A, b: B, c: C, d: D, /) -> Call[R]: ...


class Binds5(Protocol[A, B, C, D, E, R]):
    def bind(self, a: A, b: B, c: C, d: D, e: E, /) -> Call[R]: ...
