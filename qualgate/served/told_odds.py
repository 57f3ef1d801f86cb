"""How surely a server said its tokens, by the log-probabilities that it tells of the likeliest two at each place.

Which sampling they are told before or after differs by engine and by flag, so of drawn tokens the larger of both
readings is taken: they then seem surer than they are, never less sure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from qualgate.records import Prompt, Served
from qualgate.stats.greedy_sampler import SURE, log_e_values

MOST_NATS = 1e6
ROUNDED = 1e-4  # nats by which a server may tell the same token twice otherwise, here and in the list beside
TOLD = 2  # log-probabilities asked for at each place: of the likeliest and the next


def margins_told(chosen: Sequence[float | None], tops: Any) -> list[float | None]:
    """Of each token its log-probability less that of the likeliest other one; None where that is not told.

    tops: `top_logprobs` as OpenAI's completions have it, at each place a log-probability by token, the chosen one's
    among them. Two tokens of one spelling are one there, and may leave nothing to compare with.
    """
    found = list(tops) if isinstance(tops, list) else []
    padded = [*found, *[None] * (len(chosen) - len(found))]
    return [_margin(one, top) for one, top in zip(chosen, padded, strict=False)]


def _margin(chosen: float | None, top: Any) -> float | None:
    if chosen is None or not isinstance(top, Mapping):
        return None
    values = sorted((one for one in top.values() if _is_logprob(one)), reverse=True)
    own = min(values, key=lambda one: abs(one - chosen), default=None)
    if own is not None and abs(own - chosen) <= ROUNDED:
        values.remove(own)
    return chosen - values[0] if values else None


def _is_logprob(value: Any) -> bool:
    """A finite number; an integer of hundreds of digits, which JSON has and no float holds, is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST_NATS < value < MOST_NATS


def asked_plainly(prompt: Prompt, served: Served) -> bool:
    """Whether a prompt's tokens are drawn of the law that is told: not masked, not penalized, not biased."""
    constrained = bool(prompt.asked) and "response_format" in json.loads(prompt.asked)
    return not (prompt.constraint or constrained or prompt.sampling.penalties or served.extra_body)


def odds_of_drawing(prompt: Prompt, served: Served, margins: Sequence[float]) -> tuple[float, ...]:
    """`log_e_values` of an answer's tokens; () of one that tells nothing of its sampler."""
    drawn = prompt.sampling
    if not (drawn.drawn and margins and asked_plainly(prompt, served)) or drawn.top_k == 1:
        return ()
    scale = max(1.0, 1 / drawn.temperature)
    return log_e_values([scale * one for one in margins], min(SURE, drawn.top_p, 1 / (1 + drawn.min_p)))
