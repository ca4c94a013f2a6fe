"""What `Retry`, `Unique`, `Cron` and `Every` have in common: they are values, checked when they are
made, never changed, and equal to others of their class that say the same.

Checkers take them for frozen data classes. They are none, because those compile their methods from
text whenever they are imported, which takes longer than a whole module does.
"""

from __future__ import annotations

from typing import NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True)
class Value:
    """A subclass names its fields by annotations, and sets all of them in its `__init__`."""

    def _set(self, **fields: object) -> None:
        vars(self).update(fields)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} cannot be set: {self!r} is a value. Make another one.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} cannot be taken away: {self!r} is a value. Make another one.")

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(vars(self).items()))
