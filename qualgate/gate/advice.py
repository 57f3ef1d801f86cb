"""Advise what would let a quality rule decide. Verdicts and `qualgate plan` both take their advice from here.

Advice rests on two rates: on how many cases the baseline is right, and how many answers flip where a variant is as good
as the baseline. `plan` assumes them or reads them in an earlier run, a verdict has measured them.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from math import ceil, floor

from qualgate.records import Rule
from qualgate.records.metrics import MARGINS_OF_BASELINE
from qualgate.stats.intervals import normal_quantile
from qualgate.stats.power import MOST_PAIRS

SENSITIVITY_ALPHA = 0.05  # of the baseline's own lower bound, whatever the policy's alpha
LEAST_BASELINE_RATE = 0.20
ENOUGH = 0.8  # `plan` advises a change to a policy that approves an identical variant more rarely
AIM = 0.9  # rate that the advised cases reach: at `ENOUGH` each fifth identical variant would stay undecided
STEP = 0.005  # of advised margins

LOOK = (
    "see what {} says (qualgate answers RUN --show both-wrong): another metric may count it (qualgate "
    "rescore), or ask easier cases"
)

ON_UNFINISHED = {  # by how answers are unfinished, see `causes.unfinished.WAYS`
    "cut": "raise `max_new_tokens`",
    "cut alone": "read how they go on: they repeat themselves, or `max_new_tokens` is too small for them",
    "cut early": "raise the server's context length, or its own limit of an answer: they end before `max_new_tokens`",
    "no end": "read how these answers end (`finish_reason`)",
    "swallowed": "read them: the model wrote blanks, or a reasoning parser took their text",
    "no text": "read what the server sent: a reasoning parser or the harness may have taken the text",
    "empty": "read what the server sent",
    "unfiltered": "score them by a filter that finds what these texts hold",
}


def advise_on_unfinished(ways: Collection[str], *, alone: bool = False) -> str:
    """Advise on answers unfinished in these ways. alone: the other side finished the answers that are cut here."""
    ways = {"cut alone" if alone and way == "cut" else way for way in ways}
    return "; ".join(advice for way, advice in ON_UNFINISHED.items() if way in ways)


def bound_of(rule: Rule) -> tuple[str, float]:
    """(name, value) of a quality rule's bound; for other rules any name and 0."""
    return ("max_relative_drop", rule.max_relative_drop) if rule.max_relative_drop else ("max_drop", rule.max_drop or 0)


def enough_right(rule: Rule, margin: float) -> float:
    """The rate that the baseline's lower bound must reach before it can lose the margin."""
    return max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin if rule.max_drop is not None else 0.0)


def cases_surely_right(right: float, enough: float, target: float = AIM) -> int | None:
    """Independent cases for which the lower bound reaches `enough` with chance `target`; None: no number does."""
    spare = right - enough
    if spare <= 0:
        return None
    reach = normal_quantile(1 - SENSITIVITY_ALPHA) + normal_quantile(target)
    return ceil(reach**2 * right * (1 - right) / spare**2) + ceil(1 / spare)


def cases_about(right: float, flips: float, margin: float, alpha: float) -> int | None:
    """Estimate the independent cases that prove a `max_drop` for an identical variant in `AIM` of runs; None: too many.

    (z_alpha + z_AIM)² flips / margin² + 2 / margin. The second part stands for the exact test's whole numbers: within
    10 % of `pairs_to_approve` for margins of 1 to 10 points and 1 to 35 % flips, at a thousandth of its time.
    """
    sure = cases_surely_right(right, max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin))
    reach = normal_quantile(1 - alpha) + normal_quantile(AIM)
    cases = max(ceil(reach**2 * flips / margin**2 + 2 / margin), sure or 0)
    return None if sure is None or cases > MOST_PAIRS else cases


def advise_on_baseline(rule: Rule, right: float, flips: float | None, alpha: float) -> str:
    """Advise where the baseline is not surely right on enough cases to lose the margin.

    flips: None unless the cases are independent and the rule has a `max_drop`: then no number of cases is predicted.
    """
    margin = bound_of(rule)[1]
    if right > enough_right(rule, margin):
        if flips is None or rule.max_drop is None:
            return "more such cases would do"
        cases = cases_about(right, flips, margin, alpha)
        return f"about {cases:,} such cases would do" if cases else "no number of such cases would do"
    by = json.dumps(rule.scope) if ":" in rule.scope else rule.scope
    leave_out = f"; or leave it out, `per: {{by: {by}, skip: below_floor}}`" if _can_skip(rule) else ""
    look = LOOK.format(rule.against or "the baseline")
    return f"no number of such cases would do{_narrower(rule, right, flips, alpha)}; {look}{leave_out}"


def _can_skip(rule: Rule) -> bool:
    return rule.scope != "pooled" and rule.evalset is None and not rule.skip


def _narrower(rule: Rule, right: float, flips: float | None, alpha: float) -> str:
    """Suggest a smaller `max_drop` that such a baseline can lose, and about how many cases prove it; "": none."""
    if rule.max_drop is None or flips is None:
        return ""
    margin = floor(0.9 * right / MARGINS_OF_BASELINE / STEP) * STEP
    cases = cases_about(right, flips, margin, alpha) if margin > 0 else None
    return f", but `max_drop: {margin:g}` with about {cases:,} of them" if cases else ""
