"""Evidence with a fault never approves, and says what the fault is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf, nan

import pytest

from qualgate.errors import Exit, UsageError
from qualgate.gate.evidence.checks import PAIRED_BY
from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.records import ArmEvidence, RunEvidence, UnitEvidence, UnitKey
from tests.gate.planted import POLICY, identity, run, with_each, with_unit, with_units, with_variant
from tests.tables import each_row

GOOD = run()


def emptied(e: RunEvidence) -> RunEvidence:
    return replace(with_variant(replace(e, baseline=replace(e.baseline, units=())), units=()), expected=())


def only(e: RunEvidence, rows: int, side: str) -> RunEvidence:
    return with_units(e, side, lambda units: units[:rows])


def both(e: RunEvidence, change) -> RunEvidence:
    return with_units(with_units(e, "baseline", change), "variant", change)


def scored(e: RunEvidence, side: str, index: int, value: float | None) -> RunEvidence:
    unit = (e.baseline if side == "baseline" else e.variants[0]).units[index]
    return with_unit(e, side, index, values=unit.values | {"exact_match": value})


def unscored(e: RunEvidence, side: str, first: int) -> RunEvidence:
    for index in range(first):
        e = scored(e, side, index, None)
    return e


def swapped_ids(e: RunEvidence) -> RunEvidence:
    """Two cases' answers exchanged on one side: keys intact, hashes betray it."""
    return with_units(e, "variant", lambda u: (replace(u[0], key=u[1].key), replace(u[1], key=u[0].key), *u[2:]))


def truncated(e: RunEvidence, side: str, share: float) -> RunEvidence:
    def cut(units: Iterable[UnitEvidence]) -> Iterator[UnitEvidence]:
        return (replace(u, truncated=True, tokens=32) if i % 100 < 100 * share else u for i, u in enumerate(units))

    return with_units(e, side, cut)


Faults = dict[str, tuple[Callable[[RunEvidence], RunEvidence], str]]
INCOMPLETE: Faults = {
    "empty folders": (emptied, "no unit was planned"),
    "closed list but no rows": (lambda e: both(e, lambda units: ()), "240 of 240 units missing"),
    "12 rows of 240 on the variant": (lambda e: only(e, 12, "variant"), "228 of 240 units missing"),
    "12 rows of 240 on the baseline": (lambda e: only(e, 12, "baseline"), "228 of 240 units missing"),
    "12 rows on both sides": (lambda e: both(e, lambda units: units[:12]), "missing"),
    "one missing row": (lambda e: with_units(e, "variant", lambda u: u[1:]), "1 of 240 units missing: code/code-0"),
    "a row marked missing": (lambda e: with_unit(e, "variant", 3, status="missing"), "missing"),
    "an errored unit": (lambda e: with_unit(e, "variant", 3, status="error", error="worker died"), "failed"),
    "an errored baseline unit": (lambda e: with_unit(e, "baseline", 3, status="error"), "failed"),
    "all units errored": (lambda e: with_each(e, "variant", status="error", error="NaN logits"), "240 of 240"),
    "all errored on both": (lambda e: with_each(e, "both", status="error"), "failed"),
    "an aborted unit, scored right": (
        lambda e: with_unit(e, "variant", 3, finish_reason="abort"),
        "int4: 1 of 240 units ended by the server (abort",
    ),
    "an aborted baseline unit": (lambda e: with_unit(e, "baseline", 3, finish_reason="abort"), "ended by the server"),
    "planned for one arm only": (
        lambda e: replace(
            with_units(e, "variant", lambda u: u[1:]),
            expected=tuple(k for k in e.expected if (k.arm, k.case_id) != ("int4", "code-0")),
        ),
        "planned for one of baseline and int4 only",
    ),
    "score NaN": (lambda e: scored(e, "variant", 0, nan), "NaN"),
    "baseline score NaN": (lambda e: scored(e, "baseline", 0, nan), "NaN"),
    "score infinite": (lambda e: scored(e, "variant", 0, inf), "range"),
    "score above 1": (lambda e: scored(e, "variant", 0, 1.5), "range"),
    "score below 0": (lambda e: scored(e, "variant", 0, -1.0), "range"),
    "score absent": (lambda e: with_unit(e, "variant", 0, values={}), "without a score of exact_match, which"),
    "KL NaN": (lambda e: with_unit(e, "variant", 0, kl=(0.1, nan)), "range"),
    "KL negative": (lambda e: with_unit(e, "variant", 0, kl=(0.1, -0.2)), "range"),
    **{
        f"latency {seconds}": (
            lambda e, t=seconds: with_unit(e, "variant", 0, values=e.variants[0].units[0].values | {"latency.e2e": t}),
            "range",
        )
        for seconds in (nan, inf, -1.0)
    },
    "no identity": (lambda e: with_variant(e, identity=None), "no job ever finished"),
    "no baseline identity": (lambda e: replace(e, baseline=replace(e.baseline, identity=None)), "no job"),
    "planned variant left nothing": (
        lambda e: replace(e, expected=(*e.expected, *(replace(k, arm="int2") for k in e.expected if k.arm == "int4"))),
        "int2: 240 of 240 units missing",
    ),
}
BROKEN: Faults = {
    "duplicate unit": (lambda e: with_units(e, "variant", lambda u: (*u, u[0])), "recorded more than once"),
    "duplicate baseline unit": (lambda e: with_units(e, "baseline", lambda u: (*u, u[5])), "more than once"),
    "duplicate in place of another": (lambda e: with_units(e, "variant", lambda u: (u[1], *u[1:])), "more than once"),
    "planned twice": (lambda e: replace(e, expected=(*e.expected, e.expected[-1])), "planned more than once"),
    "never planned": (
        lambda e: with_units(e, "variant", lambda u: (*u, replace(u[0], key=UnitKey("int4", "code", "extra")))),
        "never planned",
    ),
    "a row of another arm": (
        lambda e: with_unit(e, "variant", 0, key=replace(e.variants[0].units[0].key, arm="baseline")),
        "never planned",
    ),
    "a set the run does not list": (lambda e: replace(e, metrics={"tools": e.metrics["tools"]}), "does not list"),
    "integrity: hash": (lambda e: replace(e, integrity=("row 7: sha256 differs",)), "row 7"),
    "integrity and incomplete": (
        lambda e: replace(only(e, 1, "variant"), integrity=("chain broken at 3",)),
        "chain broken",
    ),
    "two variants of one name": (lambda e: replace(e, variants=e.variants * 2), "two arms are called"),
    "the variant is called baseline": (lambda e: with_variant(e, name="baseline"), "two arms are called"),
}
UNDECIDED: Faults = {
    "two kernels in one arm": (
        lambda e: with_unit(with_each(e, "variant", kernel="c avx512"), "variant", 3, kernel="c avx2"),
        "different kernels (c avx2, c avx512)",
    ),
    "stale": (lambda e: replace(e, stale=("weights of int4 changed since the run",)), "changed since"),
    "scorer cannot say, variant": (lambda e: unscored(e, "variant", 12), "could not say for 12 of 240"),
    "scorer cannot say, either": (
        lambda e: unscored(unscored(e, "variant", 12), "baseline", 12),
        "could not say for 12 of 240",
    ),
    "scorer cannot say anything": (
        lambda e: with_each(e, "both", lambda u: replace(u, values=dict.fromkeys(u.values))),
        "could not say for 240 of 240",
    ),
    "re-versioned case": (lambda e: with_unit(e, "variant", 0, case_hash="sha other"), "not the same version"),
    "re-versioned set": (lambda e: with_each(e, "variant", case_hash="sha v2"), "240 cases are not the same"),
    "no hash on either side": (lambda e: with_each(e, "both", case_hash=""), "240 cases lack a `case_hash`"),
    "swapped ids": (swapped_ids, "2 cases are not the same version"),
    "another cluster on one side": (lambda e: with_unit(e, "variant", 0, cluster="x"), "not the same version"),
    "scorer version": (
        lambda e: with_unit(e, "variant", 0, scorers={"exact_match": "exact_match/2"}),
        "scorer version",
    ),
    "scorer unknown on both": (lambda e: with_each(e, "both", scorers={}), "scorer"),
    **{
        field: (lambda e, f=field: with_variant(e, identity=identity("int4", **{f: "x"})), f"{field} differs")
        for field in PAIRED_BY
    },
    "baseline right on nothing": (lambda e: run(right=0.0), "right on 0.0%"),
    "baseline right on too little": (lambda e: run(right=0.2), "would not show"),
    "both truncated": (lambda e: truncated(truncated(e, "baseline", 1), "variant", 1), "100.0%: 120 cut off"),
    "baseline truncated on 7 %": (lambda e: truncated(e, "baseline", 0.07), "raise `max_new_tokens`"),
    "zero flips at n = 10": (lambda e: run(n=10, right=1.0), "cannot exclude"),
    "one case": (lambda e: run(n=1, right=1.0), "right on 100.0% of 1 case "),
    "19 clusters": (
        lambda e: both(e, lambda us: (replace(u, cluster=f"c{i % 19}") for i, u in enumerate(us))),
        "19 clusters",
    ),
    "an evalset without units": (
        lambda e: replace(e, metrics=e.metrics | {"void": ("exact_match",)}),
        "[pooled]: no pair of void",
    ),
}
CASES = {
    name: (fault, code, said)
    for code, faults in ((13, INCOMPLETE), (14, BROKEN), (12, UNDECIDED))
    for name, (fault, said) in faults.items()
}


def test_the_evidence_they_start_from_approves() -> None:
    (verdict,) = decide_plain(GOOD, POLICY)
    assert (verdict.word, verdict.exit, verdict.reasons) == (
        "approve",
        0,
        (
            "no score differs: all 360 scores equal the baseline's, and the texts are not known",
            "all 4 critical rules proven",
        ),
    )


@pytest.mark.parametrize(
    ("baseline", "said"),
    [
        ("text_sha256", "no answer differs: all 360 scores and texts equal the baseline's"),
        ("tokens_sha256", "no score differs: all 360 scores equal the baseline's, and the texts are not known"),
    ],
)
def test_texts_are_compared_where_both_are_known_by_the_same(baseline: str, said: str) -> None:
    def known(arm: ArmEvidence, by: str) -> ArmEvidence:
        return replace(arm, units=tuple(replace(unit, **{by: "a"}) for unit in arm.units))

    variants = tuple(known(arm, "text_sha256") for arm in GOOD.variants)
    (verdict,) = decide_plain(replace(GOOD, baseline=known(GOOD.baseline, baseline), variants=variants), POLICY)
    assert verdict.reasons[0] == said


@each_row("name", CASES)
def test_faulty_evidence_never_approves(name: str) -> None:
    fault, code, said = CASES[name]
    verdicts = decide_plain(fault(GOOD), POLICY)
    assert overall_exit(verdicts) == code
    assert any(said in reason for verdict in verdicts for reason in verdict.reasons), verdicts[-1].reasons


def test_no_variant_is_an_error() -> None:
    alone = replace(GOOD, variants=(), expected=tuple(k for k in GOOD.expected if k.arm == "baseline"))
    with pytest.raises(UsageError, match="no variant"):
        decide_plain(alone, POLICY)
    with pytest.raises(UsageError, match="no verdict"):
        overall_exit(())


def test_one_sick_variant_does_not_touch_the_other() -> None:
    sick = ArmEvidence(name="int2", identity=identity("int2"), units=())
    keys = tuple(replace(k, arm="int2") for k in GOOD.expected if k.arm == "int4")
    evidence = replace(GOOD, variants=(*GOOD.variants, sick), expected=(*GOOD.expected, *keys))
    verdicts = decide_plain(evidence, POLICY)
    assert [v.word for v in verdicts] == ["approve", "invalid"]
    assert overall_exit(verdicts) == Exit.INFRASTRUCTURE
