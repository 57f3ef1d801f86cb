"""Print a command's answer on stdout, without lines that a CI runner would obey as commands."""

from __future__ import annotations

import codecs
import io
import sys

import typer


def encode_anything() -> None:
    """Make stdout and stderr accept every character: UTF-8 if the locale is ASCII (typer also treats that as unset),
    else escapes for characters that the encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            unset = codecs.lookup(stream.encoding).name == "ascii"
            stream.reconfigure(encoding="utf-8" if unset else stream.encoding, errors="backslashreplace")


def say(text: str, nl: bool = True) -> None:
    """Print text with a CI runner's commands made harmless. nl: end the line."""
    from qualgate.text.escaping import unread

    typer.echo(unread(text), nl=nl)
