"""Arms whose drawn answers score alike and follow another law than their target's, and such as do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.four_arm.verdict import decide_four
from qualgate.records import RunEvidence
from tests.gate.four import ARMS, NAMES, alike, asked_again, evidence, with_units
from tests.gate.four_arm.test_our_engine import SAMPLED
from tests.gate.four_arm.test_verdict import CHEAPER, step

CASES, REPEATS = 60, 6
DRAWN = np.array([0.4, 0.3, 0.2, 0.1])
COLDER = DRAWN**4 / (DRAWN**4).sum()


def drawing(law: np.ndarray, arm: str, seed: int = 0) -> RunEvidence:
    """Every arm draws six tokens an answer, all by one law but `arm`; scores are all right."""
    generator = np.random.default_rng(seed)
    given = evidence(alike(CASES, 1.0), CHEAPER)
    return asked_again(given, REPEATS, lambda name, *_: generator.choice(4, 6, p=law if name == arm else DRAWN))


@pytest.mark.parametrize(("arm", "target"), [("drafted", "baseline"), ("int4+drafted", "int4")])
def test_an_arm_that_draws_by_another_law_is_named_with_where_though_its_scores_are_equal(arm, target):
    verdicts = decide_four(drawing(COLDER, arm), SAMPLED)
    found = step(verdicts, arm, "parity")
    assert found.status == "broken"
    assert (
        f"{arm} is defective: its answers follow another law than {target}'s (p = 0.0005 over 60 cases" in found.reason
    )
    assert f"of 6 answers of {target} and" in found.reason
    assert "begin with the same" in found.reason
    other = ({"drafted", "int4+drafted"} - {arm}).pop()
    assert step(verdicts, other, "parity").status != "broken"


def test_arms_that_draw_by_their_target_s_law_are_not_accused_more_often_than_said():
    """alpha of .05 is shared by two arms and, of each, its scores and its law."""
    runs = 5
    steps = [step(decide_four(drawing(DRAWN, "", seed), SAMPLED), "drafted", "parity") for seed in range(runs)]
    assert sum(one.status == "broken" for one in steps) <= 1, "a chance of 2e-3 for two"


def without_tokens(given: RunEvidence) -> RunEvidence:
    for name in NAMES[1:]:
        given = with_units(given, name, lambda unit: replace(unit, answer=None))
    return given


def test_whole_answers_are_compared_where_one_side_tells_no_tokens():
    sharp = np.array([0.97, 0.01, 0.01, 0.01])
    found = step(decide_four(without_tokens(drawing(sharp, "drafted")), SAMPLED), "drafted", "parity")
    assert found.status == "broken"
    assert found.reason.endswith("of drafted are the same")
    same = step(decide_four(without_tokens(drawing(DRAWN, "")), SAMPLED), "drafted", "parity")
    assert same.status != "broken"


@pytest.mark.parametrize(("temperature", "accused"), [(0.1, False), (0.5, True), (None, True)])
def test_below_a_temperature_at_which_rounding_alone_makes_another_law_nobody_is_accused(temperature, accused):
    policy = replace(SAMPLED, four_arm=replace(ARMS, parity="sampled", temperature=temperature))
    found = step(decide_four(drawing(COLDER, "drafted"), policy), "drafted", "parity")
    assert (found.status == "broken") is accused, found.reason


@pytest.mark.parametrize("wavering", [0, 3])
def test_servers_that_draw_nothing_and_part_at_near_ties_are_not_called_samplers_of_another_law(wavering):
    """At temperature 0 in bf16: both say the same again, but for a few cases that other batches tip."""

    def tokens(name: str, case: int, repeat: int) -> list[int]:
        tipped = (name == "drafted" and case < 8) or (20 <= case < 20 + wavering and repeat == 1)
        return [1, 2, 9 if tipped else 3, 4]

    verdicts = decide_four(asked_again(evidence(alike(CASES, 1.0), CHEAPER), 2, tokens), SAMPLED)
    found = step(verdicts, "drafted", "parity")
    assert found.status != "broken", found.reason
