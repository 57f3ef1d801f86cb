"""Show progress of long work: a bar on a terminal, plain lines in CI. Always on stderr; stdout is for the result."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from qualgate.errors.log_lines import is_json, log_line
from qualgate.text.escaping import unread, visible_line

PLAIN_STEP = 0.1  # a plain line each tenth of the way


@contextmanager
def shown_progress(unit: str = "answers") -> Iterator[Callable[[str, int, int], None]]:
    """Yield `progress(what, done, total)`, to be called after every finished piece. unit: what is counted.

    While nothing can be counted yet, `total` is 0 and `what` describes the work; that line stays.
    """
    if is_json():
        yield _json_lines(unit)
    elif sys.stderr.isatty():
        yield from _bar(unit)
    else:
        yield _plain_lines(unit)


def _bar(unit: str) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a `progress` function that draws a bar. unit: what is counted."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    columns = (
        TextColumn("{task.description}", justify="left"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("planning", total=None)

        def progress(arm: str, done: int, total: int) -> None:
            if not total:
                bar.console.print(Text(visible_line(arm), style="dim"))
                return
            bar.update(task, description=arm or "loading", completed=done, total=total)

        yield progress


def _json_lines(unit: str) -> Callable[[str, int, int], None]:
    """Return a `progress` function that logs a JSON line for each tenth of the way. unit: what is counted."""
    last_share = -1.0

    def progress(what: str, done: int, total: int) -> None:
        nonlocal last_share
        about: dict[str, Any] = {"event": "progress"}
        if total and not (done / total >= last_share + PLAIN_STEP or done == total):
            return
        last_share = done / total if total else -1.0
        if total:
            about |= {"of": unit, "done": done, "total": total, "arm": what}
        message = f"{done} of {total} {unit}" if total else visible_line(what)
        print(log_line(message, **about), file=sys.stderr, flush=True)

    return progress


def _plain_lines(unit: str) -> Callable[[str, int, int], None]:
    """Return a `progress` function that prints a line for each tenth of the way. unit: what is counted."""
    start = time.monotonic()
    last_share = -1.0

    def progress(arm: str, done: int, total: int) -> None:
        nonlocal last_share
        if not total:  # the next count starts again
            print(visible_line(arm), file=sys.stderr, flush=True)
            last_share = -1.0
            return
        share = done / total
        if share >= last_share + PLAIN_STEP or done == total:
            last_share = share
            seconds = time.monotonic() - start
            print(
                f"{done:>7} of {total} {unit}  {share:>4.0%}  {seconds:>5.0f} s  {unread(arm)}",
                file=sys.stderr,
                flush=True,
            )

    return progress
