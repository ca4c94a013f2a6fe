"""`windlass completion`: shell completion of commands and options.

Click does the work: the script calls this program with a variable set, and reads the candidates.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

#: The variable that the script sets.
VARIABLE = "_WINDLASS_COMPLETE"


@click.command(short_help="Print a script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes a shell complete commands, options and their choices.

    \b
    echo 'eval "$(windlass completion bash)"' >> ~/.bashrc
    echo 'eval "$(windlass completion zsh)"' >> ~/.zshrc
    windlass completion fish > ~/.config/fish/completions/windlass.fish
    """
    complete = get_completion_class(shell)
    assert complete is not None, "click knows all three"
    click.echo(complete(ctx.find_root().command, {}, "windlass", VARIABLE).source())
