"""A variant that gets one more answer wrong is judged no better: of right or wrong answers that stand by themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule
from tests.depth import examples
from tests.verification.verdicts import monotone
from tests.verification.verdicts.monotone import BEST_FIRST, Answers, evidence_of


def _answers(n: int, wrong: int, lost: int, gained: int) -> Answers:
    """The baseline has its last `wrong` cases wrong; the variant its first `lost`, and gains of the baseline's last."""
    right, gained = n - min(wrong, n // 2), min(gained, wrong, n // 2)
    return Answers(
        baseline=[float(case < right) for case in range(n)],
        variant=[float(lost <= case < right or case >= n - gained) for case in range(n)],
    )


ANSWERS = st.builds(_answers, st.sampled_from((20, 50, 80)), st.integers(0, 15), st.integers(0, 5), st.integers(0, 5))
STEPS = 8
RULES = st.builds(
    lambda tier, scope, bound, limit: Rule(metric="exact_match", tier=tier, scope=scope, **{bound: limit}),
    st.sampled_from(("critical", "critical", "supporting", "advisory")),
    st.sampled_from(("pooled", "evalset", "task", "tag:kind")),
    st.sampled_from(("max_drop", "max_drop", "max_relative_drop")),
    st.sampled_from((0.05, 0.1, 0.15)),
)
FIRST = RULES.filter(lambda rule: rule.tier == "critical")


@examples(500)
@given(
    st.lists(ANSWERS, min_size=1, max_size=2),
    st.tuples(FIRST, st.lists(RULES, max_size=1)),
    st.sampled_from((0.01, 0.05, 0.1)),
    st.integers(1, 4),
)
def test_answers_turned_from_right_to_wrong_one_by_one_never_improve_the_verdict(sets, rules, alpha, gains_at):
    policy, first, ranks = Policy(rules=(rules[0], *rules[1]), alpha=alpha), sets[0], []
    for step in range(STEPS):
        ranks.append(BEST_FIRST.index(decide(evidence_of([first, *sets[1:]], "exact_match"), policy).exit))
        if not (scored := [case for case, value in enumerate(first.variant) if value]):
            break
        first = first.turned(scored[-1 if step % gains_at == 0 else 0])  # what was gained, or what both had right
    assert ranks == sorted(ranks)


@pytest.mark.parametrize(
    ("codes", "moved", "met"),
    [((12, 0), 0.0, False), ((10, 12), 0.0, False), ((0, 0), 0.2, False), ((0, 12), 0.05, None), ((12, 10), 0.0, None)],
)
def test_the_proof_misses_its_goal_where_a_verdict_or_a_bound_improves(monkeypatch, codes, moved, met):
    monkeypatch.setattr(monotone, "QUICK", 12)
    monkeypatch.setattr(monotone, "outcome", lambda draw: monotone.Outcome(codes=codes, moved=moved))
    rounds, (row,) = monotone.measure(quick=True)
    assert row["met"] is met
    assert bool(rounds) == (met is False)
