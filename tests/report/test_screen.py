"""Lines on a screen that has a width, and where there is none."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.table import Table

from qualgate.errors import Exit
from qualgate.report.screen import fit, indented, table_lines, width
from tests.command_line import qualgate

VERDICT = (
    "int4  BLOCK      exact_match [pooled] fell 9.3 points (2 allowed): a loss beyond 4.1 points is proven, surely"
)


def test_where_there_is_no_screen_a_line_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert width() is None
    assert fit(VERDICT) == VERDICT


@pytest.mark.parametrize("columns", [40, 60, 80, 100])
def test_a_line_goes_on_below_its_last_column(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = fit(VERDICT).split("\n")
    assert max(map(len, rows)) <= columns
    assert {row[:17] for row in rows[1:]} == {" " * 17}
    assert " ".join(" ".join(rows).split()) == " ".join(VERDICT.split())


def test_what_cannot_be_broken_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    path = "/" + "x" * 90
    assert path in fit(f"written: {path}").split("\n")[-1]
    assert fit("") == ""


@pytest.mark.parametrize(
    "whole",
    [
        "`generation: {temperature: 0.7, seed: 3}`", "qualgate db upgrade --store sqlite:///my/long/path/of/a.db",
        "/a folder/with spaces in it/gate.yaml:12",
    ],
)  # fmt: skip
def test_what_is_to_be_pasted_stays_on_one_row(monkeypatch: pytest.MonkeyPatch, whole: str) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    told = {
        "/": f"{whole}: some words about what is wrong in this place, and what is to be done",
        "q": f"The store is of an older version, and it has to be brought up to this one. Run: {whole}. Then go on",
        "`": f"some words about what is wrong in this place; it belongs to {whole} of all of the cases",
    }[whole[0]]
    rows = fit(told).split("\n")
    assert sum(whole in row for row in rows) == 1
    assert len(rows) > 2
    assert " ".join(row.strip() for row in rows) == told


def test_an_error_is_as_wide_as_the_terminal_that_shows_it_and_whole_in_a_pipe(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qualgate", "report", "--format", "papyrus"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, env=environment, check=False)
    said = os.read(ours, 100_000).decode().replace("\r", "")
    os.close(ours)
    os.close(theirs)
    piped = qualgate("report", "--format", "papyrus", cwd=tmp_path)
    assert done.returncode == piped.returncode == Exit.USAGE
    rows = said.rstrip("\n").split("\n")
    assert len(rows) > 1
    assert max(map(len, rows)) <= 50
    assert " ".join(said.split()) + "\n" == piped.stderr
    assert piped.stderr.startswith("qualgate: --format papyrus: not one of terminal, json, markdown, html, ")


def test_a_cell_that_is_indented_stays_so_on_every_row() -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row(indented("one two three four five six", 4))
    assert table_lines(table, 16) == ["    one two", "    three four", "    five six"]
