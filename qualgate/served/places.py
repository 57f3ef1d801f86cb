"""Log-probs that a server lists at each place of an answer that it read, and the token it would generate there.

A list has vLLM's form: the likeliest tokens by rank, and the token of the answer. One that is no part of a
distribution, or not of the tokens that were sent, is refused (ValueError).
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

WITHIN = 1e-5  # nats of error in a log-prob: of a float32 softmax, printed with some seven digits
UNKNOWN = 2**31  # tokens of a vocabulary of unknown size, for which a KL has no upper bound
Ranks = Mapping[str, Ranked]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """One place of an answer. top: the likeliest token; given: the log-prob of the answer's own token."""

    top: int
    given: float
    listed: Listed

    def logprob(self, token: int) -> float | None:
        """Return a token's log-prob in nats; None if it is not listed."""
        index = int(np.searchsorted(self.listed.tokens, token))
        is_listed = index < len(self.listed.tokens) and self.listed.tokens[index] == token
        return float(self.listed.logprobs[index]) if is_listed else None


def places(lists: Sequence[Ranks | None], prompt: int, answer: Sequence[int], vocabulary: int | None) -> list[Place]:
    """Return the places of an answer, read behind a prompt of so many tokens. vocabulary: of the arm's tokenizer.

    ValueError for lists of another text, and for what no distribution can be.
    """
    if len(lists) != prompt + len(answer):
        raise ValueError(f"it lists {len(lists)} places of {prompt + len(answer)} tokens that were sent")
    pairs = [_place(ranks, token, vocabulary or UNKNOWN) for ranks, token in zip(lists[prompt:], answer, strict=True)]
    if vocabulary is None or not all(ends for _, ends in pairs):
        # An occasional last rank may be due to a vocabulary larger than the folder's.
        return [_open(place) for place, _ in pairs]
    return [place for place, _ in pairs]


def _place(ranks: Ranks | None, token: int, vocabulary: int) -> tuple[Place, bool]:
    """Return the place of one token of an answer, and whether the listed tokens reach down to the least likely one.

    ranks: the listed tokens; token: the one that stands there. ValueError if they are no distribution's.
    """
    if ranks is None or str(token) not in ranks:
        raise ValueError(f"it does not list token {token}, which stands there: it read other tokens than were sent")
    numbers = np.array([int(name) for name in ranks], np.int64)
    values = np.array([entry.logprob for entry in ranks.values()], np.float64)
    by_rank = {entry.rank: entry.logprob for entry in ranks.values()}
    if len(np.unique(numbers)) != len(numbers) or numbers.max() >= vocabulary or max(by_rank) > vocabulary:
        raise ValueError(f"it lists a token twice, or one beyond the {vocabulary:,} that the tokenizer's folder knows")
    ranked = [by_rank[rank] for rank in sorted(by_rank)]
    if 1 not in by_rank or any(later > before + WITHIN for before, later in pairwise(ranked)):
        raise ValueError("its ranks are not those of its log-probs")
    if values.max() > WITHIN or np.exp(values).sum() > 1 + 1e-3:
        raise ValueError("its log-probs add up to more than a probability of 1")
    top = next(int(name) for name, entry in ranks.items() if entry.rank == 1)
    last_consecutive = 1
    while last_consecutive + 1 in by_rank:
        last_consecutive += 1
    order = np.argsort(numbers)
    ends = vocabulary in by_rank
    listed = Listed(
        tokens=numbers[order],
        logprobs=np.minimum(values[order], 0.0),
        most=min(0.0, by_rank[last_consecutive]),
        least=by_rank[vocabulary] if ends else -inf,
    )
    return Place(top=top, given=min(0.0, ranks[str(token)].logprob), listed=listed), ends


def _open(place: Place) -> Place:
    listed = Listed(tokens=place.listed.tokens, logprobs=place.listed.logprobs, most=place.listed.most)
    return Place(top=place.top, given=place.given, listed=listed)


def common(answer: Sequence[int], read: Sequence[Place]) -> int:
    """Return how many of the answer's first tokens the arm that read it would have generated itself."""
    return next((index for index, token in enumerate(answer) if read[index].top != token), len(answer))


def drift(
    key: UnitKey, answer: Sequence[int], baseline: Sequence[Place], variant: Sequence[Place], vocabulary: int | None
) -> Drift:
    """Return the drift of one answer of the baseline's, not empty, that both read; `length_ratio` stays None."""
    bounds = [
        kl_bounds(baseline_place.listed, variant_place.listed, vocabulary or UNKNOWN, WITHIN)
        for baseline_place, variant_place in zip(baseline, variant, strict=True)
    ]
    differs = tuple(
        index
        for index, (baseline_place, variant_place) in enumerate(zip(baseline, variant, strict=True))
        if baseline_place.top != variant_place.top
    )
    common_length = common(answer, variant)
    return Drift(
        key=key,
        kl=tuple(lower for lower, _ in bounds),
        kl_upper=tuple(upper for _, upper in bounds),
        top1_agreement=(len(answer) - len(differs)) / len(answer),
        first_divergence=common_length if common_length < len(answer) else None,
        length_ratio=None,
        top1_differs=differs,
    )
