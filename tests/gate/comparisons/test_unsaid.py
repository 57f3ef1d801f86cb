"""Scores that nobody could give: what is decided is what would be decided however they had come out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from qualgate.gate.decide import decide
from qualgate.gate.early import lay_out
from qualgate.records import CALL_UNREAD, Case, EarlyStop, Policy, Rule, RunEvidence, UnitEvidence
from tests.gate.planted import arm, of, run, with_units

SETS = {"tools": ("tool_call.valid",)}
POLICIES = {
    "exact": Policy(rules=(Rule(metric="tool_call.valid", max_drop=0.08),)),
    "relative": Policy(rules=(Rule(metric="tool_call.valid", max_relative_drop=0.08),)),
    "clusters": Policy(rules=(Rule(metric="tool_call.valid", max_drop=0.1),)),
    "any repeat": Policy(rules=(Rule(metric="tool_call.valid", max_drop=0.1, repeats="any"),)),
    "every repeat": Policy(rules=(Rule(metric="tool_call.valid", max_drop=0.1, repeats="all"),)),
    "early": Policy(rules=(Rule(metric="tool_call.valid", max_drop=0.1),), stop=EarlyStop(seed=1)),
}


def with_nulls(evidence: RunEvidence, places: list[tuple[str, int]], why: str = "") -> RunEvidence:
    """The scores at these places (side, unit) were not given."""
    for side in ("baseline", "variant"):
        at = {place for of_side, place in places if of_side == side}

        def change(units: tuple[UnitEvidence, ...], at: set[int] = at) -> Iterator[UnitEvidence]:
            for place, unit in enumerate(units):
                told = dict.fromkeys(unit.scorers, why) if why else {}
                nulls = dict.fromkeys(unit.scorers)
                yield replace(unit, values=unit.values | nulls, unsaid=told) if place in at else unit

        evidence = with_units(evidence, side, change)
    return evidence


def with_values(evidence: RunEvidence, places: list[tuple[str, int]], values: tuple[float, ...]) -> RunEvidence:
    """The same scores, given."""
    for (side, at), value in zip(places, values, strict=True):
        evidence = with_units(
            evidence,
            side,
            lambda units, at=at, value=value: (
                replace(unit, values=unit.values | dict.fromkeys(unit.scorers, value)) if place == at else unit
                for place, unit in enumerate(units)
            ),
        )
    return evidence


def drawn(name: str, g: np.random.Generator) -> tuple[RunEvidence, Policy]:
    """A run near the margin, so that a few scores decide it."""
    policy = POLICIES[name]
    n = int(g.choice([60, 80, 120]))
    loss = float(g.choice([0.0, 0.0, 0.03, 0.12, 0.25, 0.3]))
    base = (g.random(n) < g.choice([0.5, 0.8, 1.0])).astype(float)
    other = np.where(g.random(n) < loss, 0.0, base)
    other = np.where(g.random(n) < 0.02, 1.0, other)
    outcomes = {("tools", "tool_call.valid"): base}, {("tools", "tool_call.valid"): other}
    evidence = of(arm("baseline", outcomes[0], 1), arm("int4", outcomes[1], 2), metrics=SETS)
    for side in ("baseline", "variant"):
        evidence = with_units(evidence, side, lambda units: (placed(name, at, unit) for at, unit in enumerate(units)))
    keys = [unit.key for one in (evidence.baseline, *evidence.variants) for unit in one.units]
    evidence = replace(evidence, expected=tuple(keys))
    if name == "early":
        cases = [Case(evalset="tools", body={"id": unit.key.case_id}) for unit in evidence.baseline.units]
        stop, _ = lay_out(policy, cases)
        policy = replace(policy, stop=stop)
    return evidence, policy


def placed(name: str, at: int, unit: UnitEvidence) -> UnitEvidence:
    if name == "clusters":
        return replace(unit, cluster=f"c{at // 2}")
    if name.endswith("repeat"):
        key = replace(unit.key, case_id=f"case {at // 2}", repeat=at % 2)
        return replace(unit, key=key, case_hash=f"sha {at // 2}")
    return unit


def check(name: str, seed: int, most: int) -> str:
    """The word: approve just where every way the nulls may have come out approves, block only where each blocks."""
    g = np.random.default_rng([seed, len(name), ord(name[0])])
    evidence, policy = drawn(name, g)
    n = len(evidence.baseline.units)
    places = [(str(g.choice(["baseline", "variant", "variant"])), int(at)) for at in g.integers(n, size=most)]
    places = list(dict.fromkeys(places))
    (verdict,) = decide(with_nulls(evidence, places), policy).verdicts
    words = {
        decide(with_values(evidence, places, values), policy).verdicts[0].word
        for values in product((0.0, 1.0), repeat=len(places))
    }
    assert (verdict.word == "approve") == (words == {"approve"}), (name, seed, verdict.word, words, places)
    assert verdict.word != "block" or words == {"block"}, (name, seed, words, places)
    return verdict.word


@pytest.mark.parametrize("name", POLICIES)
def test_a_verdict_is_what_every_way_the_nulls_may_have_come_out_gives(name):
    for seed in range(4):
        check(name, seed, 2 + seed % 2)


@pytest.mark.proof
@pytest.mark.parametrize("name", POLICIES)
def test_so_it_is_of_many_runs(name):
    words = [check(name, seed, 2 + seed % 4) for seed in range(60)]
    seen = {"block", "undecided"} if name == "every repeat" else {"approve", "block", "undecided"}
    assert seen <= set(words), words  # so few cases, answered alike each time, prove no absence of a loss


def said(evidence: RunEvidence, *, max_drop: float = 0.05) -> tuple[str, str]:
    """(word, every reason) by one rule on valid tool calls."""
    policy = Policy(rules=(Rule(metric="tool_call.valid", max_drop=max_drop),))
    (verdict,) = decide(evidence, policy).verdicts
    return verdict.word, "\n".join(verdict.reasons)


def tools(n: int = 400, lost: float = 0.0) -> RunEvidence:
    return run(n=n, right=0.95, lost=lost, metrics=SETS)


def nulls(side: str, count: int, start: int = 0) -> list[tuple[str, int]]:
    return [(side, at) for at in range(start, start + count)]


def test_a_few_nulls_approve_and_it_is_said_how_they_were_taken():
    word, reasons = said(with_nulls(tools(), nulls("variant", 4), "no_sandbox"))
    assert word == "approve"
    assert "the scorer could not say for 4 of 400 cases (no_sandbox 4): taken at their worst" in reasons
    assert said(with_nulls(tools(), nulls("baseline", 4)))[0] == "approve"


def test_many_nulls_neither_approve_nor_block():
    for place in (nulls("variant", 40), nulls("variant", 40) + nulls("baseline", 40)):
        word, reasons = said(with_nulls(tools(), place, "tests"))
        assert word == "undecided"
        assert "could not say for 40 of 400 cases (tests 40): taken at their worst nothing is proven" in reasons
    word, reasons = said(with_nulls(tools(), nulls("variant", 400)))
    assert word == "undecided"
    assert "could not say for 400 of 400 cases" in reasons


def test_a_loss_beside_nulls_is_a_loss():
    word, reasons = said(with_nulls(tools(lost=0.3), nulls("variant", 5)))
    assert word == "block"
    assert "could not say for 5 of 400 cases: taken at their best, the baseline wrong and the variant right" in reasons


def test_a_baseline_that_nobody_could_score_is_none_that_could_lose_anything():
    """Taken for right it would be strong enough."""
    evidence = run(n=400, right=0.225, metrics=SETS)
    wrong = [at for at, unit in enumerate(evidence.baseline.units) if not unit.values["tool_call.valid"]][:6]
    word, reasons = said(with_nulls(evidence, [("baseline", at) for at in wrong]), max_drop=0.04)
    assert word == "undecided"
    assert "would not show" in reasons


def test_a_lost_wrapper_counts_as_lost_where_the_parser_reads_the_baselines_calls():
    word, reasons = said(with_nulls(tools(), nulls("variant", 40), CALL_UNREAD))
    assert word == "block"
    assert "int4: 40 answers hold a call that the declared dialect does not read and another does" in reasons
    word, reasons = said(with_nulls(tools(), nulls("variant", 1), CALL_UNREAD))
    assert word == "approve", "one in 400 is within five points"
    assert "int4: 1 answer holds a call that the declared dialect does not read" in reasons
    assert said(with_nulls(tools(), nulls("variant", 1), CALL_UNREAD), max_drop=0.01)[0] == "undecided"


def test_a_parser_that_reads_neither_arms_calls_says_nothing_of_the_variant():
    for wrong in (400, 300):
        places = nulls("baseline", wrong) + nulls("variant", 400)
        word, reasons = said(with_nulls(tools(), places, CALL_UNREAD))
        assert word == "undecided"
        assert "another does" not in reasons


def test_a_baseline_that_lost_its_wrapper_too_is_taken_for_right_by_no_block():
    places = nulls("baseline", 40) + nulls("variant", 40, start=40)
    assert said(with_nulls(tools(), places, CALL_UNREAD))[0] == "undecided"
