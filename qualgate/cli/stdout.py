"""A command's answer, on stdout. In a CI job a runner reads along, and obeys some lines: none of ours is such a one."""

from __future__ import annotations

import codecs
import io
import sys

import typer


def encode_anything() -> None:
    """Have stdout and stderr take every character: as UTF-8 where the locale says ASCII (to typer, too, that says
    nothing), and what another encoding lacks as an escape."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            unset = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if unset else stream.encoding, errors="backslashreplace")


def say(text: str, nl: bool = True) -> None:
    """Print it, nothing in it obeyed by whoever reads along. nl: end the line."""
    from qualgate.escaping import unread

    typer.echo(unread(text), nl=nl)
