"""Find words that this project does not use: `python tools/check_words.py`.

The list is `tools/words.txt`: one regular expression per line, and what to write instead. Text in
backquotes is code, and is left out.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parent.parent
FOLDERS = ("src", "docs", "tests", "proofs", "benchmarks", "examples", "tools")
ENDINGS = (".py", ".md", ".lua", ".sql", ".toml")
#: The list itself, and migrations, which never change.
LEFT = ("tools", "migrations")


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    advice: str


def rules() -> list[Rule]:
    lines = PROJECT.joinpath("tools/words.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(" -> ") for line in lines if line and not line.startswith("#")]
    return [Rule(re.compile(pattern, re.IGNORECASE), advice) for pattern, advice in pairs]


def files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *FOLDERS, "*.md"], cwd=PROJECT, capture_output=True, check=True
    ).stdout.decode()
    found = [PROJECT / name for name in sorted(set(listed.strip("\0").split("\0")))]
    return [file for file in found if file.suffix in ENDINGS and file.parent.name not in LEFT]


def main() -> int:
    hits = lines = 0
    known = rules()
    # One pattern for all: nearly every line is done after a single search.
    any_of = re.compile("|".join(rule.pattern.pattern for rule in known), re.IGNORECASE)
    for file in files():
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            lines += 1
            plain = re.sub(r"`[^`]*`", "", line)
            for rule in known if any_of.search(plain) else ():
                if found := rule.pattern.search(plain):
                    hits += 1
                    place = f"{file.relative_to(PROJECT)}:{number}"
                    print(f"{place}: '{found[0]}': {rule.advice}")
    print(f"{hits} hits in {lines} lines, {1000 * hits / lines:.2f} per 1,000", file=sys.stderr)
    return 1 if 1000 * hits > lines else 0


if __name__ == "__main__":
    sys.exit(main())
