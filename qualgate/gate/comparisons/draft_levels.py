"""Count an arm's drafts level by level: how many, where in the draft they failed, and in which tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from qualgate.records import DraftLevel, DraftPosition, DraftStep, Rate, UnitEvidence
from qualgate.stats.draft_counts import Passes
from qualgate.stats.resampled_sums import Ratio, Sums
from qualgate.text.numbers import counted

LEAST_TESTED = 200  # tokens of a task: fewer say too little of how many are rejected
NO_DRAFT = "nothing was proposed"


def levels_of(
    units: Sequence[UnitEvidence], clusters: NDArray, tasks: Sequence[str], alpha: float
) -> tuple[DraftLevel, ...]:
    """Summarise each level, from the first down. clusters, tasks: of each unit. alpha: of each bound."""
    steps = [(answer, step) for answer, unit in enumerate(units) for step in unit.draft_steps if decodes(step)]
    return tuple(
        _summarize_level(
            level, [numbered_step for numbered_step in steps if numbered_step[1].level == level], clusters, tasks, alpha
        )
        for level in sorted({step.level for _, step in steps})
    )


def decodes(step: DraftStep) -> bool:
    """Whether the step belongs to a decoding pass. Prefill gave the first token and had no draft."""
    return step.position > 0 or step.proposed > 0


def passes_of(steps: Sequence[tuple[int, DraftStep]], answers: int) -> Passes:
    """Turn steps into arrays. steps: of one level, each with the number of its answer."""
    names = ("proposed", "accepted", "rejected", "unverified")
    columns = {name: np.array([getattr(step, name) for _, step in steps], int) for name in names}
    overlap = np.array([np.nan if step.overlap is None else step.overlap for _, step in steps], float)
    return Passes(answer=np.array([answer for answer, _ in steps], int), answers=answers, overlap=overlap, **columns)


def _summarize_level(
    level: int, steps: Sequence[tuple[int, DraftStep]], clusters: NDArray, tasks: Sequence[str], alpha: float
) -> DraftLevel:
    """Summarize one level's passes: counts, rates with bounds, acceptance by position and rejection by task.

    steps: (index of the answer, pass). clusters, tasks: of each answer.
    """
    passes = passes_of(steps, len(clusters))
    sums = Sums.of(_sums_by_answer(passes, tasks), clusters)

    def rate(numerator: str, denominator: str) -> Rate:
        return _rate(sums, sums.ratio(numerator, denominator, alpha, nothing=NO_DRAFT), numerator, denominator)

    def share(numerator: str, denominator: str, nothing: str = NO_DRAFT) -> Rate:
        return share_of(sums, numerator, denominator, alpha, nothing)

    return DraftLevel(
        level=level,
        proposer=_proposers(steps),
        passes=len(steps),
        without_draft=len(steps) - int(passes.verifies.sum()),
        verifications=int(passes.verifies.sum()),
        proposed=int(passes.proposed.sum()),
        accepted=int(passes.accepted.sum()),
        rejected=int(passes.rejected.sum()),
        discarded=int(passes.discarded.sum()),
        unverified=int(passes.unverified.sum()),
        acceptance_rate=share("accepted", "proposed"),
        proposed_per_verification=rate("proposed", "verifications"),
        accepted_per_verification=rate("accepted", "verifications"),
        tokens_per_verification_with_bonus=rate("with bonus", "verifications"),
        positions=tuple(
            DraftPosition(
                position=position,
                unconditional=share(f"accepted at {position}", "verifications"),
                conditional=share(f"accepted at {position}", f"tested at {position}", "nothing was tested here"),
            )
            for position in range(1, passes.longest + 1)
        ),
        rejection={task: _rejection(sums, task, alpha) for task in sorted(set(tasks))},
        accepted_of_tested=share("accepted by chance", "tested by chance") if passes.known.any() else None,
        overlap=rate("overlap", "tested by chance") if passes.known.any() else None,
    )


def _sums_by_answer(passes: Passes, tasks: Sequence[str]) -> dict[str, NDArray]:
    """Sum counts over each answer's passes: name → [answers]. tasks: of each answer."""
    columns = {
        "proposed": passes.proposed,
        "accepted": passes.accepted,
        "verifications": passes.verifies,
        "with bonus": passes.accepted + passes.verifies,
        "accepted by chance": passes.accepted * passes.known,
        "tested by chance": (passes.accepted + passes.rejected) * passes.known,
        "overlap": np.where(passes.known, passes.overlap, 0.0),
    }
    for position in range(1, passes.longest + 1):
        columns |= {
            f"tested at {position}": passes.tested_at(position),
            f"accepted at {position}": passes.accepted_at(position),
        }
    sums = {name: passes.by_answer(values) for name, values in columns.items()}
    rejected, tested = passes.by_answer(passes.rejected), passes.by_answer(passes.rejected + passes.accepted)
    task_of_answer = np.array(tasks)
    for task in sorted(set(tasks)):
        sums |= {
            f"rejected in {task}": rejected * (task_of_answer == task),
            f"tested in {task}": tested * (task_of_answer == task),
        }
    return sums


def share_of(sums: Sums, numerator: str, denominator: str, alpha: float, nothing: str) -> Rate:
    """The share of the second sum that the first makes up, with its bounds."""
    return _rate(sums, sums.share(numerator, denominator, alpha, nothing=nothing), numerator, denominator)


def _rate(sums: Sums, ratio: Ratio, numerator: str, denominator: str) -> Rate:
    return Rate(
        numerator=sums.whole[numerator], denominator=sums.whole[denominator], value=ratio.value, lower=ratio.lower,
        upper=ratio.upper, reason=ratio.reason,
    )  # fmt: skip


def _rejection(sums: Sums, task: str, alpha: float) -> Rate:
    rate = share_of(sums, f"rejected in {task}", f"tested in {task}", alpha, "insufficient: nothing was tested")
    if not 0 < rate.denominator < LEAST_TESTED:
        return rate
    reason = f"insufficient: {counted(int(rate.denominator), 'token')} tested, {LEAST_TESTED} needed"
    return Rate(numerator=rate.numerator, denominator=rate.denominator, value=None, reason=reason)


def _proposers(steps: Sequence[tuple[int, DraftStep]]) -> str:
    """Names of the proposers, the most frequent first."""
    often: dict[str, int] = {}
    for _, step in steps:
        if step.proposer:
            often[step.proposer] = often.get(step.proposer, 0) + 1
    return ", ".join(sorted(often, key=lambda name: (-often[name], name)))


def passes_saved(units: Sequence[UnitEvidence], clusters: NDArray, alpha: float) -> Rate:
    """1 − Σ passes of the target / Σ tokens, both without prefill and its token. Each answer counts its own passes,
    however many answers shared one. Passes of lower levels are not the target's."""
    counts_by_answer = [_decoding(unit) for unit in units]
    tokens, passes = (np.array([row[index] for row in counts_by_answer], float) for index in (0, 1))
    sums = Sums.of({"tokens": tokens, "saved": tokens - passes}, clusters)
    return share_of(sums, "saved", "tokens", alpha, "no answer has a token after its first")


def _decoding(unit: UnitEvidence) -> tuple[int, int]:
    """(tokens, passes) from the first step on; (0, 0) if no step was recorded."""
    steps = [step for step in unit.draft_steps if step.level == 1]
    if not steps or unit.tokens is None:
        return 0, 0
    first = max(1, min(step.position for step in steps))
    return unit.tokens - first, sum(step.position > 0 for step in steps)


def tasks_of(units: Sequence[UnitEvidence], tasks: Mapping[tuple[str, str], str]) -> list[str]:
    """The task of each unit; its evalset's name if its case names none."""
    return [tasks.get((unit.key.evalset, unit.key.case_id), unit.key.evalset) for unit in units]
