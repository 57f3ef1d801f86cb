"""The law of speculation: what drafts of γ tokens gain, from what is accepted of them and what passes cost.

Leviathan et al. (2211.17192, theorem 3.8) have S = τ / (v + γ c) for answers without end. Here answers end: some are
short beside a draft, and those of a batch end one by one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from qualgate.engine.speculation.steps import Step

ALIKE = 2.0  # drafts of an answer that are believed to fare as all answers' do


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What became of drafts. drafted: share of passes that had one; chances: of its first token, its second, ..., to be
    accepted if those before it were."""

    drafted: float
    chances: Sequence[float]


def accepted(steps: Sequence[Step], others: Accepted | None = None) -> Accepted:
    """From what became of each, the pass that read the prompt apart. A token that was not verified tells nothing.
    others: what is believed to have become of some drafts more."""
    steps = [one for one in steps if one.position]
    believed, weight = (others, ALIKE) if others else (Accepted(drafted=0.0, chances=()), 0.0)
    found: list[float] = []
    for place in range(max((len(believed.chances), *(one.proposed for one in steps)))):
        reached = [one.accepted > place for one in steps if one.proposed > place and one.accepted >= place]
        likely = [weight * chance for chance in believed.chances[place : place + 1]]
        if not (reached or likely):
            break
        found.append((sum(reached) + sum(likely)) / (len(reached) + weight * len(likely)))
    drafts = sum(one.proposed > 0 for one in steps) + weight * believed.drafted
    return Accepted(drafted=drafts / (len(steps) + weight or 1), chances=found)


def accepted_of_each(steps: Sequence[Step], answers: int) -> list[Accepted]:
    """Likewise of each answer by itself: of places where few of its drafts came, mostly what became of all answers'. An
    answer that is drafted for worse than others ends last, so means over answers would promise a batch too much."""
    whole = accepted(steps)
    return [accepted([one for one in steps if one.row == row], whole) for row in range(answers)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """Seconds of the target's passes and of drafting. target: by sequences and γ, on a grid; draft: by sequences, once
    and for each token, {} for drafts that are looked up. A self-draft reads no prompt: it sees its target's keys."""

    target: Mapping[tuple[int, int], float]
    draft: Mapping[int, tuple[float, float]]

    @property
    def shown(self) -> dict[str, Any]:
        """As a result has it."""
        target = {f"{count} x (1 + {tokens})": seconds for (count, tokens), seconds in self.target.items()}
        return {"passes": target, "drafting": dict(self.draft)}

    def seconds(self, sequences: int, tokens: float) -> float:
        """Of a target's pass over so many sequences with drafts of so many tokens on average; between what was
        measured as lines have it."""
        widths = sorted({count for count, _ in self.target})
        lengths = sorted({length for _, length in self.target})
        of_width = {
            width: _between(tokens, lengths, [self.target[width, length] for length in lengths]) for width in widths
        }
        return _between(sequences, widths, [of_width[width] for width in widths])

    def drafting(self, sequences: int, tokens: float) -> float:
        """Of drafts of so many tokens."""
        if not self.draft or not tokens:
            return 0.0
        widths = sorted(self.draft)
        once, each = (_between(sequences, widths, [self.draft[width][part] for width in widths]) for part in (0, 1))
        return once + tokens * each


def predicted(lengths: Sequence[int], tokens: int, fate: Accepted | Sequence[Accepted], times: PassTimes) -> float:
    """How much sooner answers of such lengths end, counted from their first tokens, with drafts of `tokens` tokens.

    lengths: tokens of each answer of one batch; fate: of all answers' drafts, or of each answer's. 1 where no answer
    has a second token.
    """
    if max(lengths) < 2:
        return 1.0
    fates = [fate] * len(lengths) if isinstance(fate, Accepted) else fate
    return _decoding(lengths, 0, fates, times) / _decoding(lengths, tokens, fates, times)


def _decoding(lengths: Sequence[int], tokens: int, fates: Sequence[Accepted], times: PassTimes) -> float:
    """Seconds until the last answer ends; the longest go on alone when others are over."""
    each = zip(lengths, fates, strict=True)
    courses = sorted((*course_of(length - 1, tokens, fate), fate.drafted) for length, fate in each)
    seconds, before = 0.0, 0.0
    for over, (count, _, _) in enumerate(courses):
        going = len(courses) - over
        drafted = sum(share for _, _, share in courses[over:]) / going
        most = sum(length for _, length, _ in courses[over:]) / going
        seconds += (count - before) * (_pass(going, most, drafted, times) + times.drafting(going, most))
        before = count
    return seconds


def _pass(sequences: int, tokens: float, drafted: float, times: PassTimes) -> float:
    """Expected seconds of a target's pass in which each sequence has a draft with probability `drafted`."""
    return sum(
        comb(sequences, count)
        * drafted**count
        * (1 - drafted) ** (sequences - count)
        * times.seconds(sequences, tokens * count / sequences)
        for count in range(sequences + 1)
    )


def course_of(length: int, tokens: int, fate: Accepted) -> tuple[float, float]:
    """Expected passes until `length` tokens are said, each of which says those accepted of `tokens` and its own, and
    how many are drafted in one of them on average: no draft goes on beyond the answer's end."""
    shares = _shares(tokens, fate)
    passes, drafted = [0.0], [0.0]
    for left in range(1, length + 1):
        passes.append(1 + _rest(passes, shares, left))
        drafted.append(min(tokens, left) + _rest(drafted, shares, left))
    return passes[max(0, length)], drafted[max(0, length)] / (passes[max(0, length)] or 1)


def _rest(of: Sequence[float], shares: Sequence[float], left: int) -> float:
    return sum(share * of[max(0, left - count)] for count, share in enumerate(shares, 1))


def tokens_a_pass(tokens: int, fate: Accepted) -> float:
    """Expected tokens of a pass, its own included (τ)."""
    return sum(share * count for count, share in enumerate(_shares(tokens, fate), 1))


def _shares(tokens: int, fate: Accepted) -> list[float]:
    """Of passes that say one token, two, ..."""
    shares, reached = [], fate.drafted
    chances = [*fate.chances, *[fate.chances[-1] if fate.chances else 0.0] * tokens][:tokens]
    before = 1.0
    for chance in chances:
        now = reached * chance
        shares.append(before - now)
        before = reached = now
    return [*shares, before]


def _between(at: float, places: Sequence[float], values: Sequence[float]) -> float:
    """On the line between the two nearest places; as at the last one beyond it."""
    right = bisect_left(places, at)
    if right == 0:
        return values[0]
    if right == len(places):
        return values[-1]
    left = right - 1
    share = (at - places[left]) / (places[right] - places[left])
    return values[left] + share * (values[right] - values[left])
