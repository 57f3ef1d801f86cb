"""May anything rest on a judge? How surely it agrees with people, and what sways it.

A judge is measured before it is believed: on decided labels (people prefer one of the two answers) it must prefer the
same one in both orders, with an exact bound above its floor. A tie is no agreement there, so that a judge that never
decides is not taken for one that finds no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from qualgate.formatting import counted
from qualgate.records import Judged, JudgedArm, Label
from qualgate.stats.intervals import Bounds, clustered_share
from qualgate.stats.multiplicity import holm
from qualgate.stats.preferences import leaning

BIAS_ALPHA = 0.05  # of all kinds of bias together, where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """A judge's taste. p: of none, after Holm over all kinds."""

    name: str  # position, length, format
    said: str
    p: float


def agreement(arm: JudgedArm, alpha: float) -> Bounds | None:
    """The share of decided labels on which the judge prefers what people do, by questions. None without any."""
    decided = [one for one in arm.labels if one.preferred != 0.5]
    agreed = [one.judged.win == one.preferred for one in decided]
    return _share(agreed, [one.question for one in decided], arm.floor, alpha)


def never_over_floor(labels: Sequence[Label], floor: float, alpha: float) -> str:
    """Why a judge that agrees with every one of these would still decide nothing; empty where it could."""
    questions = [one.question for one in labels if one.preferred != 0.5]
    best = _share([True] * len(questions), questions, floor, alpha)
    if best is not None and best.p_above <= alpha:
        return ""
    return (
        f"the judge's labels prefer an answer to {counted(len(set(questions)), 'question')}: even one that agreed with "
        f"all of them would not surely be over the floor of {floor:.0%}, so it decides nothing. Add labels"
    )


def _share(agreed: Sequence[bool], questions: Sequence[str], floor: float, alpha: float) -> Bounds | None:
    """Of answers that agree, those to one question together; None without any."""
    if not questions:
        return None
    numbers = {question: place for place, question in enumerate(dict.fromkeys(questions))}
    clusters = np.array([numbers[question] for question in questions])
    return clustered_share(np.array(agreed, float), np.ones(len(questions)), clusters, floor, alpha)


def below_floor(arm: JudgedArm, alpha: float) -> str:
    """Why nothing may rest on the judge, in words; empty where something may."""
    if arm.fault:
        return arm.fault
    found = agreement(arm, alpha)
    if found is None:
        return "no label prefers an answer, so nothing shows that the judge agrees with people"
    if found.p_above <= alpha:
        return ""
    return f"{_agreed(arm, found, alpha)}, not surely over its floor of {arm.floor:.0%}: it decides nothing"


def told_of_judge(arm: JudgedArm | None, alpha: float) -> tuple[str, ...]:
    """Lines for the user: agreement, orders that contradict each other, biases, and answers that speak to the judge."""
    found = agreement(arm, alpha) if arm is not None else None
    if arm is None or arm.fault or found is None:
        return ()
    each = [*arm.pairs.values(), *(one.judged for one in arm.labels)]
    asked = [one for one in each if one.places]
    lines = [f"{arm.judge}: {_agreed(arm, found, alpha)}"]
    if torn := sum(not one.consistent for one in asked):
        lines.append(f"{arm.judge}: its two orders contradict each other in {torn:,} of {len(asked):,} pairs: ties")
    lines += [f"{arm.judge}: {one.said}" for one in biases(arm)]
    steered = Counter(name for one in arm.pairs.values() for name in one.steers)
    lines += [
        f"{arm.judge}: {counted(count, 'pair holds', 'pairs hold')} {name} in an answer: read them"
        for name, count in sorted(steered.items())
    ]
    return tuple(lines)


def biases(arm: JudgedArm, alpha: float = BIAS_ALPHA) -> tuple[Bias, ...]:
    """Those that are found: exact sign tests of which way contradictions and errors lean, a question a trial, by Holm.

    position: of orders that contradict each other, the place preferred. length, format: of labels that the judge sees
    otherwise than people, whether it errs toward the longer answer, or that with more marks of format.
    """
    places = [(key[:2], _place(one)) for key, one in arm.pairs.items()]
    labels = [(one.question, _place(one.judged)) for one in arm.labels]
    errors = [
        (one.question, one.judged.style, one.judged.win - one.preferred)
        for one in arm.labels
        if one.judged.win is not None
    ]
    length, marks = (_signs((question, style[at] * error) for question, style, error in errors) for at in (0, 1))
    kinds = {
        "position": ("contradicts itself toward the answer shown {}", ("first", "last"), _signs([*places, *labels])),
        "length": ("errs toward the {} answer", ("longer", "shorter"), length),
        "format": ("errs toward the answer with {} format", ("more", "less"), marks),
    }
    adjusted = holm([leaning(*counts) for _, _, counts in kinds.values()])
    return tuple(
        Bias(
            name=name,
            said=f"{name} bias: it {said.format(ways[counts[1] > counts[0]])} in {max(counts)} of "
            + counted(sum(counts), "question"),
            p=p,
        )
        for (name, (said, ways, counts)), p in zip(kinds.items(), adjusted, strict=True)
        if p <= alpha
    )


def _signs(leans: Iterable[tuple[Hashable, float]]) -> tuple[int, int]:
    """How many questions lean one way, and the other."""
    sums: dict[Hashable, float] = {}
    for question, lean in leans:
        sums[question] = sums.get(question, 0.0) + lean
    return sum(one > 0 for one in sums.values()), sum(one < 0 for one in sums.values())


def _place(one: Judged) -> int:
    """1 where contradictory orders prefer the first place, -1 the last, 0 neither."""
    return 0 if one.consistent else int(np.sign(one.places.count("A") - one.places.count("B")))


def _agreed(arm: JudgedArm, found: Bounds, alpha: float) -> str:
    decided = sum(one.preferred != 0.5 for one in arm.labels)
    same = sum(one.judged.win == one.preferred for one in arm.labels if one.preferred != 0.5)
    return (
        f"the judge agrees with {same:,} of {counted(decided, 'decided label')} ({100 * (1 - alpha):g} % bound: at "
        f"least {found.lower:.1%})"
    )
