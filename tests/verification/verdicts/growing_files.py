"""A list looked at several times: does any sequence of looks err more often than alpha allows? Row `peeking.files`.

Each look is a whole evidence with the looks before it, put to `decide`. The variant loses exactly the margin, so an
approval and a block are both wrong, at whichever look of a sequence.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.decide import decide
from qualgate.records import EarlyStop, Looked, Policy, Rule
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.tables import ALPHA, METRIC, Cases, Rounds

MARGIN, RIGHT, MOST = 0.15, 0.9, 160
FLIPS = (0.02, 0.1, 0.2)  # beside the loss
FIXED = Policy(rules=(Rule(metric=METRIC, max_drop=MARGIN),), alpha=ALPHA)
EARLY, OTHER, THIRD = (replace(FIXED, stop=EarlyStop(seed=seed)) for seed in range(3))
Look = tuple[Policy, int]  # by which test, at how many cases
SEQUENCES: dict[str, tuple[Look, ...]] = {
    "fixed as it grows": ((FIXED, 40), (FIXED, 80), (FIXED, 160)),
    "early as it grows": ((EARLY, 40), (EARLY, 80), (EARLY, 160)),
    "fixed, early as it grows": ((FIXED, 80), (EARLY, 120), (EARLY, 160)),
    "fixed and early at once": ((FIXED, 80), (EARLY, 80)),
    "early, fixed, both again": ((EARLY, 80), (FIXED, 80), (FIXED, 160), (EARLY, 160)),
    "early in three orders": ((EARLY, 160), (OTHER, 160), (THIRD, 160)),
}
ASKED = {sequence[:end] for sequence in SEQUENCES.values() for end in range(1, len(sequence) + 1)}
LISTS = {count: Cases({"drawn": count}) for sequence in ASKED for _, count in sequence}


def measure(quick: bool, seed: int = 17) -> tuple[Rounds, Rounds]:
    """Lists are drawn for each share of answers that flip beside the loss; each is looked at in every sequence."""
    lists, flips = (300, FLIPS[1:2]) if quick else (6_000, FLIPS)
    few = f"{lists} lists in {len(flips)} of {len(FLIPS)} cells" if quick else None
    rounds = []
    for cell, share in enumerate(flips):
        generator = np.random.default_rng([seed, cell])
        said = [_said(*_at_the_margin(share, generator)) for _ in range(lists)]
        rounds += [
            {"sequence": name, "flips": share, **{word: sum(word in one[name] for one in said) / lists
                                                  for word in ("approve", "block")}}
            for name in SEQUENCES
        ]  # fmt: skip
    worst = {name: max(max(one["approve"], one["block"]) for one in rounds if one["sequence"] == name)
             for name in SEQUENCES}  # fmt: skip
    error = sqrt(ALPHA * (1 - ALPHA) / lists)
    met = min(worst.values()) > 0 and max(worst.values()) <= ALPHA + 3 * error
    return rounds, [DECISIONS.row("peeking.files", worst | {"lists": lists}, spread=error, met=met, few=few)]


def _at_the_margin(flips: float, generator: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Of each case whether the baseline, and whether the variant is right."""
    before = generator.random(MOST) < RIGHT
    changed = generator.random(MOST) < np.where(before, (MARGIN + flips / 2) / RIGHT, flips / 2 / (1 - RIGHT))
    return before, before ^ changed


def _said(before: NDArray, after: NDArray) -> dict[str, set[str]]:
    """Of each sequence every word that one of its looks says. Sequences that begin alike share these looks."""
    words: dict[tuple[Look, ...], str] = {}
    kept: dict[tuple[Look, ...], tuple[Looked, ...]] = {(): ()}
    for sequence in sorted(ASKED, key=len):
        policy, count = sequence[-1]
        evidence = LISTS[count].evidence(before[:count], after[:count])
        looks = _with_this(kept[sequence[:-1]], {(name, case, 0) for name, case in LISTS[count].ids}, policy)
        verdict = decide(replace(evidence, looks=looks), policy).verdicts[0]
        words[sequence] = verdict.word
        refused = "judged before" in verdict.reasons[0]  # it leaves no trace, see `tests/intake/test_looks`
        kept[sequence] = kept[sequence[:-1]] if refused else looks
    return {name: {words[one[: end + 1]] for end in range(len(one))} for name, one in SEQUENCES.items()}


def _with_this(looks: tuple[Looked, ...], questions: set, policy: Policy) -> tuple[Looked, ...]:
    new = questions.difference(*(look.questions for look in looks))
    if looks and not new:
        return (*looks[:-1], replace(looks[-1], tests=(*looks[-1].tests, policy.test)))
    return (*looks, Looked(questions=frozenset(new), answers="", tests=(policy.test,)))
