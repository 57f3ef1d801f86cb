"""What passes over several sequences cost is timed at load, and what the control of drafts starts from."""

from __future__ import annotations

import pytest

from qualgate.engine import batch_costs as timing
from qualgate.engine.draft_part import WHOLE
from qualgate.records import DraftSource, QuantizeRecipe, Speculation
from qualgate.records.speculated import BATCH_COST, DRAFT_STEP_COST, PLAIN_STEP, READING_COST, costs_of
from tests.engine.jobs import loaded
from tests.tiny_models import save_tiny_model

MXFP4 = QuantizeRecipe(method="mxfp4", group_size=32)
EARLY = Speculation(draft=DraftSource(kind="early_exit", layers=1))


@pytest.mark.parametrize(("tokens", "rows"), [(4, (1, 5)), (0, timing.ROWS)])
def test_every_batch_has_a_cost_and_every_draft_model_a_step(tmp_path, tokens, rows):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    speculation = Speculation(draft=DraftSource(kind="quantize", quantize=MXFP4, under=EARLY), tokens=tokens)
    arm = loaded(model, tmp_path, "drafted", speculation=speculation)
    facts = arm.footprint.facts
    passes = costs_of(facts, BATCH_COST)
    all_ = {(count, count * each) for count in timing.BATCHES for each in rows}
    assert set(passes) == {shape for shape in all_ if shape[1] <= 320}
    assert tokens or {(1, 17), (4, 68), (16, 272), (64, 320)} <= set(passes), "drafts of 16 tokens are foretold"
    steps = costs_of(facts, DRAFT_STEP_COST)
    assert set(steps) == {(level, count) for level in (1, 2) for count in timing.BATCHES}
    assert all(cost > 0 for cost in (*passes.values(), *steps.values(), facts[PLAIN_STEP]))
    assert passes[1, 1] == 1.0
    assert f"{READING_COST}1" not in facts, "a self-draft reads no text"
    runs = (arm.model, arm.choice)
    assert timing.batch_costs(runs, 3, [(runs, WHOLE)])[f"{READING_COST}1"] >= 0


def test_larger_passes_are_left_out_once_one_takes_long(tmp_path, monkeypatch):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    arm = loaded(model, tmp_path)
    monkeypatch.setattr(timing, "LONGEST", 0.0)
    facts = timing.batch_costs((arm.model, arm.choice), 3, [])
    assert set(costs_of(facts, BATCH_COST)) == {(1, 1)}


def test_a_pass_that_takes_long_leaves_out_those_of_as_many_rows_and_no_smaller_one(tmp_path, monkeypatch):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    arm, begins = loaded(model, tmp_path), True
    rows = 0

    def clock() -> float:  # a pass takes 7.5 ms a row
        nonlocal begins
        begins = not begins
        return 0.0075 * rows if begins else 0.0

    made = timing.batch

    def counting(parts, blocks):
        nonlocal rows
        rows = sum(len(part.tokens) for part in parts)
        return made(parts, blocks)

    monkeypatch.setattr(timing, "batch", counting)
    monkeypatch.setattr(timing, "perf_counter", clock)
    found = costs_of(timing.batch_costs((arm.model, arm.choice), 0, []), BATCH_COST)
    assert {shape for shape, cost in found.items() if cost > 66} == {(4, 68)}, "half a second is long"
    assert max(rows for shape, rows in found if shape != 4) == 64
    assert (16, 32) in found
    assert (64, 64) in found


def test_the_control_of_drafts_starts_from_what_was_timed():
    facts = {PLAIN_STEP: 0.01, f"{READING_COST}1": 0.2}
    facts |= {f"{BATCH_COST}{count}x{rows}": 0.9 + 0.1 * rows for count, rows in ((1, 1), (1, 5), (4, 4), (4, 20))}
    facts |= {f"{DRAFT_STEP_COST}1x{count}": 0.3 + 0.05 * count for count in (1, 4, 16)}
    found = timing.learned_from(facts, ("draft", "ngram"))
    assert found.costs.now.seconds(4, 20) == pytest.approx(0.029, rel=0.05)
    assert found.lengths("draft").draft.now.seconds(16, 16) == pytest.approx(0.011, rel=0.05)
    assert timing.learned_from({}, ("draft",)).costs.now == type(found)().costs.now


def test_an_arm_without_a_draft_is_not_timed(tmp_path):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    assert not costs_of(loaded(model, tmp_path).footprint.facts, BATCH_COST)
