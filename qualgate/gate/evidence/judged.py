"""Measure a judge before it is believed: how surely it agrees with people, and what biases it.

On decided labels (people prefer one of the two answers) the judge must prefer the same answer in both orders, with an
exact bound above its floor. A tie is no agreement, so a judge that never decides does not pass for one that finds no
difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from qualgate.records import Judged, JudgedArm, Label
from qualgate.stats.intervals import Bounds, clustered_share
from qualgate.stats.multiplicity import holm
from qualgate.stats.preferences import leaning
from qualgate.text.numbers import counted

BIAS_ALPHA = 0.05  # of all kinds of bias together, where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """One bias of a judge. p: p-value of no bias, after Holm's correction over all kinds."""

    name: str  # position, length, format
    text: str
    p: float


def agreement(arm: JudgedArm, alpha: float) -> Bounds | None:
    """Bound the share of decided labels on which the judge prefers what people do, clustered by question. None without
    any."""
    decided = [label for label in arm.labels if label.preferred != 0.5]
    assert arm.floor is not None, "people are the measure themselves"
    agreed = [label.judged.win == label.preferred for label in decided]
    return _share(agreed, [label.question for label in decided], arm.floor, alpha)


def never_over_floor(labels: Sequence[Label], floor: float, alpha: float) -> str:
    """Say why even a judge that agrees with all of these labels would decide nothing; "" where it could."""
    questions = [label.question for label in labels if label.preferred != 0.5]
    best = _share([True] * len(questions), questions, floor, alpha)
    if best is not None and best.p_above <= alpha:
        return ""
    return (
        f"the judge's labels prefer an answer to {counted(len(set(questions)), 'question')}: even one that agreed with "
        f"all of them would not surely be over the floor of {floor:.0%}, so it decides nothing. Add labels"
    )


def _share(agreed: Sequence[bool], questions: Sequence[str], floor: float, alpha: float) -> Bounds | None:
    """Bound the share of judgements that agree, clustered by question; None without any."""
    if not questions:
        return None
    numbers = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    clusters = np.array([numbers[question] for question in questions])
    return clustered_share(np.array(agreed, float), np.ones(len(questions)), clusters, floor, alpha)


def below_floor(arm: JudgedArm, alpha: float) -> str:
    """Say why nothing may rest on the judge; "" where something may."""
    if arm.fault or arm.floor is None:
        return arm.fault
    bounds = agreement(arm, alpha)
    if bounds is None:
        return "no label prefers an answer, so nothing shows that the judge agrees with people"
    if bounds.p_above <= alpha:
        return ""
    return f"{_agreed(arm, bounds, alpha)}, not surely over its floor of {arm.floor:.0%}: it decides nothing"


def judge_notes(arm: JudgedArm | None, alpha: float) -> tuple[str, ...]:
    """List the judge's agreement, contradictory orders, biases, and answers that address the judge."""
    bounds = agreement(arm, alpha) if arm is not None else None
    if arm is None or arm.fault or bounds is None:
        return ()
    each = [*arm.pairs.values(), *(label.judged for label in arm.labels)]
    compared = [judgement for judgement in each if judgement.places]
    lines = [f"{arm.judge}: {_agreed(arm, bounds, alpha)}"]
    if torn := sum(not judgement.consistent for judgement in compared):
        lines.append(f"{arm.judge}: its two orders contradict each other in {torn:,} of {len(compared):,} pairs: ties")
    lines += [f"{arm.judge}: {bias.text}" for bias in biases(arm)]
    steered = Counter(name for judgement in arm.pairs.values() for name in judgement.steers)
    lines += [
        f"{arm.judge}: {counted(count, 'pair holds', 'pairs hold')} {name} in an answer: read them"
        for name, count in sorted(steered.items())
    ]
    return tuple(lines)


def biases(arm: JudgedArm, alpha: float = BIAS_ALPHA) -> tuple[Bias, ...]:
    """Find biases by exact sign tests of which way contradictions and errors lean: a sign per question, Holm-adjusted.

    position: the place preferred where the two orders contradict each other. length, format: where the judge and the
    label differ, whether it errs toward the longer answer, or toward the one with more formatting.
    """
    places = [(key[:2], _place(judgement)) for key, judgement in arm.pairs.items()]
    labels = [(label.question, _place(label.judged)) for label in arm.labels]
    errors = [
        (label.question, label.judged.style, label.judged.win - label.preferred)
        for label in arm.labels
        if label.judged.win is not None
    ]
    length, marks = (_signs((question, style[index] * error) for question, style, error in errors) for index in (0, 1))
    tests = {
        "position": ("contradicts itself toward the answer shown {}", ("first", "last"), _signs([*places, *labels])),
        "length": ("errs toward the {} answer", ("longer", "shorter"), length),
        "format": ("errs toward the answer with {} format", ("more", "less"), marks),
    }
    adjusted = holm([leaning(*toward_each) for _, _, toward_each in tests.values()])
    return tuple(
        Bias(
            name=name,
            text=f"{name} bias: it {wording.format(ways[toward_each[1] > toward_each[0]])} in {max(toward_each)} of "
            + counted(sum(toward_each), "question"),
            p=p,
        )
        for (name, (wording, ways, toward_each)), p in zip(tests.items(), adjusted, strict=True)
        if p <= alpha
    )


def _signs(leans: Iterable[tuple[Hashable, float]]) -> tuple[int, int]:
    """Count the questions that lean each way."""
    sums: dict[Hashable, float] = {}
    for question, lean in leans:
        sums[question] = sums.get(question, 0.0) + lean
    return sum(net > 0 for net in sums.values()), sum(net < 0 for net in sums.values())


def _place(judgement: Judged) -> int:
    """1 where contradictory orders prefer the first place, -1 the last, 0 neither."""
    return 0 if judgement.consistent else int(np.sign(judgement.places.count("A") - judgement.places.count("B")))


def _agreed(arm: JudgedArm, bounds: Bounds, alpha: float) -> str:
    decided = sum(label.preferred != 0.5 for label in arm.labels)
    same = sum(label.judged.win == label.preferred for label in arm.labels if label.preferred != 0.5)
    return (
        f"the judge agrees with {same:,} of {counted(decided, 'decided label')} ({100 * (1 - alpha):g} % bound: at "
        f"least {bounds.lower:.1%})"
    )
