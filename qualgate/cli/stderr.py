"""What a command says beside its answer: notes, faults, the error it ends with."""

from __future__ import annotations

import typer


def tell(text: str) -> None:
    """To stderr, wrapped to its width where it is a terminal; a pipe or a log gets lines as they are. What is invisible
    in it, the name of a file or a case for one, is made visible."""
    from qualgate.escaping import visible
    from qualgate.report.screen import fit_error

    typer.echo(visible(fit_error(text)), err=True)
