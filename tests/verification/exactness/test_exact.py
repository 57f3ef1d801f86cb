"""Benchmark `exact` on a few cases: nothing differs, and what is planted is found."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from qualgate.engine import packed
from tests.verification.exactness import exact
from tests.verification.exactness.exact import CACHED, KEPT_STRIDE, STRIDE, WEIGHTS, Cell, every_cell

DRAFTED = Cell(weights="int4", way="small mixed passes", drafts="spoiled", sampling="greedy", threads=2)
DRAWN = Cell(weights="int4", way="many at once", drafts="baseline", sampling="drawn", threads=1)


@pytest.fixture
def short(monkeypatch):
    """Answers of a few tokens."""
    whole = exact.asked
    monkeypatch.setattr(
        exact,
        "asked",
        lambda count: {k: [replace(one, max_new_tokens=12) for one in v] for k, v in whole(count).items()},
    )


def measured(cell):
    [round], rows = exact.measured("exact", [cell], 1, 480)
    return round, {row["id"]: row for row in rows}


@pytest.mark.parametrize(("weights", "count", "stride"), [(WEIGHTS, 480, STRIDE), (CACHED, 432, KEPT_STRIDE)])
def test_every_way_to_ask_is_a_cell_and_the_slice_has_each_of_them(weights, count, stride):
    cells = every_cell(weights)
    assert len(set(cells)) == len(cells) == count
    slice_ = cells[::stride]
    ways = Counter((one.way, one.drafts, one.sampling, one.threads) for one in slice_)
    assert len(ways) >= min(48, len(slice_)), "no way twice before each is there"
    assert {one.weights for one in slice_} == set(weights)


def test_a_cell_differs_in_nothing(short):
    round, found = measured(DRAFTED)
    assert found["exact.tokens"]["met"] is None, "a slice shows no million"
    assert found["exact.tokens"]["measured"] > 7 * 5
    assert found["exact.tokens"]["logits"] > 0.8 * found["exact.tokens"]["measured"]
    assert all(found[f"exact.{name}"]["met"] is True for name in ("other_tokens", "other_bits"))
    assert 0 < round["accepted"] < round["proposed"]


@pytest.mark.proof
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
    _, found = measured(DRAWN)
    assert found["exact.other_tokens"]["met"] is True
    assert found["exact.other_bits"]["met"] is False


@pytest.mark.proof
def test_drafts_that_are_believed_are_found(short, monkeypatch):
    right = packed.advance

    def believing(request, said, draft, would, finite):
        return right(request, said, draft, [*draft[:1], *would[1:]] if draft else would, finite)

    monkeypatch.setattr(packed, "advance", believing)
    _, found = measured(DRAFTED)
    assert found["exact.other_tokens"]["met"] is False
