"""What a reason says beyond a rule's numbers."""

from __future__ import annotations

import pytest

from qualgate.gate.verdict import decide_plain
from qualgate.records import Policy, Rule
from tests.gate.planted import run


@pytest.mark.parametrize(
    ("cases", "enough"),
    [(5, "36 would, if none flips"), (35, "36 would, if none flips")],
)
def test_a_trial_of_few_cases_foretells_no_more_than_can_be_known_of_them(cases: int, enough: str) -> None:
    """A forecast that allowed for a flip that nobody saw would ask 162 of five cases, and 80 were enough."""
    policy = Policy(rules=(Rule(metric="exact_match", evalset="code", max_drop=0.08),))
    (verdict,) = decide_plain(run(n=cases, right=1.0), policy)
    said = f"{cases} cases cannot exclude a loss of 8 points; {enough} (0 lost, 0 gained)"
    assert verdict.reasons[0] == f"exact_match [code]: {said}"
