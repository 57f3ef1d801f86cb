"""`bench exact` on a few cases: nothing differs, and what is planted is found."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from qualgate.engine import packed
from qualgate.speculation.propose import NO_DRAFT, Asked
from tests.verification.exactness import exact, padded
from tests.verification.exactness.bits import Answer
from tests.verification.exactness.exact import STRIDE, WEIGHTS, Cell, Spoiled, every_cell, measured
from tests.verification.goals import EXACT

DRAFTED = Cell(weights="int4", way="small mixed passes", drafts="spoiled", sampling="greedy", threads=2)
DRAWN = Cell(weights="int4", way="many at once", drafts="baseline", sampling="drawn", threads=1)
CASCADED = Cell(weights="int4", way="small mixed passes", drafts="cascade", sampling="drawn", threads=2)


@pytest.fixture
def short(monkeypatch):
    """Answers of a few tokens."""
    whole = exact.asked
    monkeypatch.setattr(
        exact,
        "asked",
        lambda count: {k: [replace(one, max_new_tokens=12) for one in v] for k, v in whole(count).items()},
    )


def rows(result):
    return {row["id"]: row for row in result["goals"]}


def test_every_way_to_ask_is_a_cell_and_the_slice_has_each_of_them():
    cells = every_cell()
    assert len(set(cells)) == len(cells) == 480
    slice_ = cells[::STRIDE]
    ways = Counter((one.way, one.drafts, one.sampling, one.threads) for one in slice_)
    assert len(ways) == 48
    assert {one.weights for one in slice_} == set(WEIGHTS)


def test_cells_differ_in_nothing(short):
    result = measured([DRAFTED, DRAWN, CASCADED], 1, 8)
    found = rows(result)
    assert list(found) == list(EXACT.goals)
    assert found["exact.tokens"]["met"] is None, "a slice shows no million"
    assert found["exact.tokens"]["measured"] > 2 * 7 * 5
    assert found["exact.tokens"]["logits"] > 0.8 * found["exact.tokens"]["measured"]
    assert all(found[f"exact.{name}"]["met"] is True for name in ("other_tokens", "other_bits", "padded"))
    drafted, drawn, cascaded, *of_padded = result["rounds"]
    assert 0 < drafted["accepted"] < drafted["proposed"]
    assert drawn["accepted"] > 0
    assert 0 < cascaded["accepted"] <= cascaded["proposed"]
    assert len(of_padded) == 3
    json.dumps(result)


def test_logits_that_depend_on_who_rides_along_are_found(short, monkeypatch):
    opened = exact.open_engine

    @contextmanager
    def open_engine(*arguments, **more):
        with opened(*arguments, **more) as engine:
            whole = engine.head.logits

            def shared(states):
                logits = whole(states)
                return torch.nextafter(logits, logits + 1) if len(states) > 1 else logits

            engine.head.logits = shared
            yield engine

    monkeypatch.setattr(exact, "open_engine", open_engine)
    found = rows(measured([DRAWN], 1, 2))
    assert found["exact.other_tokens"]["met"] is True
    assert found["exact.other_bits"]["met"] is False


def test_drafts_that_are_believed_are_found(short, monkeypatch):
    right = packed.advance
    monkeypatch.setattr(
        packed,
        "advance",
        lambda request, said, draft, would, finite: right(
            request, said, draft, [*draft[:1], *would[1:]] if draft else would, finite
        ),
    )
    found = rows(measured([DRAFTED], 1, 2))
    assert found["exact.other_tokens"]["met"] is False


def test_spoiled_drafts_are_wrong_in_known_places_and_of_every_fourth_row_everywhere():
    answers = [[5, 0, 7, 8, 9, 1] for _ in range(8)]
    spoiled = Spoiled(answers)
    for row, answer in enumerate(answers):
        offered = spoiled.propose([Asked(row, (), answer[:2], 3)])[0].tokens
        assert len(offered) == 3
        right = [a == b for a, b in zip(offered, answer[2:5], strict=True)]
        assert right.count(False) == (3 if row % 4 == 0 else 1)
        assert all(0 <= token < 768 for token in offered)
        assert len(spoiled.whole(row)) > len(answer)
    assert spoiled.propose([Asked(0, (), answers[0], 3)]) == [NO_DRAFT]


def test_another_token_of_a_padded_batch_is_a_tie_or_a_defect():
    ulp = 2.0**-21  # of a number from 4 to 8

    def alone(lead: float) -> Answer:
        return Answer(tokens=[1, 2], margins=[3.0, lead], logits={1: torch.tensor([4.0, 5.0, 5.0 - lead])})

    for lead, ties in ((3.9 * ulp, 1), (4.1 * ulp, 0)):
        found = padded._held("x", [Answer(tokens=[1, 3])], [alone(lead)])
        assert (found.tokens, found.ties, found.broken) == (2, ties, 1 - ties)
    assert padded._held("x", [Answer(tokens=[1])], [alone(1.0)]).broken == 1
    assert padded._held("x", [Answer(tokens=[1, 2])], [alone(0.0)]).broken == 0
