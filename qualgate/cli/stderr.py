"""What a command says beside its answer: notes, faults, the error it ends with."""

from __future__ import annotations

import typer


def tell(text: str) -> None:
    """To stderr, wrapped to its width where it is a terminal; a pipe or a log gets lines as they are."""
    from qualgate.escaping import unread
    from qualgate.report.screen import fit_error

    typer.echo(unread(fit_error(text)), err=True)
