"""The progress bar on a real terminal: notes, warnings and what workers say stand above it, each a whole line."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

PROGRAM = """
import logging, multiprocessing, sys, warnings
from qualgate.cli.stderr import tell
from qualgate.report.progress import shown_progress
from qualgate.workers.stderr import say_above_the_bar

def work():
    say_above_the_bar()
    sys.stderr.write("a worker's")
    print(" warning", file=sys.stderr, flush=True)

with shown_progress() as progress:
    progress("baseline", 10, 100)
    tell("note: this policy would approve an identical variant in [3 %] of runs, and that goes on and on")
    progress("baseline", 20, 100)
    warnings.warn("a library's warning")
    logging.getLogger("x").warning("a log line")
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start(); worker.join()
    progress("int4", 99, 100)
    progress("int4", 100, 100)
print("the answer")
"""


def rows(said: str) -> tuple[list[str], list[str]]:
    """(what a terminal shows in the end, every row that was ever left by a line end)."""
    screen, at, left = [""], 0, []
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", said):
        if part == "\n":
            left.append(screen[at])
            at += 1
            screen += [""] * (at == len(screen))
        elif part.endswith("A") and part.startswith("\x1b"):
            at -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            screen[at] = ""
        elif not part.startswith("\x1b") and part != "\r":
            screen[at] += part
    return screen, left


def test_what_is_said_while_the_bar_lives_stands_above_it_line_by_line():
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-W", "always", "-c", PROGRAM], stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    ) as child:  # fmt: skip
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 65536):
                said += part
        except OSError:  # the other side is closed
            pass
        assert child.wait() == 0, said.decode()
    os.close(ours)
    shown, _ = rows(said.decode())
    text = [row.rstrip() for row in shown if row.strip()]
    assert text[0].startswith("note: this policy would approve an identical variant in [3 %] of runs")
    for line in ("a log line", "a worker's warning", "the answer"):
        assert line in text, shown
    assert any(row.endswith("UserWarning: a library's warning") for row in text)
    assert not any("━" in row for row in text), "the bar is gone in the end, and left no row behind"
    assert re.search(r"int4 .*100/100", said.decode().replace("\x1b[0m", ""), re.DOTALL), "it went on after them"


def test_in_plain_lines_each_stage_is_counted_anew():
    program = """
from qualgate.report.progress import shown_progress
with shown_progress("pieces") as progress:
    for stage in ("first", "second"):
        progress(f"{stage} stage", 0, 0)
        for done in range(1, 31):
            progress(stage, done, 30)
"""
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stderr.splitlines()
    first, second = said[: len(said) // 2], said[len(said) // 2 :]
    assert (first[0], second[0]) == ("first stage", "second stage")
    assert len(first) == len(second) == 12
    assert "30 of 30 pieces" in second[-1]
