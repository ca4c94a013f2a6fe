"""The base class of `Retry`, `Unique`, `Cron` and `Every`: immutable values, checked when they are
made, and equal if their fields are equal.

Type checkers see frozen dataclasses. Real dataclasses would compile their methods at import, which
takes longer than importing a whole module.
"""

from __future__ import annotations

from typing import NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True)
class Value:
    """An immutable value. A subclass annotates its fields and sets all of them in `__init__`."""

    def _set(self, **fields: object) -> None:
        vars(self).update(fields)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} cannot be set: {self!r} is a value. Make another one.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} cannot be deleted: {self!r} is a value. Make another one.")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(vars(self).items()))
