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
from tests.verification.exactness.exact import CACHED, KEPT_STRIDE, STRIDE, WEIGHTS, Cell, Spoiled, every_cell
from tests.verification.goals import EXACT

PARTS = ("tokens", "other_tokens", "other_bits")
DRAFTED = Cell(weights="int4", way="small mixed passes", drafts="spoiled", sampling="greedy", threads=2)
DRAWN = Cell(weights="int4", way="many at once", drafts="baseline", sampling="drawn", threads=1)
KEPT = Cell(weights="KV int4, served", way="many at once", drafts="cascade", sampling="drawn", threads=2)
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


def measured(cells, name="exact"):
    rounds, rows = exact.measured(name, cells, 1, 480)
    return rounds, {row["id"]: row for row in rows}


@pytest.mark.parametrize(("weights", "count", "stride"), [(WEIGHTS, 480, STRIDE), (CACHED, 432, KEPT_STRIDE)])
def test_every_way_to_ask_is_a_cell_and_the_slice_has_each_of_them(weights, count, stride):
    cells = every_cell(weights)
    assert len(set(cells)) == len(cells) == count
    slice_ = cells[::stride]
    ways = Counter((one.way, one.drafts, one.sampling, one.threads) for one in slice_)
    assert len(ways) >= min(48, len(slice_)), "no way twice before each is there"
    assert {one.weights for one in slice_} == set(weights)


def test_keys_and_values_are_held_in_every_format_under_either_arithmetic(tmp_path):
    assert {(one.kv_cache, one.arithmetic) for one in CACHED.values()} == {
        (kept, arithmetic) for kept in ("bf16", "fp8", "int8", "int4") for arithmetic in ("float32", "served")
    }
    arm = exact.loaded("KV fp8, float32", str(tmp_path))
    assert (arm.choice.kept, arm.choice.rounded, arm.choice.kind) == ("fp8", "float32", "packed")
    arm = exact.loaded("KV int4, served", str(tmp_path))
    assert (arm.choice.kept, arm.choice.rounded, arm.choice.kind) == ("int4", "bfloat16", "plain")


def test_only_the_rows_that_are_asked_for_are_measured(monkeypatch):
    monkeypatch.setattr(
        exact, "measured", lambda name, *_: ([], [EXACT.not_run(f"{name}.{one}", name) for one in PARTS])
    )
    found = {row["id"]: row["reason"] for row in exact.run(True, ("exact.kept.tokens",))["goals"]}
    assert found["exact.padded"] == found["exact.tokens"] == "not asked for"
    assert found["exact.kept.other_bits"] == "exact.kept"


def test_cells_differ_in_nothing(short):
    rounds, found = measured([DRAFTED, DRAWN, CASCADED])
    assert found["exact.tokens"]["met"] is None, "a slice shows no million"
    assert found["exact.tokens"]["measured"] > 2 * 7 * 5
    assert found["exact.tokens"]["logits"] > 0.8 * found["exact.tokens"]["measured"]
    assert all(found[f"exact.{name}"]["met"] is True for name in ("other_tokens", "other_bits"))
    drafted, drawn, cascaded = rounds
    assert 0 < drafted["accepted"] < drafted["proposed"]
    assert drawn["accepted"] > 0
    assert 0 < cascaded["accepted"] <= cascaded["proposed"]
    json.dumps(rounds)


def test_cells_of_a_cache_in_fewer_bits_differ_in_nothing(short):
    rounds, found = measured([KEPT], "exact.kept")
    assert [found[f"exact.kept.{name}"]["measured"] for name in ("other_tokens", "other_bits")] == [0, 0]
    assert rounds[0]["accepted"] > 0


def test_the_padded_engine_is_held_too():
    rounds, (row,) = exact.held_padded(8)
    assert len(rounds) == 3
    assert row["met"] is True
    assert row["tokens"] > 8


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
    _, found = measured([DRAWN])
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
    _, found = measured([DRAFTED])
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
