"""What servers are asked, as a plan foretells it and a report shows it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from qualgate.pipeline.spending import Foreseen, Spending
from qualgate.records import ArmFootprint, ArmSpec, Budget, Served, Spent
from qualgate.report.spending import foreseen_as_body, foreseen_as_lines, spent_lines

MOST = Spent(requests=10, prompt=5000, answer=1000, cost=2.5)
SEEN = Spent(requests=12, prompt=3000, answer=400, cost=1.25)


def foreseen(expected: Spent | None = SEEN, run: str = "run-1", **budget) -> Foreseen:
    arms = (Spending(arm="baseline", most=MOST, expected=SEEN), Spending(arm="v", most=MOST, expected=expected))
    return Foreseen(budget=Budget(currency="EUR", **budget), arms=arms, run=run)


def test_a_plan_tells_the_most_what_is_expected_and_whether_the_budget_lets_it():
    most, expected, budget = foreseen_as_lines(foreseen(max_tokens=6000))
    assert most.startswith("Servers: at most 12,000 tokens (10,000 read, 2,000 said) in 20 requests, 5.00 EUR, with")
    assert expected == (
        "Expected of servers: 6,800 tokens (6,000 read, 800 said) in 24 requests, 2.50 EUR, as run run-1 took for each "
        "answer."
    )
    assert budget.startswith("Budget: 6,000 tokens. It does not reach for 6,800 tokens: the run would stop incomplete")
    assert (
        foreseen_as_lines(foreseen(max_tokens=6800, max_cost=3.0))[-1]
        == "Budget: 6,800 tokens and 3.00 EUR. It reaches if answers are as long as in that run."
    )
    assert foreseen_as_lines(foreseen(max_tokens=12_000))[-1] == "Budget: 12,000 tokens. It reaches."
    assert "does not reach for 2.50 EUR" in foreseen_as_lines(foreseen(max_cost=2.0))[-1]


def test_without_an_earlier_run_only_the_most_is_known():
    lines = foreseen_as_lines(foreseen(None, "", max_tokens=6000))
    assert lines[1] == "Budget: 6,000 tokens. It reaches as long as answers are shorter."
    assert foreseen_as_lines(foreseen(None, ""))[1:] == []
    body = foreseen_as_body(foreseen(None, "", max_tokens=6000))
    assert body is not None
    assert body["expected"] is None
    assert body["at_most"] == {"tokens": 12_000, "requests": 20, "prompt": 10_000, "answer": 2_000, "cost": 5.0}
    assert body["arms"][0]["expected"]["tokens"] == 3400
    assert foreseen_as_lines(Foreseen(budget=Budget())) == []
    assert foreseen_as_body(Foreseen(budget=Budget())) is None


def test_a_judge_is_told_beside_the_arms_and_counts_with_them():
    judge = Spending(arm="the judge", most=MOST, expected=None)
    found = Foreseen(budget=Budget(max_tokens=7000), judge=judge)
    most, of_judge, budget = foreseen_as_lines(found)
    assert most.startswith("Servers: at most 6,000 tokens")
    assert of_judge.startswith("Of these the judge: at most 6,000 tokens (5,000 read, 1,000 said) in 10 requests")
    assert budget == "Budget: 7,000 tokens. It reaches."
    with_arms = replace(foreseen(), judge=judge)
    assert with_arms.most.tokens == 18_000
    assert with_arms.expected is None  # of the judge nobody knows
    body = foreseen_as_body(with_arms)
    assert body is not None
    assert (body["judge"]["at_most"]["tokens"], body["judge"]["expected"]) == (6000, None)
    [told] = spent_lines([], SEEN)
    assert told.endswith("included: the judge 3,400 tokens (3,000 read, 400 said) in 12 requests, 1.25")


def line(name: str, spent: Spent | None) -> Any:
    size = ArmFootprint(bytes_on_disk=0, bytes_in_memory=0, quantized_bytes=0, effective_bits=0.0, spent=spent)
    spec = ArmSpec(name=name, model="m", served=Served(endpoint="http://x/v1"))
    return SimpleNamespace(name=name, footprint=size, spec=spec)


def test_a_report_tells_each_arm_and_all_and_what_no_server_counted():
    mine = Spent(requests=2, prompt=10, answer=4, estimated=3, cost=0.5, currency="EUR")
    others = line("v", Spent(requests=1, prompt=5, answer=1)), line("own", None)
    [told] = spent_lines([line("baseline", mine), *others])
    assert told == (
        "asked of servers, probes and what was tried again included: baseline 14 tokens (10 read, 4 said) in 2 "
        "requests, 0.5 EUR; v 6 tokens (5 read, 1 said) in 1 request; in all 20 tokens (15 read, 5 said) in 3 "
        "requests, 0.5 EUR; 3 tokens of these no server counted credibly: they are taken at the most they can be"
    )
    assert spent_lines([line("own", None)]) == ()
