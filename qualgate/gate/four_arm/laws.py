"""Are an arm's drawn answers drawn by its target's law? By several answers of both to the same cases.

A sampler that is silently greedy, ignores a part of its settings, or accepts drafts by a wrong rule may score as its
target does. What its answers begin with then tells (`stats.laws`). Where no tokens are recorded, an answer is one.

At temperature 0 an arm says the same again, and a server in bf16 whose drafts are verified in other sums says another
thing at near ties: that is no law of drawing, so where answers part between the arms and not within them, nothing is
held. Nor is it below `COLDEST`, where such near ties are many and their odds far apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from qualgate.formatting import counted
from qualgate.gate.evidence.checks import Pair
from qualgate.records import UnitEvidence
from qualgate.stats.laws import SameLaw, same_law

# Simulated laws whose logits part by noise of 0.05, 300 cases, 4 answers of each arm: at 0.5 none of 30 sound arms was
# accused at a quarter of 0.05, at 0.1 17 of 25.
COLDEST = 0.5
SHARES = 4  # of alpha: two arms are held against their targets, each by its scores and by its law


def warm(temperature: float | None) -> bool:
    """Whether a law is more than how its logits were rounded; what nobody says is."""
    return temperature is None or temperature >= COLDEST


def another_law(name: str, target: str, pairs: Sequence[Pair], alpha: float, seed: int) -> str:
    """That the arm surely draws by another law than its target, and where most, as the end of a sentence; "" where
    nothing surely shows it. pairs: the arm as its target's variant. alpha: how often sound arms may be called
    defective, of which this takes its share. seed: of the deals."""
    answers_by_case: dict[tuple[str, str], tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = defaultdict(
        lambda: ([], [])
    )
    by_tokens = all(unit.answer is not None for pair in pairs for unit in (pair.baseline, pair.variant))
    for pair in pairs:
        mine, its = (_tokens(unit, by_tokens) for unit in (pair.baseline, pair.variant))
        if mine is not None and its is not None:
            answers = answers_by_case[pair.variant.key.evalset, pair.variant.key.case_id]
            answers[0].append(mine)
            answers[1].append(its)
    cases = [case for case, (answers, _) in answers_by_case.items() if len(answers) > 1]
    if not _drawn(answers_by_case[case] for case in cases):
        return ""
    law_test = _law_test(
        tuple((tuple(answers_by_case[case][0]), tuple(answers_by_case[case][1])) for case in cases), seed
    )
    if law_test.p > alpha / SHARES or law_test.prompt is None:
        return ""
    before, after = law_test.count
    how = f"begin with the same {counted(law_test.length, 'token')}" if by_tokens else "are the same"
    return (
        f": its answers follow another law than {target}'s (p = {law_test.p:.2g} over {counted(len(cases), 'case')} "
        f"with several answers). Most of all in {'/'.join(cases[law_test.prompt])}: {before} of {law_test.of[0]} "
        f"answers of {target} and {after} of {law_test.of[1]} of {name} {how}"
    )


def _drawn(cases: Iterable[tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]]) -> bool:
    """Whether most cases whose answers are not all one vary within an arm. Of two and two draws by one law that part,
    two in three do or more, and of further draws more still."""
    parting = [(set(ours), set(theirs)) for ours, theirs in cases if len({*ours, *theirs}) > 1]
    return 2 * sum(len(ours) > 1 or len(theirs) > 1 for ours, theirs in parting) > len(parting)


@lru_cache(maxsize=4)
def _law_test(prompts: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...], seed: int) -> SameLaw:
    """Asked once for each alpha of a choice; the same of all."""
    return same_law([(ours, theirs) for ours, theirs in prompts], seed)


def _tokens(unit: UnitEvidence, by_tokens: bool) -> tuple[int, ...] | None:
    """Of the answer; where not all are told, one number that stands for the whole. None: nothing of it is recorded."""
    if by_tokens:
        return tuple(np.frombuffer(unit.answer or b"", "<i4").tolist())
    digest = unit.text_sha256 or unit.tokens_sha256
    return (int(digest, 16),) if digest else None
