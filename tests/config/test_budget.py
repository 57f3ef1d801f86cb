"""Budgets and prices of what servers are asked, as a gate file says them."""

from __future__ import annotations

import pytest

from qualgate.records import Budget, Price
from tests.config.gate_files import FAULTS, changed

FILE = """\
version: 1
baseline: {{endpoint: "http://127.0.0.1:1/v1", model: m{0}}}
variants: {{v: {{endpoint: "http://127.0.0.1:2/v1", model: m{1}}}}}
evalsets: [arithmetic]
gate: {{rules: [{{metric: exact_match, max_drop: 0.02}}]}}
{2}
"""


def test_a_budget_holds_for_the_run_and_a_price_for_each_arm(load):
    budget = "budget: {max_tokens_total: 2000000, max_cost: 5, currency: EUR, price: {prompt: 2}}"
    gate = load(FILE.format(", requests_per_minute: 600", ", price: {prompt: 0.15, answer: 0.6}", budget))
    assert gate.budget == Budget(max_tokens=2_000_000, max_cost=5.0, currency="EUR")
    [variant] = gate.variants
    assert gate.baseline.served is not None
    assert variant.served is not None
    assert gate.baseline.served.price == Price(prompt=2.0)
    assert variant.served.price == Price(prompt=0.15, answer=0.6)
    assert Price(prompt=0.15, answer=0.6).of(1_000_000, 500_000) == pytest.approx(0.45)
    assert (gate.baseline.served.requests_per_minute, variant.served.requests_per_minute) == (600, 0)


def test_patience_is_every_arms_and_needs_no_limit(load):
    gate = load(FILE.format("", ", passing: [520, 404]", "budget: {patience: 30m}"))
    [variant] = gate.variants
    assert gate.baseline.served is not None
    assert variant.served is not None
    assert (gate.baseline.served.patience, variant.served.patience) == (1_800.0, 1_800.0)
    assert (gate.baseline.served.passing, variant.served.passing) == ((), (520, 404))
    assert gate.budget == Budget()


def test_without_a_budget_nothing_is_bounded(load):
    gate = load(FILE.format("", "", ""))
    assert gate.budget == Budget()
    assert gate.baseline.served is not None
    assert gate.baseline.served.price is None
    assert gate.baseline.served.patience == 600.0


@pytest.mark.parametrize(("budget", "arm", "said"), FAULTS["budgets"])
def test_what_no_budget_can_be_is_refused(faults, budget, arm, said):
    assert said in "".join(message for _, message in faults(FILE.format("", arm, budget)))


@pytest.mark.parametrize(
    ("baseline", "more", "said"),
    [
        ("{model: reference}", "budget: {max_tokens_total: 5}\n", "no arm here is served"),
        ("{model: reference, price: {prompt: 1}}", "", "`price` goes with `endpoint` or `serve`"),
        ("{model: reference, requests_per_minute: 5}", "", "`requests_per_minute` goes with `endpoint` or `serve`"),
    ],
)
def test_arms_that_are_generated_here_have_no_budget(faults, baseline, more, said):
    assert said in "".join(message for _, message in faults(changed(2, f"baseline: {baseline}") + more))
