"""Test whether an arm's sampled answers follow its target's law, from several answers of both to the same cases.

A sampler that is silently greedy, ignores some of its settings, or accepts drafts by a wrong rule may score like its
target. The beginnings of its answers then show it (`stats.laws`). Without recorded tokens an answer is one token.

At temperature 0 an arm repeats itself, and a bf16 server that verifies drafts in another order of summation differs at
near ties. That is no difference in sampling, so answers that differ between arms but not within them are not tested.
Nor are temperatures below `COLDEST`, where such near ties are many and their odds far apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from qualgate.gate.evidence.checks import Pair
from qualgate.records import UnitEvidence
from qualgate.stats.laws import SameLaw, same_law
from qualgate.text.numbers import counted

# Simulated with logit noise of 0.05, 300 cases, 4 answers of each arm: at 0.5 none of 30 sound arms was accused at a
# quarter of 0.05; at 0.1, 17 of 25 were.
COLDEST = 0.5
SHARES = 4  # of alpha: two arms are held against their targets, each by its scores and by its law


def warm(temperature: float | None) -> bool:
    """Whether the temperature is high enough to test; an unknown one is."""
    return temperature is None or temperature >= COLDEST


def another_law(name: str, target: str, pairs: Sequence[Pair], alpha: float, seed: int) -> str:
    """Say, as the end of a sentence, that the arm surely follows another law than its target, and where most; "" if
    that is not proven. pairs: the arm as its target's variant. alpha: how often sound arms may be called defective, of
    which this test takes its share. seed: of the permutations."""
    answers_by_case: dict[tuple[str, str], tuple[list[tuple[int, ...]], list[tuple[int, ...]]]] = defaultdict(
        lambda: ([], [])
    )
    by_tokens = all(unit.answer is not None for pair in pairs for unit in (pair.baseline, pair.variant))
    for pair in pairs:
        target_tokens, arm_tokens = (_tokens(unit, by_tokens) for unit in (pair.baseline, pair.variant))
        if target_tokens is not None and arm_tokens is not None:
            answers = answers_by_case[pair.variant.key.evalset, pair.variant.key.case_id]
            answers[0].append(target_tokens)
            answers[1].append(arm_tokens)
    cases = [case for case, (answers, _) in answers_by_case.items() if len(answers) > 1]
    if not _mostly_vary_within(answers_by_case[case] for case in cases):
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


def _mostly_vary_within(cases: Iterable[tuple[Sequence[tuple[int, ...]], Sequence[tuple[int, ...]]]]) -> bool:
    """Whether most cases with differing answers vary within an arm. Of two and two draws by one law that differ, two in
    three do or more, and of further draws more still."""
    differing = [
        (set(target_answers), set(arm_answers))
        for target_answers, arm_answers in cases
        if len({*target_answers, *arm_answers}) > 1
    ]
    return 2 * sum(len(target_answers) > 1 or len(arm_answers) > 1 for target_answers, arm_answers in differing) > len(
        differing
    )


@lru_cache(maxsize=4)
def _law_test(prompts: tuple[tuple[tuple[tuple[int, ...], ...], ...], ...], seed: int) -> SameLaw:
    """Test once; the result serves every alpha of a choice."""
    return same_law([(target_answers, arm_answers) for target_answers, arm_answers in prompts], seed)


def _tokens(unit: UnitEvidence, by_tokens: bool) -> tuple[int, ...] | None:
    """Token ids of the answer, or one number from its digest if not all answers have ids; None: nothing recorded."""
    if by_tokens:
        return tuple(np.frombuffer(unit.answer or b"", "<i4").tolist())
    digest = unit.text_sha256 or unit.tokens_sha256
    return (int(digest, 16),) if digest else None
