"""A command's answer, on stdout. In a CI job a runner reads along, and obeys some lines: none of ours is such a one."""

from __future__ import annotations

import typer


def say(text: str, nl: bool = True) -> None:
    """Print it, nothing in it obeyed by whoever reads along. nl: end the line."""
    from qualgate.escaping import unread

    typer.echo(unread(text), nl=nl)
