"""Rules on metrics that any evalset's answers may be scored by, though the set does not declare them."""

from __future__ import annotations

from dataclasses import replace

from qualgate.errors import Exit
from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.records import Policy, Rule, RunEvidence
from tests.gate.planted import POLICY, run

RULE = Rule(metric="format.finished", max_drop=0.05)
ASKED = Policy(rules=(*POLICY.rules, RULE))


def with_finished(lost: int, **changes) -> RunEvidence:
    """Approvable evidence of two sets; of each, the variant leaves `lost` answers unfinished."""
    evidence = run(**changes)

    def scored(arm, unfinished):
        seen: dict[str, int] = {}
        units = []
        for unit in arm.units:
            number = seen[unit.key.evalset] = seen.get(unit.key.evalset, 0) + 1
            values = unit.values | {RULE.metric: float(number > unfinished)}
            units.append(replace(unit, values=values, scorers=unit.scorers | {RULE.metric: "format/1"}))
        return replace(arm, units=tuple(units))

    variants = tuple(scored(variant, lost) for variant in evidence.variants)
    return replace(evidence, baseline=scored(evidence.baseline, 0), variants=variants)


def test_a_format_rule_is_pooled_over_every_set():
    (verdict,) = decide_plain(with_finished(0), ASKED)
    assert verdict.word == "approve"
    found = next(item for item in verdict.comparisons if item.metric == RULE.metric)
    assert (found.status, found.n, found.baseline) == ("proven", 240, 1.0)


def test_a_format_rule_may_be_held_against_each_set_or_one():
    for rule, sets in ((replace(RULE, scope="evalset"), ["code", "tools"]), (replace(RULE, evalset="code"), ["code"])):
        (verdict,) = decide_plain(with_finished(0), Policy(rules=(*POLICY.rules, rule)))
        assert [item.slice for item in verdict.comparisons if item.metric == RULE.metric] == sets


def test_answers_stored_before_the_rule_was_written_decide_nothing():
    verdicts = decide_plain(run(), ASKED)
    assert overall_exit(verdicts) == Exit.UNDECIDED
    assert "240 of 240 cases were not scored by it: score them again" in " ".join(verdicts[0].reasons)
