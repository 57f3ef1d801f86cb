"""What a command says beside its answer: notes, faults, the error it ends with."""

from __future__ import annotations

import sys


def tell(text: str) -> None:
    """To stderr, wrapped to its width where it is a terminal; a pipe or a log gets lines as they are. A live progress
    bar puts the text above itself: while it lives, it stands for stderr."""
    from qualgate.escaping import unread
    from qualgate.report.screen import fit_error

    print(unread(fit_error(text)), file=sys.stderr, flush=True)
