"""Unfinished answers (cut, empty, not found by a filter): the baseline's decide nothing, the variant's bar an approval
and explain a block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule, RunEvidence, Verdict
from tests.gate import four, planted
from tests.tables import each_row

MATCH = Rule(metric="exact_match", max_drop=0.05)
CUT = {"truncated": True, "finish_reason": "length", "tokens": 32}
NO_END = {"finish_reason": "dead_end", "finished": False}
NO_TEXT = {"unanswered": "empty", "tokens": None}
SWALLOWED = {"unanswered": "empty", "tokens": 200}
EMPTY = {"unanswered": "empty", "tokens": 1}
UNFILTERED = {"unanswered": "unfiltered"}
CHEAPER = {"baseline": 10.0, "int4": 8.0, "drafted": 7.0, "int4+drafted": 4.0}


def unfinished(evidence: RunEvidence, side: str, number: int, changes: dict, evalset: str = "code") -> RunEvidence:
    """So many answers of one set, those of the variant that it got wrong first."""

    def change(units):
        mine = sorted((u for u in units if u.key.evalset == evalset), key=lambda u: sum(u.values[m] for m in u.scorers))
        chosen = {unit.key for unit in mine[:number]}
        return [replace(unit, **changes) if unit.key in chosen else unit for unit in units]

    return planted.with_units(evidence, side, change)


def one_set(**planned) -> RunEvidence:
    return planted.run(metrics={"code": ("exact_match",)}, **planned)


def judged(evidence: RunEvidence, *rules: Rule, **policy) -> Verdict:
    return decide(evidence, Policy(rules=rules or (MATCH,), uncounted="allow", **policy)).verdicts[0]


@each_row("changes", [CUT, NO_END, NO_TEXT, SWALLOWED, EMPTY, UNFILTERED])
@each_row(
    ("side", "number", "most", "exit"),
    [("baseline", 7, 0.05, 12), ("baseline", 6, 0.05, 0), ("variant", 7, 0.05, 12), ("variant", 6, 0.05, 0),
     ("variant", 120, 0.05, 12), ("variant", 12, 0.1, 0), ("variant", 13, 0.1, 12), ("variant", 120, 1, 0),
     ("variant", 1, 0, 12)],
)  # fmt: skip
def test_more_than_the_share_of_a_set_allows_no_approval(changes, side, number, most, exit):
    verdict = judged(unfinished(planted.run(), side, number, changes), max_unfinished=most)
    assert verdict.exit == exit
    lines = [line for line in verdict.reasons if "unfinished answers of code: " in line]
    assert not exit or f"{number} of 120 ({number / 120:.1%}: {number} " in lines[0], verdict.reasons


@pytest.mark.parametrize(
    "rules",
    [(replace(MATCH, evalset="tools"),), (replace(MATCH, evalset="tools"), replace(MATCH, tier="advisory")),
     (replace(MATCH, scope="evalset"),)],
)  # fmt: skip
def test_a_set_without_a_critical_rule_bars_an_approval_too(rules):
    assert judged(planted.run(), *rules).exit == 0
    assert judged(unfinished(planted.run(), "variant", 120, CUT), *rules).exit == 12


def test_an_answer_without_a_call_may_be_right():
    silent = planted.with_each(planted.run(), "both", lambda u: replace(u, **(EMPTY if len(u.scorers) > 1 else {})))
    assert judged(silent).exit == 0, "those of `tools`, where calls are scored"


def test_a_choice_by_likelihood_is_never_unfinished():
    read = planted.with_each(
        planted.run(), "both", lambda u: replace(u, truncated=True, values=u.values | {"multiple_choice.acc": 1.0})
    )
    assert judged(read).exit == 0


@pytest.mark.parametrize(
    ("changes", "cause"),
    [(CUT, "truncation"), (NO_END, "truncation"), (NO_TEXT, "harness"), (UNFILTERED, "filter"), (EMPTY, "")],
)  # fmt: skip
def test_a_proven_block_stays_one_and_names_how_its_answers_are_unfinished(changes, cause):
    verdict = judged(unfinished(one_set(lost=0.3), "variant", 60, changes))
    assert (verdict.exit, verdict.cause) == (10, cause)
    assert any(
        "unfinished answers of code: baseline 0 of 120, int4 60 of 120 (50.0%" in line for line in verdict.reasons
    )


@pytest.mark.parametrize(
    ("engine", "served", "cause"), [("qualgate", "", ""), ("qualgate", "a server", "parser"), ("", "", "parser")]
)
def test_what_our_own_engine_wrote_blank_no_parser_took(engine, served, cause):
    whole = unfinished(one_set(lost=0.3), "variant", 60, SWALLOWED)
    identity = replace(whole.variants[0].identity, engine=engine, served=served)
    whole = planted.with_variant(whole, identity=identity)
    whole = replace(whole, baseline=replace(whole.baseline, identity=replace(identity, weights="baseline")))
    verdict = judged(whole)
    assert (verdict.exit, verdict.cause) == (10, cause)


def test_answers_that_a_server_cuts_before_their_limit_are_not_blamed_on_it():
    """vLLM 0.32 lowers `max_tokens` to what its `--max-model-len` leaves, and says `length`."""
    verdict = judged(unfinished(one_set(lost=0.3), "variant", 60, CUT | {"tokens": 31}))
    assert (verdict.exit, verdict.cause) == (10, "truncation")
    [line] = [line for line in verdict.reasons if "unfinished answers of code" in line]
    assert "60 cut off early" in line
    assert line.endswith("they end before `max_new_tokens`")


def test_few_unfinished_answers_explain_no_block():
    verdict = judged(unfinished(one_set(lost=0.3), "variant", 10, CUT))
    assert (verdict.exit, verdict.cause) == (10, "")


@pytest.mark.parametrize(("number", "told"), [(16, True), (3, False)])
def test_shares_that_differ_by_no_chance_are_an_alert(number, told):
    verdict = judged(unfinished(one_set(n=400), "variant", number, CUT))
    assert verdict.exit == 0
    line = f"unfinished answers of code: baseline 0 of 400, int4 {number} of 400 ({number / 400:.1%}: {number} cut off)"
    assert verdict.reasons[0].startswith(line) == told


def test_an_arm_of_four_whose_answers_are_unfinished_is_not_chosen():
    given = four.evidence(four.alike(200), CHEAPER)
    cut = [
        replace(arm, units=tuple(replace(u, **UNFILTERED) for u in arm.units))
        if arm.name != "drafted" else arm for arm in given.variants
    ]  # fmt: skip
    words = {one.variant: one.word for one in decide(replace(given, variants=tuple(cut)), four.POLICY).verdicts}
    assert words == {"int4": "undecided", "drafted": "approve", "int4+drafted": "undecided"}


def test_a_set_that_no_critical_rule_counts_bars_each_arm_of_four():
    given = four.evidence(four.alike(200), CHEAPER)

    def with_another(arm, **changes):
        more = tuple(replace(u, key=replace(u.key, evalset="other"), **changes) for u in arm.units)
        return replace(arm, units=arm.units + more)

    cut = [with_another(arm, **UNFILTERED) for arm in given.variants]
    both = replace(
        given,
        baseline=with_another(given.baseline),
        variants=tuple(cut),
        expected=(*given.expected, *(replace(key, evalset="other") for key in given.expected)),
        metrics={"code": ("exact_match",), "other": ("exact_match",)},
    )
    rules = (replace(MATCH, evalset="code"),)
    verdicts = decide(both, replace(four.POLICY, rules=rules, uncounted="allow")).verdicts
    assert {one.word for one in verdicts} == {"undecided"}, [one.reasons for one in verdicts]


@pytest.mark.parametrize(("lost", "gained", "told"), [(0.06, 0.05, True), (0.02, 0.01, False), (0.03, 0.0, False)])
def test_many_flips_that_cancel_are_said_first(lost, gained, told):
    evidence = one_set(n=1000, lost=lost, gained=gained)
    verdict = judged(evidence)
    assert verdict.exit == 0
    line = "exact_match [pooled]: 110 of 1,000 answers (11%) changed, 60 lost and 50 gained: the rule judges their sum"
    assert verdict.reasons[0].startswith(line) == told, verdict.reasons
    flips = Rule(metric="parity.scores", min=0.95)
    assert (judged(evidence, MATCH, flips).comparisons[1].status == "broken") == told


def test_scores_that_nobody_could_give_are_not_the_same():
    evidence = planted.with_each(planted.run(), "both", lambda u: replace(u, values=dict.fromkeys(u.values)))
    same = judged(evidence, MATCH, Rule(metric="parity.scores", min=0.5)).comparisons[1]
    assert (same.variant, same.status) == (0.0, "broken")


def test_answers_without_any_score_are_not_the_same():
    evidence = planted.run(metrics={"code": ("exact_match",), "free": ("exact_match",)})
    for side in ("baseline", "variant"):
        evidence = planted.with_units(evidence, side, lambda units: [
            replace(unit, values={}, scorers={}) if unit.key.evalset == "free" else unit for unit in units
        ])  # fmt: skip
    evidence = replace(evidence, metrics={"code": ("exact_match",), "free": ()})
    verdict = judged(evidence, replace(MATCH, evalset="code"), Rule(metric="parity.scores", min=1, evalset="free"))
    assert verdict.comparisons[1].status == "undecided"
    assert "120 of 120 pairs lack an answer's scores" in verdict.reasons[0]


def test_shares_are_of_answers_in_any_order():
    evidence = unfinished(planted.run(), "variant", 30, CUT)
    order = np.random.default_rng(3).permutation(len(evidence.variants[0].units))
    mixed = planted.with_units(evidence, "variant", lambda units: [units[i] for i in order])
    assert judged(mixed) == judged(evidence)
