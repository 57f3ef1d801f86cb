"""Certainty of a server's tokens, by its log-probabilities of the likeliest two at each place.

Whether these are before or after sampling parameters differs by engine and by flag, so for sampled tokens the larger of
both readings counts: they then seem more certain than they are, never less.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from qualgate.records import Prompt, Served
from qualgate.served.replies import Logprobs
from qualgate.stats.greedy_sampler import SURE, log_e_values

MOST_NATS = 1e6
ROUNDED = 1e-4  # nats by which a server may tell the same token twice otherwise, here and in the list beside
TOLD = 2  # log-probabilities asked for at each place: of the likeliest and the next


def margins_told(chosen: Sequence[float | None], tops: Any) -> list[float | None]:
    """Return each token's log-probability less that of the likeliest other one; None if not reported.

    tops: `top_logprobs` as in OpenAI's completions, at each place a log-probability by token, with the chosen one.
    Tokens of one spelling are one there, which may leave nothing to compare with.
    """
    lists = list(tops) if isinstance(tops, list) else []
    padded = [*lists, *[None] * (len(chosen) - len(lists))]
    return [_margin(logprob, top) for logprob, top in zip(chosen, padded, strict=False)]


def _margin(chosen: float | None, top: Any) -> float | None:
    """Return by how much the chosen token's log-probability exceeds the likeliest other one's; None if that is unknown.

    top: log-probabilities by token, among them the chosen one's, which may be rounded.
    """
    if chosen is None or not isinstance(top, Mapping):
        return None
    values = sorted((logprob for logprob in top.values() if _is_logprob(logprob)), reverse=True)
    nearest = min(values, key=lambda logprob: abs(logprob - chosen), default=None)
    if nearest is not None and abs(nearest - chosen) <= ROUNDED:
        values.remove(nearest)
    return chosen - values[0] if values else None


def _is_logprob(value: Any) -> bool:
    """Return whether a value is a finite number; an integer of hundreds of digits, beyond any float, is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST_NATS < value < MOST_NATS


def spelled(logprobs: Logprobs) -> list[tuple[str, float]]:
    """Return spelling and log-prob of each token, of a completion or a chat; [] if any is no text or no number."""
    places = logprobs.content if isinstance(logprobs.content, list) else []
    pairs = [(place.get("token"), place.get("logprob")) for place in places if isinstance(place, Mapping)]
    if isinstance(logprobs.tokens, list) and not places:
        pairs = list(zip(logprobs.tokens, logprobs.token_logprobs or (), strict=False))
    sound = [(text, value) for text, value in pairs if isinstance(text, str) and _is_logprob(value)]
    return sound if len(sound) == len(pairs) else []  # pyrefly: ignore[bad-return]


def asked_plainly(prompt: Prompt, served: Served) -> bool:
    """Return whether a prompt's tokens follow the reported distribution: not masked, penalized or biased."""
    constrained = bool(prompt.asked) and "response_format" in json.loads(prompt.asked)
    return not (prompt.constraint or constrained or prompt.sampling.penalties or served.extra_body)


def odds_of_drawing(prompt: Prompt, served: Served, margins: Sequence[float]) -> tuple[float, ...]:
    """Return the `log_e_values` of an answer's tokens; () if it is no evidence on the sampler."""
    drawn = prompt.sampling
    if not (drawn.drawn and margins and asked_plainly(prompt, served)) or drawn.top_k == 1:
        return ()
    scale = max(1.0, 1 / drawn.temperature)
    return log_e_values([scale * margin for margin in margins], min(SURE, drawn.top_p, 1 / (1 + drawn.min_p)))
