"""NeMo Evaluator's gate on one benchmark: a 95 % t interval of the paired differences held against `max_drop`.

An interval wholly below passes, wholly above fails, else the rule cannot say. The relative guard comes first and uses
the point estimate. Fewer than 10 pairs have no interval, and only cases that both arms answered count. The peer
clusters its interval by category if every row has one, and without pairs falls back on intervals of each arm in the
result file. Stored evidence has neither.
"""

from __future__ import annotations

from math import sqrt

from scipy.special import stdtrit

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, Says, cannot, unanswered
from qualgate.text.numbers import counted

NAME = "nel_v1"
SOURCE = "NVIDIA-NeMo/Evaluator: src/nemo_evaluator/engine/gate.py"
LEAST_PAIRS = 10
CONFIDENCE = 0.95
_DIGITS = 6  # everything is rounded before it is compared


def interval(outcomes: Outcomes) -> tuple[float, float]:
    """95 % interval of the loss (baseline − variant), positive when something was lost."""
    d = outcomes.difference
    half = float(stdtrit(d.n - 1, (1 + CONFIDENCE) / 2)) * d.sd / sqrt(d.n)
    return round(-d.mean - half, _DIGITS) + 0.0, round(-d.mean + half, _DIGITS) + 0.0  # no minus zero


def judge(
    outcomes: Outcomes,
    *,
    max_drop: float = 0.015,
    max_relative_drop: float | None = None,
    relative_guard_below: float | None = None,
    advisory: bool = False,
) -> PeerVerdict:
    """Apply the rule. The statistic is the deciding bound of the loss: the upper one for a pass, the lower for a fail.

    advisory: with too few pairs the point estimate of the arms' means passes or fails.
    """
    d = outcomes.difference
    paired = d.n >= LEAST_PAIRS
    if paired:
        level, loss, of = round(outcomes.paired_level, _DIGITS), round(-d.mean, _DIGITS), f"{counted(d.n, 'pair')}"
    elif outcomes.baseline.n and outcomes.variant.n:
        level, loss = outcomes.baseline.mean, round(outcomes.baseline.mean - outcomes.variant.mean, _DIGITS)
        of = f"only {counted(d.n, 'pair')}, it asks for {LEAST_PAIRS}: the arms' means"
    else:
        return cannot(NAME, SOURCE, unanswered(outcomes))

    def says(word: Says, statistic: float, threshold: float, why: str) -> PeerVerdict:
        return PeerVerdict(
            name=NAME, says=word, statistic=statistic, threshold=threshold, why=f"{why} ({of})", source=SOURCE
        )

    guarded = relative_guard_below is None or level < relative_guard_below
    if max_relative_drop is not None and guarded and level != 0 and loss > 0 and loss / level > max_relative_drop:
        return says(
            "fail", loss / level, max_relative_drop, f"relative drop {loss / level:.1%} over {max_relative_drop:.1%}"
        )
    if not paired and advisory:
        return says("fail" if loss > max_drop else "pass", loss, max_drop, f"loss {loss:.4f} against {max_drop:g}")
    if not paired:
        return cannot(NAME, SOURCE, f"only {counted(d.n, 'paired case')} (it asks for {LEAST_PAIRS})")
    low, high = interval(outcomes)
    shown = f"95 % interval of the loss {low:.4f} to {high:.4f}"
    if low > max_drop:
        return says("fail", low, max_drop, f"{shown} is beyond {max_drop:g}")
    if high <= max_drop:
        return says("pass", high, max_drop, f"{shown} is within {max_drop:g}")
    return says("cannot", high, max_drop, f"{shown} straddles {max_drop:g}")


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
