"""The SQL of this engine: `sql/` has one file for each group of verbs.

A statement begins with its name (`-- name: insert_job`), then describes its purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

Row = tuple[Any, ...]

_PACKAGE: Final = Path(__file__).parent
_NAME: Final = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def _read_statements() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in _PACKAGE.joinpath("sql").glob("*.sql"):
        _, *blocks = _NAME.split(file.read_text(encoding="utf-8"))
        for name, text in zip(blocks[::2], blocks[1::2], strict=True):
            if name in found:
                raise ValueError(f"two statements have the name {name}")
            lines = [line for line in text.splitlines() if not line.startswith("--")]
            found[name] = "\n".join(lines).strip()
    return found


#: Statement name -> text without comments.
SQL: Final = _read_statements()


def migrations() -> Iterator[tuple[int, str]]:
    """List every migration as (version, text), oldest first."""
    found = _PACKAGE.joinpath("migrations").iterdir()
    for file in sorted(found, key=lambda file: file.name):
        if file.name.endswith(".sql"):
            yield int(file.name.split("_")[0]), file.read_text(encoding="utf-8")


def as_array(values: Sequence[Any]) -> str:
    """Pack values into one parameter for `json_each`. A batch is a single statement, because each
    step of a statement releases the GIL to the threads of running jobs and waits to get it back."""
    return msgspec.json.encode(values).decode()


def repeat_values(statement: str, times: int) -> str:
    """Let an `INSERT` of one row insert several; the parameters of all rows are one sequence."""
    before, values, after = re.split(r"(?<=VALUES )(\(.*\))", statement)
    width = max(int(number) for number in re.findall(r"\?(\d+)", values))
    copies = [_shift_parameters(values, at * width) for at in range(times)]
    return f"{before}{', '.join(copies)}{after}"


def _shift_parameters(text: str, by: int) -> str:
    return re.sub(r"\?(\d+)", lambda found: f"?{int(found[1]) + by}", text)


def rows(connection: apsw.Connection, name: str, *values: Any) -> list[Row]:
    """Run a statement to its end and return its rows."""
    return list(connection.execute(SQL[name], values))


def first(connection: apsw.Connection, name: str, *values: Any) -> Any:
    """Return the first column of the first row of a statement, or None."""
    found = rows(connection, name, *values)
    return found[0][0] if found else None
