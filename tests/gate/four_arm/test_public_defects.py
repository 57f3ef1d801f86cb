"""Defects that users of other engines reported, as evidence: the parity verdict names each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.four_arm.verdict import decide_four
from qualgate.records import RunEvidence, UnitEvidence
from tests.gate.four import POLICY, alike, asked_again, evidence, with_units
from tests.gate.four_arm.test_our_engine import SAMPLED, ours
from tests.gate.four_arm.test_verdict import CHEAPER, step, words

TOKENS = 170  # an answer: about one divergence was reported in so many


def leaving(given: RunEvidence, share: float, gap: float, seed: int = 1) -> RunEvidence:
    """`int4+drafted` leaves the answer of its quantized target in this share of cases, at a token whose two likeliest
    logits are `gap` apart."""
    drawn = np.random.default_rng(seed)
    places = {u.key.case_id: int(drawn.integers(1, TOKENS)) for u in given.baseline.units if drawn.random() < share}

    def left(unit: UnitEvidence) -> UnitEvidence:
        if unit.key.case_id not in places:
            return unit
        said = np.frombuffer(unit.answer or b"", "<i4").copy()
        said[places[unit.key.case_id] :] += 1
        return replace(unit, answer=said.tobytes())

    def near(unit: UnitEvidence) -> UnitEvidence:
        margins = np.frombuffer(unit.margins or b"", "<f8").copy()
        margins[places.get(unit.key.case_id, 0)] = gap
        return replace(unit, margins=margins.tobytes())

    return with_units(with_units(given, "int4+drafted", left), "int4", near)


def long(n: int = 400) -> RunEvidence:
    said = dict.fromkeys(("baseline", "int4", "drafted", "int4+drafted"), [tuple(range(TOKENS))] * n)
    return evidence(alike(n), CHEAPER, answers=said)


def test_greedy_answers_of_a_quantized_target_that_exact_ties_change_are_a_defect_however_near():
    """llama.cpp#25618 and #27407: one divergence in 150 to 190 tokens, each at two logits that are equal in bf16."""
    verdicts = decide_four(leaving(long(), share=1.0, gap=0.0), POLICY)
    found = step(verdicts, "int4+drafted", "parity")
    assert (found.status, words(verdicts)["int4+drafted"]) == ("broken", "block")
    assert found.reason == (
        "int4+drafted is defective: 400 answers leave int4's at near ties, over 0.0001 of 35,381 tokens: its "
        "verification rounds otherwise than its target decodes"
    )
    assert step(verdicts, "drafted", "parity").status == "proven", "on the full-precision target it changes nothing"


def test_a_drafter_that_changes_greedy_answers_is_named_with_the_first_token():
    """vllm#54928: a block drafter whose answers are not the target's, and no tie is near."""
    verdicts = decide_four(leaving(long(), share=0.02, gap=0.7), POLICY)
    found = step(verdicts, "int4+drafted", "parity")
    assert found.status == "broken"
    assert "int4+drafted is defective: " in found.reason
    assert "(top-2 gap 0.7, no near tie)" in found.reason


def repeated(greedy: str, n: int = 40, repeats: int = 4, ours_too: bool = False) -> RunEvidence:
    """Every arm answers each case several times, drawn anew, and the arm `greedy` always alike; scores are equal."""
    given, drawn = evidence(alike(n), CHEAPER), np.random.default_rng(2)
    given = ours(given) if ours_too else given
    return asked_again(given, repeats, lambda name, *_: [1, 2] if name == greedy else drawn.integers(0, 9, 12))


@pytest.mark.parametrize("arm", ["drafted", "int4+drafted"])
def test_a_sampler_that_is_silently_greedy_is_named_though_its_scores_are_equal(arm):
    """sglang#31214: verification answers greedily at a temperature over 0. Caught in 40 cases of 4 answers."""
    verdicts = decide_four(repeated(arm), SAMPLED)
    found = step(verdicts, arm, "parity")
    assert found.status == "broken"
    assert "its sampler is greedy, for 40 cases with several answers vary in its target and none in it" in found.reason
    other = ({"drafted", "int4+drafted"} - {arm}).pop()
    assert step(verdicts, other, "parity").status != "broken", "it draws"


@pytest.mark.parametrize("greedy", ["drafted", ""])
def test_one_answer_a_case_proves_no_sampler_though_scores_are_equal_and_what_would_is_said(greedy):
    """sglang#31214 again: of one answer a case, drawn or not, nothing shows which it is."""
    found = step(decide_four(repeated(greedy, n=200, repeats=1), SAMPLED), "drafted", "parity")
    assert found.status == "undecided"
    assert "nothing shows that drafted draws at all: each case has one answer." in found.reason
    assert "needs several answers a case (`repeats: 2` or more), of which 14 cases or more vary" in found.reason


@pytest.mark.parametrize(
    ("varying", "said"),
    [
        (3, "of 200 cases with several answers none varies in drafted, 3 in baseline."),
        (13, "drafted is defective: its answers follow another law than baseline's"),
        (14, "drafted is defective: its sampler is greedy"),
    ],
)
def test_so_many_cases_must_vary_in_the_target_that_a_greedy_sampler_is_told_from_chance(varying, said):
    given = repeated("drafted", n=200, repeats=2)

    def steady(unit: UnitEvidence) -> UnitEvidence:
        rare = int(unit.key.case_id[2:]) >= varying
        return replace(unit, answer=np.array([1, 2], "<i4").tobytes()) if rare else unit

    found = step(decide_four(with_units(given, "baseline", steady), SAMPLED), "drafted", "parity")
    assert said in found.reason
    assert found.status == ("undecided" if varying == 3 else "broken")


def test_an_arm_that_is_seen_to_draw_or_gives_its_target_s_own_answers_is_proven_by_its_scores():
    drawing = step(decide_four(repeated("", n=200, repeats=2), SAMPLED), "drafted", "parity")
    assert (drawing.status, drawing.reason.startswith("scores as baseline does, within")) == ("proven", True)
    own = step(decide_four(evidence(alike(400), CHEAPER), SAMPLED), "drafted", "parity")
    assert own.status == "proven"
    bare = with_units(repeated("", n=200), "drafted", lambda u: replace(u, answer=None, text_sha256=""))
    assert "no answer's tokens or text are recorded" in step(decide_four(bare, SAMPLED), "drafted", "parity").reason
