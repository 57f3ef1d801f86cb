"""Does a server draw, where it was asked to? By the log-probabilities that it tells beside what it says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import log

from qualgate.errors import Exit
from qualgate.records import ArmEvidence, RunEvidence, Verdict
from qualgate.stats.greedy_sampler import log_e_value

GREEDY_ALPHA = 1e-4  # how often a server that draws may be said not to


def says_likeliest(arm: ArmEvidence) -> str:
    """That an arm's server surely says the likeliest token where it was to draw one, as a sentence; "" where it draws,
    was not asked to, or does not tell."""
    told = arm.generation.drawing
    if not told or log_e_value(told) < log(1 / GREEDY_ALPHA):
        return ""
    tens = min(int(log_e_value(told) / log(10)), 300)
    return (
        f"{arm.name}'s server says the likeliest token so often that one that draws by the probabilities it tells "
        f"would do so once in 10^{tens} times: it ignores the temperature"
    )


def with_sampler(verdicts: Iterable[Verdict], evidence: RunEvidence) -> tuple[Verdict, ...]:
    """The verdicts; none approves an arm that was not asked what its users will ask, nor against such a baseline."""
    arms = {arm.name: arm for arm in evidence.variants}

    def of(verdict: Verdict) -> Verdict:
        both = (evidence.baseline, *([arms[verdict.variant]] if verdict.variant in arms else []))
        said = tuple(filter(None, map(says_likeliest, both)))
        if not said or verdict.exit == Exit.INTEGRITY:
            return verdict
        if verdict.exit not in (Exit.APPROVE, Exit.REVIEW, Exit.UNDECIDED):
            return replace(verdict, reasons=(*verdict.reasons, *said))
        return replace(verdict, word="undecided", exit=int(Exit.UNDECIDED), reasons=(*said, *verdict.reasons))

    return tuple(map(of, verdicts))
