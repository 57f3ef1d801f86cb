"""Scores that nobody could give: what is decided is what would be decided however they had come out."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from qualgate.gate.decide import decide
from qualgate.gate.early import lay_out
from qualgate.records import CALL_UNREAD, Case, EarlyStop, Policy, Rule, RunEvidence, UnitEvidence
from tests.gate.planted import arm, of, run, with_unit, with_units

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
    for side, at in places:
        unit = (evidence.baseline if side == "baseline" else evidence.variants[0]).units[at]
        unsaid = dict.fromkeys(unit.scorers, why) if why else {}
        values = unit.values | dict.fromkeys(unit.scorers)
        evidence = with_unit(evidence, side, at, values=values, unsaid=unsaid)
    return evidence


def with_values(evidence: RunEvidence, places: list[tuple[str, int]], values: tuple[float, ...]) -> RunEvidence:
    """The same scores, given."""
    for (side, at), value in zip(places, values, strict=True):
        unit = (evidence.baseline if side == "baseline" else evidence.variants[0]).units[at]
        evidence = with_unit(evidence, side, at, values=unit.values | dict.fromkeys(unit.scorers, value))
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
    evidence = of(evidence.baseline, *evidence.variants, metrics=SETS)
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
    for seed in range(3):
        check(name, seed, 2 + seed % 2)


@pytest.mark.proof
@pytest.mark.parametrize("name", POLICIES)
def test_so_it_is_of_many_runs(name):
    many = 60 if name == "any repeat" else 30  # one of whose answers is right is rarely lost
    words = [check(name, seed, 2 + seed % 4) for seed in range(many)]
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


def without_wrapper(*places: tuple[str, int]) -> RunEvidence:
    """The declared dialect does not read the calls at these places, and another does."""
    return with_nulls(tools(), [*places], CALL_UNREAD)


def weak() -> RunEvidence:
    """The baseline is right on too little, unless what nobody could say of it were taken for right."""
    evidence = run(n=400, right=0.225, metrics=SETS)
    wrong = [at for at, unit in enumerate(evidence.baseline.units) if not unit.values["tool_call.valid"]][:6]
    return with_nulls(evidence, [("baseline", at) for at in wrong])


LOST_BOTH = (*nulls("baseline", 40), *nulls("variant", 40, start=40))


@pytest.mark.parametrize(
    ("evidence", "max_drop", "word", "reason"),
    [
        (with_nulls(tools(), nulls("variant", 4), "no_sandbox"), 0.05, "approve",
         "the scorer could not say for 4 of 400 cases (no_sandbox 4): taken at their worst"),
        (with_nulls(tools(), nulls("baseline", 4)), 0.05, "approve", ""),
        (with_nulls(tools(), nulls("variant", 40), "tests"), 0.05, "undecided",
         "could not say for 40 of 400 cases (tests 40): taken at their worst nothing is proven"),
        (with_nulls(tools(), nulls("variant", 40) + nulls("baseline", 40), "tests"), 0.05, "undecided",
         "could not say for 40 of 400 cases (tests 40): taken at their worst nothing is proven"),
        (with_nulls(tools(), nulls("variant", 400)), 0.05, "undecided", "could not say for 400 of 400 cases"),
        (with_nulls(tools(lost=0.3), nulls("variant", 5)), 0.05, "block",
         "could not say for 5 of 400 cases: taken at their best, the baseline wrong and the variant right"),
        (weak(), 0.04, "undecided", "would not show"),
        (without_wrapper(*nulls("variant", 40)), 0.05, "block",
         "int4: 40 answers hold a call that the declared dialect does not read and another does"),
        (without_wrapper(*nulls("variant", 1)), 0.05, "approve",  # one in 400 is within five points
         "int4: 1 answer holds a call that the declared dialect does not read"),
        (without_wrapper(*nulls("variant", 1)), 0.01, "undecided", ""),
        (without_wrapper(*LOST_BOTH), 0.05, "undecided", ""),  # of the baseline it is taken for right by no block
    ],
)  # fmt: skip
def test_what_nobody_could_say_is_taken_at_its_worst_and_the_verdict_says_so(evidence, max_drop, word, reason):
    found, reasons = said(evidence, max_drop=max_drop)
    assert (found, reason in reasons) == (word, True), reasons


@pytest.mark.parametrize("wrong", [400, 300])
def test_a_parser_that_reads_neither_arms_calls_says_nothing_of_the_variant(wrong):
    word, reasons = said(without_wrapper(*nulls("baseline", wrong), *nulls("variant", 400)))
    assert (word, "another does" in reasons) == ("undecided", False)
