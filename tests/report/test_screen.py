"""Lines on a screen that has a width, and where there is none."""

from __future__ import annotations

import pytest
from rich.table import Table

from qualgate.report.screen import fit, indented, table_lines, width

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


def test_a_cell_that_is_indented_stays_so_on_every_row() -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row(indented("one two three four five six", 4))
    assert table_lines(table, 16) == ["    one two", "    three four", "    five six"]
