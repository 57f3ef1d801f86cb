"""Defects planted in real runs of the reference model: found, and told apart, from what the store holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qualgate.engine.job import run_job
from qualgate.quant.readers.checkpoint import read_quantized
from qualgate_kernels.dequantize import dequantize_torch
from tests.engine.jobs import ENGINES, INT4, arms_under, job
from tests.verification.verdicts import graded, planted_runs
from tests.verification.verdicts.mutants import DEFECTS, SOUND
from tests.verification.verdicts.planted_runs import (
    Batch,
    is_named,
    judged_batches,
    pooled,
    ran,
    rates,
    rows,
    truth,
)
from tests.verification.verdicts.plantings.mutant import ANSWERS, Mutant
from tests.verification.verdicts.plantings.wrong_drafts import (
    accepting,
    all_accepted,
    losing_the_first,
    one_too_many,
    unless_sure,
)

CASES = 24
CHOSEN = ("0.5 of the budget", "another role marker", "JSON in a fence", "an accepted token lost", "a weight is NaN",
          "layer 0's down_proj zeroed", "the same")  # fmt: skip


@pytest.mark.proof
def test_no_defect_of_a_real_run_is_approved_the_same_weights_are_and_the_cause_of_each_is_read_from_the_store():
    every = {mutant.what: mutant for mutant in (*DEFECTS, *SOUND)}
    named = tuple((f"m{number}", every[what]) for number, what in enumerate(CHOSEN))
    lines = ran(Batch(name="slice", seed=7001, sets=ANSWERS, margin=0.15, cases=CASES, mutants=named))
    words = {line["what"]: line["word"] for line in lines}
    assert words.pop("the same") == "approve"
    assert "approve" not in words.values()
    assert [(line["what"], line["cause"]) for line in lines if not is_named(line)] == []


def seen(lost: int, n: int = 100, gained: int = 0) -> list[dict[str, Any]]:
    """What `pooled` makes of truth runs in which so many of n were lost."""
    found = [{"metric": "exact_match", "n": n, "lost": lost, "gained": gained}]
    return pooled([{"name": "m1", "losses": found}])["m1"]


def test_the_truth_is_left_open_within_two_standard_errors_of_the_margin():
    plain = Mutant(what="x")
    assert [truth(plain, seen(lost), 0.10) for lost in (0, 4, 10, 17, 25)] == ["sound", "sound", "", "", "defect"]
    assert truth(plain, seen(170, 1000), 0.10) == "defect", "more cases, a smaller error"
    assert truth(plain, seen(30, 1000, gained=30), 0.05) == "sound", "what is gained is no loss"
    assert truth(plain, [], 0.10) == "", "nothing was measured"
    assert truth(Mutant(what="x", broken=True), [], 0.10) == "defect"


def test_of_two_metrics_one_that_loses_makes_a_defect():
    both = [{"metric": "exact_match", "n": 400, "lost": 0, "gained": 0},
            {"metric": "json.valid", "n": 400, "lost": 60, "gained": 0}]  # fmt: skip
    lost = pooled([{"name": "m1", "losses": both}])["m1"]
    assert truth(Mutant(what="x"), lost, 0.10) == "defect"
    assert truth(Mutant(what="x"), lost, 0.15) == ""


@pytest.fixture
def declaring(monkeypatch):
    """The planner's answer, which takes it a while."""
    monkeypatch.setattr(planted_runs, "declared", lambda margin: (round(20 / margin), 0.9, 0.9))


def test_an_arm_is_judged_at_the_declared_cases_under_margins_that_its_truth_is_known_for(declaring):
    name = f"m{len(DEFECTS) + len(SOUND)}"
    lost = {name: seen(96, 600)}  # 16 points: three margins of 5 and more, a defect of both others
    found = list(judged_batches({name: graded.GRADED[0]}, lost, planted_runs.SEEDS))
    assert {batch.margin for batch in found} == {0.07, 0.10}
    assert {batch.cases for batch in found} == {286, 200}
    assert len({batch.seed for batch in found if batch.margin == 0.10}) == 2
    assert not {batch.seed for batch in found} & set(planted_runs.TRUTH_SEEDS)


def line(truth: str, word: str, cause: str = "", *, broken: bool = False) -> dict[str, Any]:
    return {"name": "m1", "what": "x", "planted": "recipe", "broken": broken, "held_out": True, "margin": 0.1,
            "word": word, "cause": cause, "compared": True, "truth": truth, "loss": 0.2}  # fmt: skip


def test_approved_defects_blocked_sound_arms_and_wrong_causes_are_counted():
    missed = rates([line("defect", "approve"), line("defect", "block", "recipe"), line("defect", "block", "kernel")])
    assert [missed[name] for name in ("defects", "approved", "found", "cause_right")] == [3, 1, 2, 1]
    assert missed["causes"] == {"recipe: recipe": 1, "recipe: kernel": 1}
    alarms = rates([line("sound", "block"), line("sound", "approve"), line("sound", "undecided")])
    assert [alarms[name] for name in ("sound", "blocked", "sound_approved")] == [3, 1, 1]
    open_ = rates([line("defect", "undecided"), line("defect", "block", "recipe")])
    assert [open_[name] for name in ("defects", "approved", "undecided", "found")] == [2, 0, 1, 1]


def test_a_rate_beyond_the_goal_fails_its_row_and_a_few_arms_meet_none(declaring):
    few = {row["id"]: row for row in rows([line("defect", "block", "recipe"), line("sound", "approve")])}
    assert all(row["met"] is None and "too few" in row["reason"] for row in few.values())
    bad = {row["id"]: row for row in rows([line("defect", "approve"), line("defect", "block", "kernel")])}
    assert (bad["planted.false_approve"]["met"], bad["planted.cause"]["met"]) == (False, False)
    assert bad["planted.false_approve"]["spread"] == pytest.approx([0.0126, 0.9874], abs=1e-4), "Clopper and Pearson"


def test_no_two_mutants_share_the_words_that_they_are_told_by():
    mutants = planted_runs.all_mutants()
    assert len({mutant.what for mutant in mutants.values()}) == len(mutants)
    assert not any(mutant.broken for mutant in graded.GRADED), "their truth is what they lose"


LAYER = "3.self_attn.o_proj"
FULL = f"model.layers.{LAYER}"


@pytest.mark.proof
@pytest.mark.parametrize("spoil", [graded.zeroed, graded.nibbles_swapped])
def test_one_layer_of_a_spoiled_folder_is_wrong_as_it_is_said_and_no_other(spoil, tmp_path):
    gptq = spoil is not graded.nibbles_swapped
    recipe, format = (graded.INT8, "gptq_v2") if gptq else (graded.INT4, "compressed-tensors")
    found = []
    for number, what in enumerate((None, spoil)):
        (tmp_path / str(number)).mkdir()
        graded.spoiled(recipe, format, what, LAYER)(tmp_path / str(number))
        found.append(read_quantized(tmp_path / str(number)).layers)
    before, after = ({name: dequantize_torch(one.weight).float() for name, one in layers.items()} for layers in found)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {FULL}
    pairs = before[FULL].reshape(len(before[FULL]), -1, 2)
    expected = 0 * before[FULL] if gptq else pairs.flip(-1).flatten(1)
    assert torch.allclose(after[FULL] - before[FULL], expected - before[FULL], rtol=1e-2)


def test_a_lost_order_leaves_the_columns_in_plain_groups():
    tensors = {"layer.g_idx": torch.tensor([1, 0, 1, 0], dtype=torch.int32)}
    graded.order_lost(tensors, "layer.")
    assert tensors["layer.g_idx"].tolist() == [0, 0, 1, 1]
    with pytest.raises(AssertionError):
        graded.order_lost(tensors, "layer.")  # there is no order left to lose


@pytest.mark.proof
@pytest.mark.parametrize("kind", ENGINES)
def test_a_defective_acceptance_takes_a_drafted_token_that_the_arm_would_not_say(tmp_path, kind):
    arm, artifact = arms_under(kind, tmp_path), tmp_path / "job.safetensors"
    baseline, variant = arm("baseline"), arm("v", INT4)
    drafts = [one.token_ids for one in run_job(baseline, job(baseline, artifact)).completions]
    work = job(variant, artifact, drafted=True)
    right = [one.token_ids for one in run_job(variant, work).completions]
    forks = [first_other(*pair) for pair in zip(right, drafts, strict=True)]
    assert len([at for at in forks if at is not None]) > 3
    for force in (one_too_many, all_accepted, unless_sure):
        with accepting(force):
            wrong = [one.token_ids for one in run_job(variant, work).completions]
        parted = [first_other(*pair) for pair in zip(wrong, right, strict=True)]
        assert any(at is not None for at in parted)
        for said, draft, fork, at in zip(wrong, drafts, forks, parted, strict=True):
            if at is not None:
                assert at >= fork, "what the arm says too is accepted as before"
                assert said[at] == draft[at] or at > fork
                assert force is not all_accepted or said == draft
    with losing_the_first():
        lost = [one.token_ids for one in run_job(variant, work).completions]
    assert (
        [said for said, whole in zip(lost, right, strict=True) if said != whole]
        == [whole[1:] for said, whole in zip(lost, right, strict=True) if said != whole]
        != []
    )


def first_other(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
