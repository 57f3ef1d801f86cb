"""Rows `defects.*`: true losses beyond a rule's limit planted into evidence records, and sound variants beside them.

Each planting draws its outcomes anew; what is judged is the gate's word alone. Every variant, faulty or sound, also
disagrees with the baseline at random. What is planted into runs of a real model is `planted_runs`; broken invariants
are `fail_closed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from qualgate.gate.verdict import decide_plain
from qualgate.records import ArmEvidence, ArmIdentity, Policy, Rule, RunEvidence, UnitEvidence, UnitKey
from tests.verification.goals import DECISIONS

N = 1_000  # cases a set: the declared n
SETS = {"facts": ("exact_match",), "forms": ("exact_match", "json.valid")}
POLICY = Policy(
    rules=(
        Rule(metric="exact_match", max_drop=0.02),
        Rule(metric="exact_match", scope="evalset", max_drop=0.025),
        Rule(metric="json.valid", max_drop=0.02),
        Rule(metric="drift.top1_agreement", min=0.95),
        Rule(metric="drift.kl_mean", max=0.05),
        Rule(metric="drift.length_ratio", max=1.2),
        Rule(metric="latency.e2e", max_ratio=1.25, percentile=50),
    )
)
BUDGET = 76  # tokens that an answer may take: as the shipped sets give one of 40
NOISE = 0.02  # disagreement beside any loss, in both directions alike
AT_MOST = 0.05  # false approvals, false blocks
ENOUGH = 100  # plantings that a rate is held to the goal on

Draw = np.random.Generator


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is true of a variant. Losses are in points of one, by (evalset, metric)."""

    lost: tuple[tuple[str, str, float], ...] = ()
    agreement: float = 0.985
    kl: float = 0.01
    length: float = 1.0
    slower: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    kind: str  # of defect; "" for a sound variant
    evidence: RunEvidence


# -------------------------------------------------------------------------------------------------- made evidence


def made(truth: Truth, generator: Draw, n: int = N) -> RunEvidence:
    """A complete run of a baseline and one variant of which `truth` holds."""
    lost = {(evalset, metric): loss for evalset, metric, loss in truth.lost}
    units: dict[str, list[UnitEvidence]] = {"baseline": [], "variant": []}
    for evalset, metrics in SETS.items():
        # A share of the baseline's right answers is lost, so that the loss over all cases is the one asked for.
        right = {metric: generator.random(n) < 0.85 for metric in metrics}
        flipped = generator.random(n)
        after = {
            metric: np.where(
                right[metric],
                flipped >= (NOISE / 2 + lost.get((evalset, metric), 0.0)) / 0.85,
                flipped < NOISE / 2 / 0.15,
            )
            for metric in metrics
        }
        tokens = generator.integers(10, 40, n)
        seconds = 0.02 * tokens * generator.lognormal(0, 0.1, n)
        longer = np.maximum(np.round(tokens * truth.length * generator.lognormal(0, 0.05, n)), 1).astype(int)
        slower = 0.02 * longer * truth.slower * generator.lognormal(0, 0.1, n)
        kl = generator.gamma(2.0, truth.kl / 2.0, (n, 8))
        agreed = generator.binomial(8, truth.agreement, n) / 8
        for index in range(n):
            for arm, scores in (("baseline", right), ("variant", after)):
                drift = arm == "variant"
                values: dict[str, float | None] = {metric: float(scores[metric][index]) for metric in metrics}
                values["latency.e2e"] = float((slower if drift else seconds)[index])
                units[arm].append(
                    UnitEvidence(
                        key=UnitKey(arm, evalset, f"{index:05}"),
                        case_hash=f"{evalset} {index}",
                        status="done",
                        values=values,
                        scorers={metric: f"{metric}/1" for metric in metrics},
                        tokens=int((longer if drift else tokens)[index]),
                        kl=tuple(kl[index].tolist()) if drift else (),
                        top1_agreement=float(agreed[index]) if drift else None,
                        job=len(units[arm]),  # a batch of its own: its time depends on no other's
                        began=float(len(units[arm])),
                    )
                )
    arms = [ArmEvidence(name=name, identity=_identity(name), units=tuple(found)) for name, found in units.items()]
    return RunEvidence(
        run_id="planted",
        expected=tuple(unit.key for arm in arms for unit in arm.units),
        metrics=SETS,
        baseline=arms[0],
        variants=(arms[1],),
        max_new_tokens={(unit.key.evalset, unit.key.case_id): BUDGET for unit in arms[0].units},
    )


def _identity(weights: str) -> ArmIdentity:
    return ArmIdentity(weights=weights, config="c", tokenizer="t", template="p", sampling="s", engine="e")


# ---------------------------------------------------------------------------------------------------- the defects

LOSSES: dict[str, Truth] = {
    **{
        f"{100 * loss:g} points of valid JSON at equal exact match": Truth(lost=(("forms", "json.valid", loss),))
        for loss in (0.05, 0.07, 0.10)
    },
    **{
        f"{100 * loss:g} points of exact match, every set": Truth(
            lost=(("facts", "exact_match", loss), ("forms", "exact_match", loss))
        )
        for loss in (0.03, 0.05, 0.10)
    },
    "3 points of valid JSON at equal exact match": Truth(lost=(("forms", "json.valid", 0.03),)),
    "5 points of exact match in one set": Truth(lost=(("facts", "exact_match", 0.05),)),
    "top-1 agreement 90 %": Truth(agreement=0.90),
    "KL three times the limit": Truth(kl=0.15),
    "answers 1.4 times as long": Truth(length=1.4),
    "1.6 times as slow": Truth(slower=1.6),
}

SOUND = Truth()


def defects(each: int, seed: int = 2026) -> Iterator[Planted]:
    """`each` plantings of every kind, drawn anew."""
    for number, (kind, truth) in enumerate(LOSSES.items()):
        for index in range(each):
            yield Planted(kind=kind, evidence=made(truth, np.random.default_rng([seed, number, index])))


def sound(count: int, seed: int = 7) -> Iterator[Planted]:
    """Variants without a fault that disagree with the baseline at random."""
    for index in range(count):
        yield Planted(kind="", evidence=made(SOUND, np.random.default_rng([seed, index])))


def word(planted: Planted) -> str:
    (verdict,) = decide_plain(planted.evidence, POLICY)
    return verdict.word


# ----------------------------------------------------------------------------------------------------------- rows


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds: how often each word fell on each kind, rows `defects.*`)."""
    words: dict[str, list[str]] = {}
    for planted in (*defects(1 if quick else 9), *sound(3 if quick else 120)):
        words.setdefault(planted.kind, []).append(word(planted))
    rounds = [
        {"kind": kind or "sound", "words": {one: found.count(one) for one in sorted(set(found))}}
        for kind, found in words.items()
    ]
    clean = words.pop("")
    planted = [one for found in words.values() for one in found]
    passed, blocked = planted.count("approve"), clean.count("block")
    return rounds, [
        _row("defects.false_approve", {"planted": len(planted), "approved": passed}, passed),
        _row("defects.false_block", {"sound": len(clean), "blocked": blocked}, blocked),
    ]


def _row(id: str, measured: dict[str, Any], count: int) -> dict[str, Any]:
    of = next(iter(measured.values()))
    few = "a slice of the plantings" if of < ENOUGH and count <= AT_MOST * of else None
    return DECISIONS.row(id, {"rate": count / of, **measured}, met=count <= AT_MOST * of, unmet_because=few)
