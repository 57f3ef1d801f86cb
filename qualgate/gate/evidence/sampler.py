"""Detect a server that is greedy where it should sample, from the log-probabilities beside its tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import log

from qualgate.errors import Exit
from qualgate.records import ArmEvidence, RunEvidence, Verdict
from qualgate.stats.greedy_sampler import log_e_value

GREEDY_ALPHA = 1e-4  # how often a server that samples may be called greedy


def says_likeliest(arm: ArmEvidence) -> str:
    """Say that an arm's server surely picks the likeliest token though it should sample; "" where it samples, was not
    asked to, or sent no log-probabilities."""
    draws = arm.generation.drawing
    if not draws or log_e_value(draws) < log(1 / GREEDY_ALPHA):
        return ""
    tens = min(int(log_e_value(draws) / log(10)), 300)
    return (
        f"{arm.name}'s server says the likeliest token so often that one that draws by the probabilities it tells "
        f"would do so once in 10^{tens} times: it ignores the temperature"
    )


def with_sampler(verdicts: Iterable[Verdict], evidence: RunEvidence) -> tuple[Verdict, ...]:
    """Make approvals undecided where the arm's or the baseline's server ignored the sampling settings."""
    arms = {arm.name: arm for arm in evidence.variants}

    def annotated(verdict: Verdict) -> Verdict:
        both = (evidence.baseline, *([arms[verdict.variant]] if verdict.variant in arms else []))
        notes = tuple(filter(None, map(says_likeliest, both)))
        if not notes or verdict.exit == Exit.INTEGRITY:
            return verdict
        if verdict.exit not in (Exit.APPROVE, Exit.REVIEW, Exit.UNDECIDED):
            return replace(verdict, reasons=(*verdict.reasons, *notes))
        return replace(verdict, word="undecided", exit=int(Exit.UNDECIDED), reasons=(*notes, *verdict.reasons))

    return tuple(map(annotated, verdicts))
