"""A draft that is never right is named as soon as its tested tokens surely say so, and not before."""

from __future__ import annotations

from math import comb

from qualgate.gate.causes.wasted_drafts import ALPHA, FEWEST, NEVER, wasted_drafts
from qualgate.records import DraftLevel, Gain, Rate

UNKNOWN = Rate(numerator=0, denominator=0, value=None, reason="nobody timed it")
GAIN = Gain(against="baseline", same_weights=True, measured=UNKNOWN, predicted=None)


def level(tested: int, accepted: int, tokens: int = 2) -> DraftLevel:
    """Of drafts of `tokens` each; behind a rejected token none was tested."""
    rejected = tested - accepted
    proposed = max(tested, tokens * rejected)

    def a_verification(count: int) -> Rate:
        times = max(1, rejected)
        return Rate(numerator=count, denominator=times, value=count / times if tested else None)

    return DraftLevel(
        level=1, proposer="int4 draft", passes=900, without_draft=900 - rejected, verifications=rejected,
        proposed=proposed, accepted=accepted, rejected=rejected, discarded=proposed - tested, unverified=0,
        acceptance_rate=UNKNOWN, proposed_per_verification=a_verification(proposed),
        accepted_per_verification=a_verification(accepted), tokens_per_verification_with_bonus=UNKNOWN, positions=(),
        rejection={},
    )  # fmt: skip


def named(tested: int, accepted: int) -> str:
    said, wasted = wasted_drafts([level(tested, accepted)], GAIN, {})
    assert wasted == bool(said)
    return "".join(said)


def test_it_is_named_exactly_where_a_draft_of_the_target_would_hardly_ever_fare_so() -> None:
    for tested in range(200):
        for accepted in range(min(tested + 1, 6)):
            chances = [comb(tested, k) * FEWEST**k * (1 - FEWEST) ** (tested - k) for k in range(accepted + 1)]
            expected = accepted < NEVER * tested and sum(chances) < ALPHA
            assert bool(named(tested, accepted)) == expected, (tested, accepted)
