"""A group of commands that knows what was probably meant."""

from __future__ import annotations

import click

from windlass.settings import nearest


class SuggestingGroup(click.Group):
    """Asks after a command that looks like the one typed, whatever the version of click."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            question = nearest(args[0], self.list_commands(ctx))
            raise click.UsageError(f"{error.message}{question}", ctx) from error
