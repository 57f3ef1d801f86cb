"""Rules on tags and tasks, on any or all of the repeats, and on relative drops: foretold as the gate then decides them.

The truth is drawn here answer by answer, and judged by the gate's own `measure`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import sqrt
from typing import Literal

import numpy as np
import pytest
import yaml

from qualgate.gate.planning.assumed import REPEAT_CORRELATION, Assumed, seen_in
from qualgate.gate.planning.outcomes import Drawn, decide_relative, draw
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import foreseeable, plan_policy
from qualgate.gate.planning.rule_lines import as_line
from qualgate.records import Case, Evalset, Policy, Rule, UnitEvidence, UnitKey
from qualgate.stats.paired import compare
from qualgate.stats.relative import compare_relative
from tests.gate.planted import arm, of, with_units

METRIC = ("exact_match",)
ODD, EVEN = ("task:a", "tag:odd"), ("task:a", "tag:even")


@pytest.fixture
def no_bounds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """P-values alone: what a comparison would show beside them takes ten times as long."""
    compare._excluded.cache_clear()
    monkeypatch.setattr(compare, "_crossing", lambda chance, start, *more, **named: start)
    yield
    compare._excluded.cache_clear()


def answers(
    one: PlannedSet, cells: np.ndarray, alike: dict[int, float], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """(baseline, variant) of every answer, question after question. alike: share of a cluster's answers that copy
    one outcome, by its questions."""
    found = []
    for size in one.clusters or (1,) * one.cases:
        count = size * one.repeats
        outcomes = rng.choice(4, size=count, p=cells)
        outcomes[rng.random(count) < alike.get(size, 0.0)] = rng.choice(4, p=cells)
        found.append(outcomes)
    outcomes = np.concatenate(found)  # lost, gained, both right, both wrong
    return np.isin(outcomes, (0, 2)).astype(float), np.isin(outcomes, (1, 2)).astype(float)


def labelled(odd: int, even: int, **changes) -> PlannedSet:
    return PlannedSet(name="a", metrics=METRIC, cases=odd + even, labels=(ODD,) * odd + (EVEN,) * even, **changes)


def test_clusters_that_labels_divide_are_drawn_together_and_each_slice_sees_its_own_part() -> None:
    clusters = (3,) * 20 + (1,) * 10
    marks = (ODD, ODD, EVEN) * 10 + (EVEN, EVEN, ODD) * 10 + (ODD,) * 10
    one = PlannedSet(name="a", metrics=METRIC, cases=70, clusters=clusters, labels=marks, repeats=2)
    told, cells = Assumed(correlation=0.3, repeat_correlation=0.5), np.array([0.1, 0.05, 0.6, 0.25])
    share = {3: sqrt((1 * 0.5 + 2 * 2 * 0.3) / 5), 1: sqrt(0.5)}  # the mean over the pairs of answers of a cluster
    views = [None, frozenset({ODD}), frozenset({EVEN})]
    draws, homes = 600, np.repeat(np.arange(30), np.array(clusters) * 2)
    found = draw(one, views, cells, told, draws, np.random.default_rng(0), repeats=2)
    mine = [np.ones(140, bool), *(np.repeat([mark == other for mark in marks], 2) for other in (ODD, EVEN))]
    rng = np.random.default_rng(1)
    sums = np.zeros((3, draws, 6))
    for row in range(draws):
        before, after = answers(one, cells, share, rng)
        for view, kept in enumerate(mine):
            lost, gained, right, size = (
                np.bincount(homes[kept], weights=what[kept], minlength=30)
                for what in (before > after, after > before, before == 1, np.ones(140))
            )
            d = gained - lost
            sums[view, row] = [x.sum() for x in (lost, gained, right, d * d, d * size, lost + gained > 0)]
    fields = ("lost", "gained", "right", "squares", "weighted", "flipped")
    for view in range(3):
        for index, field in enumerate(fields):
            seen, drawn = sums[view, :, index], getattr(found[view], field)
            assert drawn.mean() == pytest.approx(seen.mean(), abs=4 * seen.std() * sqrt(2 / draws)), (view, field)
            assert drawn.std() == pytest.approx(seen.std(), rel=0.15), (view, field)
    together = np.corrcoef(found[1].lost, found[2].lost)[0, 1]
    assert together == pytest.approx(np.corrcoef(sums[1, :, 0], sums[2, :, 0])[0, 1], abs=0.16)
    assert together > 0.2, "slices of one cluster err together"


def test_relative_drops_of_drawn_tables_are_decided_as_the_gate_decides_them(no_bounds: None) -> None:
    rng, n = np.random.default_rng(2), 450
    right = rng.binomial(n, 0.5, 40)
    lost = rng.binomial(right, rng.choice([0.02, 0.05, 0.3], 40))
    gained = rng.binomial(n - right, 0.02)
    within, beyond = decide_relative(Drawn.of_cases(lost, gained, right), Counter({1: n}), 0.12, 0.05, 0.025)
    differing = 0
    for row in range(40):
        base = np.arange(n) < right[row]
        other = base.copy()
        other[: lost[row]], other[n - gained[row] :] = False, True
        result = compare_relative(base, other, np.arange(n), 0.12, 0.05)
        differing += (within[row], beyond[row]) != (result.p_within <= 0.05, result.p_beyond <= 0.025)
    assert {bool(one) for one in within} == {bool(one) for one in beyond} == {True, False}
    assert differing <= 1, "only margins of about the same rate share a decision"


@pytest.mark.parametrize("repeats", ["any", "all"])
def test_any_and_all_of_the_repeats_are_one_outcome_a_question(repeats: Literal["any", "all"]) -> None:
    """As a question that is asked once and whose answer changes as often."""
    once, thrice = (PlannedSet(name="a", metrics=METRIC, cases=150, repeats=number) for number in (1, 3))
    rule, key = Rule(metric="exact_match", max_drop=0.08, repeats=repeats), (f"exact_match {repeats}", "a")
    told = Assumed(disagreement={key: 0.1}, baseline={key: 0.9})
    planned = plan_policy([thrice], Policy(rules=(rule,)), told, search=False)
    alone = Assumed(default_disagreement=0.1, default_baseline=0.9)
    single = plan_policy([once], Policy(rules=(Rule(metric="exact_match", max_drop=0.08),)), alone, search=False)
    assert planned.approve == pytest.approx(single.approve, abs=0.03)
    assert (planned.rules[0].n, planned.rules[0].clusters) == (150, None)
    assert "like one answer" in plan_policy([thrice], Policy(rules=(rule,)), search=False).source
    assert "like one answer" not in planned.source


def test_more_answers_to_a_case_tell_the_less_the_more_they_are_alike() -> None:
    policy = Policy(rules=(Rule(metric="exact_match", max_drop=0.025),))

    def approve(repeats: int, alike: float) -> float:
        one = PlannedSet(name="a", metrics=METRIC, cases=450, repeats=repeats)
        told = Assumed(repeat_correlation=alike, default_disagreement=0.1, default_baseline=0.7)
        found = plan_policy([one], policy, told, search=False, draws=1_500)
        assert found.rules[0].n == 450
        return found.approve

    single, apart, same = approve(1, 0.0), approve(4, 0.0), approve(4, 0.95)
    assert apart > single + 0.3
    assert same < single + 0.1


@pytest.mark.proof
def test_a_tag_that_is_too_small_is_foretold_no_proof_and_is_told_how_many_more_of_it_would_do() -> None:
    one = labelled(20, 380)
    policy = Policy(rules=(Rule(metric="exact_match", max_drop=0.04),
                           Rule(metric="exact_match", where="tag:odd", max_drop=0.08)))  # fmt: skip
    planned = plan_policy([one], policy)
    assert planned.approve < 0.4
    change = next(change for change in planned.changes if change.kind == "more cases")
    (grown,) = change.sets
    odd = grown.labels.count(ODD)
    assert grown.labels.count(EVEN) == 380, "the label alone has to grow"
    assert change.lines == (f"evalset a: {380 + odd} cases instead of 400, of them {odd} with tag:odd instead of 20",)
    assert plan_policy(change.sets, policy, search=False, seed=9).approve >= 0.8


def test_no_rule_of_quality_is_left_out() -> None:
    rules = (
        Rule(metric="exact_match", max_drop=0.05),
        Rule(metric="exact_match", scope="tag:odd", max_relative_drop=0.1),
        Rule(metric="exact_match", max_drop=0.05, repeats="all", tier="supporting"),
        Rule(metric="format.finished", where="task:a", max_drop=0.05),
        Rule(metric="memory.weights", max_ratio=0.5),
        Rule(metric="json.valid", max_drop=0.1),
    )
    policy, out = foreseeable([labelled(30, 30)], Policy(rules=rules))
    assert policy is not None
    assert (policy.rules, out) == (rules[:5], (rules[5].id,)), "no set declares it"


def test_cases_in_quarantine_keep_their_label_and_prove_nothing() -> None:
    cases = [Case(evalset="a", body={"id": str(n), "tags": ["rare" if n < 2 else "odd"]}) for n in range(100)]
    evalset = Evalset(name="a", version="1", sha256="", metrics=METRIC, cases=tuple(cases))
    one = PlannedSet.of(evalset, quarantined=frozenset({"0", "1"}))
    assert (one.cases, one.quarantined, set(one.labels)) == (98, 2, {("task:a", "tag:odd")})
    policy = Policy(rules=(Rule(metric="exact_match", max_drop=0.1), Rule(metric="exact_match", where="tag:rare",
                                                                          max_drop=0.1)))  # fmt: skip
    planned = plan_policy([one], policy, search=False, draws=200)
    assert (planned.approve, planned.rules[1].note) == (0.0, "none of its cases counts")


@pytest.mark.parametrize(
    "rule",
    [
        Rule(metric="exact_match", where="tag:yes", max_relative_drop=0.125, repeats="any"),
        Rule(metric="exact_match", where='task:a "b": c\u2028\U0001f600', max_drop=0.05, tier="supporting"),
        Rule(metric="exact_match", scope="tag:form: x", where="task:t", max_drop=0.05, repeats="all"),
        Rule(metric="exact_match", scope="task", max_drop=0.05),
        Rule(metric="exact_match", evalset='a: "b" # c', max_drop=0.05, tier="advisory"),
    ],
)
def test_lines_of_such_rules_are_read_back_as_they_are_meant(rule: Rule) -> None:
    found = yaml.safe_load(as_line(rule))
    (label, value), *_ = found.pop("where", {"": ""}).items()
    where = f"{label}:{value}" if label else None
    assert Rule(scope=found.pop("per", "pooled"), where=where, **found) == rule


# ---------------------------------------------------------------------------------------- what an earlier run tells


def earlier(alike: float, *, questions: int = 300, repeats: int = 4, seed: int = 0):
    one = PlannedSet(name="code", metrics=METRIC, cases=questions, repeats=repeats)
    rng = np.random.default_rng(seed)
    before, after = answers(one, np.array([0.08, 0.08, 0.6, 0.24]), {1: sqrt(alike)}, rng)
    evidence = of(*(arm(name, {("code", "exact_match"): side}) for name, side in (("baseline", before), ("v", after))),
                  metrics={"code": METRIC})  # fmt: skip

    def repeated(units):
        for number, unit in enumerate(units):
            key = UnitKey(unit.key.arm, "code", str(number // repeats), number % repeats)
            yield UnitEvidence(key=key, case_hash="", status="done", values=unit.values)

    for side in ("baseline", "variant"):
        evidence = with_units(evidence, side, repeated)
    return evidence, before.reshape(questions, repeats), after.reshape(questions, repeats)


def test_an_earlier_run_with_repeats_tells_how_alike_answers_are_and_what_any_and_all_of_them_give() -> None:
    for alike in (0.0, 0.5):
        evidence, before, after = earlier(alike)
        seen = seen_in(evidence, 4)
        assert alike <= seen.repeat_correlation <= alike + 0.15, "an upper bound, and near"
        for word, over in (("any", np.max), ("all", np.min)):
            base, other = over(before, axis=1), over(after, axis=1)
            assert seen.baseline[f"exact_match {word}", "code"] == pytest.approx(base.mean())
            assert seen.disagreement[f"exact_match {word}", "code"] == (np.sum(base != other) + 1) / 301
        assert "like one answer" not in seen.source
    other = seen_in(evidence, 8)
    assert other.baseline["exact_match any", "code"] == other.baseline["exact_match", "code"]
    assert "like one answer" in other.source
    assert ("exact_match any", "code") not in seen_in(evidence).baseline


def test_few_changed_answers_do_not_lower_what_is_assumed_of_repeats() -> None:
    assert seen_in(earlier(0.0, questions=12)[0], 4).repeat_correlation >= REPEAT_CORRELATION
