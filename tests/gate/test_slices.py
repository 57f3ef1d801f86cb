"""Rules by task, tag and repeat, relative to the baseline's rate, and on token identity."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import numpy as np
import pytest

from qualgate.errors import UsageError
from qualgate.gate.verdict import decide_plain
from qualgate.records import Policy, Rule, RunEvidence
from qualgate.stats.relative import compare_relative
from tests.gate.planted import of, run, with_each, with_unit, with_units


def policy(**rule) -> Policy:
    return Policy(rules=(Rule(**{"metric": "exact_match", "max_drop": 0.1} | rule),))


def labelled(evidence: RunEvidence) -> RunEvidence:
    """Of each set the first 60 cases are task "add" with tag "lang:de", the rest "sub" with "lang:en" and "hard"."""

    def marks(case: str) -> tuple[str, ...]:
        first = int(case.rpartition("-")[2]) < 60
        return ("task:add", "tag:lang:de") if first else ("task:sub", "tag:lang:en", "tag:hard")

    return replace(evidence, labels={(k.evalset, k.case_id): marks(k.case_id) for k in evidence.expected})


def loses_on_sub(evidence: RunEvidence) -> RunEvidence:
    def lost(unit):
        late = int(unit.key.case_id.rpartition("-")[2]) >= 60
        return replace(unit, values=unit.values | {"exact_match": 0.0}) if late else unit

    return labelled(with_each(evidence, "int4", lost))


def slices(evidence: RunEvidence, **rule) -> dict[str, tuple[int, str]]:
    return {c.slice: (c.n, c.status) for c in decide_plain(evidence, policy(**rule))[0].comparisons}


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"scope": "task"}, {"task:add": (120, "proven"), "task:sub": (120, "broken")}),
        ({"scope": "tag:lang"}, {"tag:lang:de": (120, "proven"), "tag:lang:en": (120, "broken")}),
        ({"scope": "tag:hard"}, {"tag:hard": (120, "broken"), "no tag:hard": (120, "proven")}),
        ({"where": "tag:hard"}, {"tag:hard": (120, "broken")}),
        ({"where": "task:add"}, {"task:add": (120, "proven")}),
        (
            {"scope": "evalset", "where": "tag:hard"},
            {"code, tag:hard": (60, "broken"), "tools, tag:hard": (60, "broken")},
        ),
        ({"scope": "evalset", "evalset": "code", "where": "task:add"}, {"code, task:add": (60, "proven")}),
        ({"scope": "task", "where": "tag:lang:de"}, {"task:add, tag:lang:de": (120, "proven")}),
    ],
    ids=str,
)  # fmt: skip
def test_a_rule_is_held_against_the_cases_of_its_label(rule, found):
    assert slices(loses_on_sub(run(right=1.0)), **rule) == found


def cannot_do_sub(evidence: RunEvidence, *sides: str) -> RunEvidence:
    """With each of these sides wrong on the task "sub"."""

    def wrong(unit):
        late = int(unit.key.case_id.rpartition("-")[2]) >= 60
        return replace(unit, values=unit.values | {"exact_match": 0.0}) if late else unit

    for side in sides:
        evidence = with_each(evidence, side, wrong)
    return labelled(evidence)


def test_a_task_that_the_baseline_cannot_do_is_skipped_and_listed():
    neither = cannot_do_sub(run(right=1.0), "baseline", "int4")
    assert decide_plain(neither, policy(scope="task"))[0].exit == 12
    (verdict,) = decide_plain(neither, policy(scope="task", skip="below_floor"))
    assert verdict.exit == 0
    assert [(c.slice, c.tier, c.status) for c in verdict.comparisons] == [
        ("task:add", "critical", "proven"),
        ("task:sub", "advisory", "undecided"),
    ]
    told = "exact_match [task:sub]: skipped: the baseline is right on 0.0% of 120 cases, the variant on 0.0%"
    assert told in verdict.reasons


def test_no_task_is_skipped_that_the_variant_alone_cannot_do_nor_all_of_them():
    skips = policy(scope="task", skip="below_floor")
    assert decide_plain(cannot_do_sub(run(right=1.0), "int4"), skips)[0].exit == 10
    rarely = with_each(cannot_do_sub(run(right=1.0), "int4"), "baseline", lambda unit: replace(unit, values=unit.values
                       | {"exact_match": float(int(unit.key.case_id.rpartition("-")[2]) % 6 == 0)}))  # fmt: skip
    (verdict,) = decide_plain(rarely, skips)
    assert "task:sub" in {c.slice for c in verdict.comparisons if c.tier == "critical" and c.status != "proven"}
    assert decide_plain(labelled(run(right=0.0)), skips)[0].exit == 12


def test_labels_that_are_not_known_decide_nothing_and_unknown_ones_are_refused():
    evidence = labelled(run())
    for silent in (replace(evidence, labels=None), replace(evidence, labels=dict([*evidence.labels.items()][:-1]))):
        (verdict,) = decide_plain(silent, policy(scope="task"))
        assert (verdict.exit, "not known here" in verdict.reasons[0]) == (12, True)
    with pytest.raises(UsageError, match="no case of code, tools has such a label"):
        decide_plain(evidence, policy(where="tag:hrad"))


def test_a_relative_drop_is_told_and_decided_by_its_interval():
    evidence = run(n=1000, right=0.5, lost=0.02, metrics={"code": ("exact_match",)})
    for limit, word in ((0.10, "approve"), (0.04, "undecided"), (0.015, "block")):
        (verdict,) = decide_plain(evidence, policy(max_drop=None, max_relative_drop=limit))
        (c,) = verdict.comparisons
        assert c.difference == pytest.approx(-0.04)
        assert verdict.word == word
        assert (c.lower > -limit, c.upper < -limit) == (word == "approve", word == "block")


def test_at_the_limit_a_relative_loss_is_rarely_proven_absent():
    """120 draws of 80 pairs at a loss of exactly the limit: at most alpha and three standard errors are proven."""
    n, rate, limit, draws = 80, 0.9, 0.1, 120
    lost = limit * rate + 0.005  # and half a point is gained
    tables = np.random.default_rng(7).multinomial(n, [lost, 0.005, rate - lost, 1 - rate - 0.005], draws)
    proven = 0
    for table in tables:
        base, other = np.repeat([1.0, 0.0, 1.0, 0.0], table), np.repeat([0.0, 1.0, 1.0, 0.0], table)
        proven += compare_relative(base, other, np.arange(n), limit).p_within <= 0.05
    assert proven / draws <= 0.05 + 3 * (0.05 * 0.95 / draws) ** 0.5


def test_a_baseline_right_on_nothing_has_no_relative_loss():
    zero = np.zeros(100)
    result = compare_relative(zero, zero, np.arange(100), 0.1)
    assert (result.change, result.p_within, result.p_beyond) == (None, 1.0, 1.0)


def test_parity_is_a_fact_of_every_token():
    rules = (Rule(metric="exact_match", max_drop=0.1), Rule(metric="parity.tokens", min=1.0))
    spoken = with_each(run(), "both", token_ids=pack("<3i", 1, 2, 3))
    assert decide_plain(spoken, Policy(rules=rules))[0].word == "approve"
    one = with_unit(spoken, "int4", 5, token_ids=pack("<3i", 1, 2, 4))
    (verdict,) = decide_plain(one, Policy(rules=rules))
    assert verdict.word == "block"
    assert verdict.comparisons[-1].variant == pytest.approx(239 / 240)
    assert decide_plain(run(), Policy(rules=rules))[0].exit == 12, "no tokens were stored"


@pytest.mark.parametrize(
    ("cases", "differing", "status"), [(20, 0, "undecided"), (240, 0, "proven"), (240, 60, "broken")]
)
def test_parity_below_one_is_tested_for_it_speaks_of_answers_not_drawn(cases, differing, status):
    arms = run()
    kept = {unit.key.case_id for unit in arms.baseline.units[:cases]}
    for side, other in (("baseline", 0), ("int4", differing)):
        arms = with_units(
            arms, side, lambda us, other=other: (
                replace(u, token_ids=pack("<2i", 1, 2 + (i < other)))
                for i, u in enumerate(u for u in us if u.key.case_id in kept)
            ),
        )  # fmt: skip
    arms = of(arms.baseline, *arms.variants)
    for metric in ("parity.tokens", "parity.prefix"):
        rules = (Rule(metric="exact_match", max_drop=0.1), Rule(metric=metric, min=0.95))
        (verdict,) = decide_plain(arms, Policy(rules=rules))
        assert verdict.comparisons[-1].status == status, metric
