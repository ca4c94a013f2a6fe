"""`python -m windlass` is the `windlass` command."""

from windlass.cli import main

main()
