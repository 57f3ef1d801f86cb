"""A server's list at each place of an answer that it read: the token it would say there, and log-probs of some.

A list is taken as vLLM tells it: the likeliest tokens by rank, and the token that stands there. One that is no part of
a distribution, or not of the tokens that were sent, is refused (ValueError): nothing may rest on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

import numpy as np

from qualgate.records import Drift, UnitKey
from qualgate.served.replies import Ranked
from qualgate.stats.kl_bounds import Listed, kl_bounds

WITHIN = 1e-5  # nats that a log-prob may be off by: of a softmax in float32, told in some seven digits
UNKNOWN = 2**31  # tokens of a vocabulary whose size nobody told: then nothing closes a KL from above
Told = Mapping[str, Ranked]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """One place of an answer. top: the likeliest token; given: the log-prob of the one that stands there."""

    top: int
    given: float
    listed: Listed

    def logprob(self, token: int) -> float | None:
        """Nats; None where it is not listed."""
        at = int(np.searchsorted(self.listed.tokens, token))
        there = at < len(self.listed.tokens) and self.listed.tokens[at] == token
        return float(self.listed.logprobs[at]) if there else None


def places(told: Sequence[Told | None], prompt: int, answer: Sequence[int], vocabulary: int | None) -> list[Place]:
    """Of an answer that was read behind a prompt of so many tokens. vocabulary: as the arm's tokenizer folder says it.

    ValueError for lists of another text, and for what no distribution can be.
    """
    if len(told) != prompt + len(answer):
        raise ValueError(f"it lists {len(told)} places of {prompt + len(answer)} tokens that were sent")
    found = [_place(one, token, vocabulary or UNKNOWN) for one, token in zip(told[prompt:], answer, strict=True)]
    if vocabulary is None or not all(ends for _, ends in found):
        # A last rank now and then may be that of a token in a vocabulary that is larger than the folder says.
        return [_open(place) for place, _ in found]
    return [place for place, _ in found]


def _place(told: Told | None, token: int, vocabulary: int) -> tuple[Place, bool]:
    """The place, and whether its least likely token is among those listed."""
    if told is None or str(token) not in told:
        raise ValueError(f"it does not list token {token}, which stands there: it read other tokens than were sent")
    numbers = np.array([int(name) for name in told], np.int64)
    values = np.array([one.logprob for one in told.values()], np.float64)
    by_rank = {one.rank: one.logprob for one in told.values()}
    if len(np.unique(numbers)) != len(numbers) or numbers.max() >= vocabulary or max(by_rank) > vocabulary:
        raise ValueError(f"it lists a token twice, or one beyond the {vocabulary:,} that the tokenizer's folder knows")
    ranked = [by_rank[rank] for rank in sorted(by_rank)]
    if 1 not in by_rank or any(later > before + WITHIN for before, later in pairwise(ranked)):
        raise ValueError("its ranks are not those of its log-probs")
    if values.max() > WITHIN or np.exp(values).sum() > 1 + 1e-3:
        raise ValueError("its log-probs add up to more than a probability of 1")
    top = next(int(name) for name, one in told.items() if one.rank == 1)
    most = 1
    while most + 1 in by_rank:
        most += 1
    order = np.argsort(numbers)
    ends = vocabulary in by_rank
    listed = Listed(
        tokens=numbers[order],
        logprobs=np.minimum(values[order], 0.0),
        most=min(0.0, by_rank[most]),
        least=by_rank[vocabulary] if ends else -inf,
    )
    return Place(top=top, given=min(0.0, told[str(token)].logprob), listed=listed), ends


def _open(place: Place) -> Place:
    listed = Listed(tokens=place.listed.tokens, logprobs=place.listed.logprobs, most=place.listed.most)
    return Place(top=place.top, given=place.given, listed=listed)


def common(answer: Sequence[int], read: Sequence[Place]) -> int:
    """How many of the answer's tokens the arm that read it would have said itself, before the first other."""
    return next((at for at, token in enumerate(answer) if read[at].top != token), len(answer))


def drift(
    key: UnitKey, answer: Sequence[int], baseline: Sequence[Place], variant: Sequence[Place], vocabulary: int | None
) -> Drift:
    """Of one answer of the baseline's, of a token or more, that both read; its `length_ratio` is left open."""
    found = [
        kl_bounds(mine.listed, theirs.listed, vocabulary or UNKNOWN, WITHIN)
        for mine, theirs in zip(baseline, variant, strict=True)
    ]
    differs = tuple(
        at for at, (mine, theirs) in enumerate(zip(baseline, variant, strict=True)) if mine.top != theirs.top
    )
    alike = common(answer, variant)
    return Drift(
        key=key,
        kl=tuple(least for least, _ in found),
        kl_upper=tuple(most for _, most in found),
        top1_agreement=(len(answer) - len(differs)) / len(answer),
        first_divergence=alike if alike < len(answer) else None,
        length_ratio=None,
        top1_differs=differs,
    )
