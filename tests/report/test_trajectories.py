"""Trajectories as reports tell them: turn by turn, the first divergent action of each lost one marked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.report import trajectories
from qualgate.report.formats import rendered
from qualgate.report.summary import Report
from qualgate.store.queries import gathered
from tests.report.reading import ATTACK, checked_json, holds_no_attack

ROWS = [
    ("shop", f"{name}/{turn}", 0, before, after, "" if after else f"{name} calls no tool", "")
    for name, turns in {
        "a": [(1.0, 1.0), (1.0, 0.0), (1.0, 0.0)],  # lost at turn 2
        "b": [(1.0, 1.0), (1.0, 1.0)],
        "c": [(0.0, 0.0), (1.0, 1.0)],  # wrong in both
        "d": [(1.0, None), (1.0, 1.0)],  # nobody knows
    }.items()
    for turn, (before, after) in enumerate(turns, start=1)
]


def test_they_are_gathered_from_scores_in_any_order():
    (found,) = gathered(ROWS)
    assert (found,) == gathered(ROWS[::-1])
    assert (found.evalset, found.count, found.baseline, found.variant, found.lost) == ("shop", 4, 3, 1, 1)
    asked = [(one.turn, one.asked, one.baseline, one.variant) for one in found.turns]
    assert asked == [(1, 4, 3, 2), (2, 4, 4, 3), (3, 1, 1, 0)]
    assert [(one.baseline_diverged, one.variant_diverged) for one in found.turns] == [(1, 1), (0, 1), (0, 0)]
    (lost,) = found.first_lost
    assert (lost.name, lost.turns, lost.variant, lost.diverged) == ("a", (1, 2, 3), (True, False, False), 1)


def test_repeats_and_sets_are_told_apart_and_cases_that_are_no_turns_left_out():
    rows = [(name, "a/1", repeat, 1.0, float(repeat), "", "") for name in ("shop", "trips") for repeat in (0, 1)]
    first, second = gathered([*rows, ("shop", "alone", 0, 1.0, 0.0, "", "")])
    assert (first.evalset, second.evalset, first.count, first.lost, second.lost) == ("shop", "trips", 2, 1, 1)


def test_turns_are_in_the_order_of_their_numbers():
    rows = [("shop", f"a/{turn}", 0, 1.0, float(turn < 10), "no call", "") for turn in range(1, 13)]
    (lost,) = gathered(rows)[0].first_lost
    assert lost.turns == tuple(range(1, 13))
    said = "a: ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✓ [✗] ✗ ✗ first diverges at turn 10: no call"
    assert trajectories.lost_line(lost) == said


@pytest.mark.parametrize("name", ["a", ATTACK])
def test_every_format_shows_them_and_their_text_is_only_text(report: Report, name):
    rows = [
        (name, case.replace("a/", f"{name}/"), repeat, before, after, reason and name, "")
        for _, case, repeat, before, after, reason, _ in ROWS
    ]
    variant = report.verdicts[0].variant
    told = replace(report, trajectories={variant: gathered(rows)})
    page, lines = rendered(told, "html"), rendered(told, "markdown")
    assert page.count("<h3>Trajectories of ") == 1
    assert "✓ [✗] ✗" in page
    assert "Trajectories of" in lines
    for form in ("html", "markdown"):
        holds_no_attack(told, form)
    assert checked_json(told)["trajectories"][variant][0]["first_lost"][0]["turns"] == [1, 2, 3]
    assert rendered(report, "html").count("Trajectories") == 0
