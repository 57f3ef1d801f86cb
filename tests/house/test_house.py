"""The house keeps its own goals, and the measuring sees what it should."""

from __future__ import annotations

from pathlib import Path

from tests.house.functions import functions, too_long
from tests.house.imports import circles, floors
from tests.house.table import rows


def test_every_goal_is_met():
    assert {row.what: row.places or row.measured for row in rows() if row.met is False} == {}


def test_circles_are_found_each_once():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert [sorted(set(circle)) for circle in circles(edges)] == [["a", "b", "c"]]
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": set()})) == []
    assert floors({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == 3


def test_functions_are_measured_to_their_end():
    here = [function for function in functions([Path(__file__)]) if function.name == "test_every_goal_is_met"]
    assert [(f.lines, f.typed, f.documented, f.public) for f in here] == [(2, False, False, True)]
    assert too_long(here) == []
