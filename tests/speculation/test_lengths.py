"""γ against every other γ, and trials that cost no more than they may."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.speculation.control import Acceptance, Costs, PassCost
from qualgate.speculation.lengths import TRIALS, Lengths, best_length
from qualgate.speculation.propose import Draft

TARGET = PassCost(fixed=10e-3, sequence=0.0, row=0.2e-3)
seconds = st.floats(1e-5, 1e-2)
costs = st.builds(PassCost, fixed=seconds, sequence=seconds, row=seconds)


@given(st.lists(st.floats(0, 1), max_size=32), costs, costs, st.integers(1, 64))
def test_no_other_length_says_more_tokens_a_second(chances, target, draft, sequences):
    def rate(count: int) -> float:
        tokens = 1.0
        for last in range(1, count + 1):
            product = 1.0
            for chance in chances[:last]:
                product *= chance
            tokens += product
        verified = target.fixed + target.sequence * sequences + target.row * sequences * (1 + count)
        return tokens / (verified + count * (draft.fixed + (draft.sequence + draft.row) * sequences))

    found = best_length(chances, target, draft, sequences)
    assert rate(found) >= max(rate(count) for count in range(len(chances) + 1)) * (1 - 1e-12)


@pytest.mark.parametrize(
    ("alpha", "c", "gamma"), [(0.9, 0.266, 5), (0.95, 0.266, 9), (0.98, 0.266, 15), (0.8, 0.266, 3)]
)
def test_it_is_the_published_one_where_verifying_is_free(alpha, c, gamma):
    """/1/ ML-SpecQD's bandwidth floor: S = τ / (1 + γ c), of which the table of best γ is known."""
    assert best_length([alpha] * 32, PassCost(1.0, 0.0, 0.0), PassCost(c, 0.0, 0.0), 1) == gamma


def rounds(lengths: Lengths, acceptance: Acceptance, target: Costs, draft: PassCost, chance: float, count: int):
    """Planted passes of one sequence, a share of whose drafts' tokens is right: (γ, seconds drafted, verified) each."""
    right = 0.0
    for _ in range(count):
        gamma = lengths.choose(1, 32)
        drafted = gamma * draft.seconds(1, 1)
        if gamma:
            lengths.drafted([gamma], 0, drafted)
            tokens = []
            for _ in range(gamma):
                right += chance
                tokens.append(int(right >= 1))
                right -= right >= 1
            acceptance.observe(Draft((1,) * gamma, "draft", 8), tokens)
        verified = TARGET.seconds(1, 1 + gamma)
        target.observe(1, 1 + gamma, verified)
        lengths.passed(verified)
        yield gamma, drafted, verified


@pytest.mark.parametrize("chance", [0.95, 0.99])
def test_what_pays_is_drafted_long(chance):
    acceptance, target, draft = Acceptance(), Costs(), PassCost(2e-3, 0.0, 0.1e-3)
    found = list(rounds(Lengths("draft", acceptance, target), acceptance, target, draft, chance, 300))
    assert sum(gamma for gamma, *_ in found[-50:]) / 50 > 5


def test_what_does_not_pay_is_off_within_a_few_passes_and_tried_again_for_next_to_nothing():
    acceptance, target, draft = Acceptance(), Costs(), PassCost(5e-3, 0.0, 0.1e-3)
    found = list(rounds(Lengths("draft", acceptance, target), acceptance, target, draft, 0.05, 3000))
    late = found[20:]
    lost = sum(drafted + verified - TARGET.seconds(1, 1) for gamma, drafted, verified in late if gamma)
    assert 0 < sum(gamma > 0 for gamma, *_ in late) < 60
    assert lost <= 2 * TRIALS * sum(drafted + verified for _, drafted, verified in late)


def test_a_trial_finds_out_that_drafts_pay_again():
    acceptance, target, draft = Acceptance(), Costs(), PassCost(2e-3, 0.0, 0.1e-3)
    lengths = Lengths("draft", acceptance, target)
    assert sum(gamma for gamma, *_ in list(rounds(lengths, acceptance, target, draft, 0.0, 300))[-50:]) < 20
    again = list(rounds(lengths, acceptance, target, draft, 1.0, 20_000))
    assert sum(gamma for gamma, *_ in again[-50:]) / 50 > 5
