"""Find the evalsets with too many unfinished answers on a side: cut off, empty, or not found by a filter.

Above the policy's `max_unfinished`, the baseline's share leaves the set undecided, and the variant's bars an approval.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from qualgate.gate.advice import advise_on_unfinished
from qualgate.gate.causes.unfinished import WAYS, way_unfinished
from qualgate.gate.evidence.checks import Pair
from qualgate.stats.intervals import binomial_lower

CHANCE = 0.01  # two-sided, of calling shares different that differ by chance alone, over all sets


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Evalset → one line with the shares of both sides."""

    baseline: Mapping[str, str] = field(default_factory=dict)  # too many of the baseline
    variant: Mapping[str, str] = field(default_factory=dict)  # too many of the variant alone
    differing: Mapping[str, str] = field(default_factory=dict)  # few on both sides, and surely more on one

    @property
    def lines(self) -> tuple[str, ...]:
        """All of them, in order of the sets."""
        return tuple(line for _, line in sorted({**self.baseline, **self.variant, **self.differing}.items()))


def unfinished_sets(pairs: Mapping[str, Sequence[Pair]], most_share: float) -> Unfinished:
    """The sets with more than the share `most` of unfinished answers on a side, or with shares that surely differ."""
    baseline, variant, differing = dict[str, str](), dict[str, str](), dict[str, str]()
    for name, chosen in pairs.items():
        before = Counter(filter(None, (way_unfinished(pair.baseline, pair.max_new_tokens) for pair in chosen)))
        after = Counter(filter(None, (way_unfinished(pair.variant, pair.max_new_tokens) for pair in chosen)))
        if not before and not after:
            continue
        n, base, arm = len(chosen), chosen[0].baseline.key.arm, chosen[0].variant.key.arm
        line = f"unfinished answers of {name}: {base} {_share(before, n)}, {arm} {_share(after, n)}"
        over = f"{line}, over `max_unfinished: {most_share:g}`"
        if before.total() > most_share * n:
            baseline[name] = f"{over}: {advise_on_unfinished(before)}"
        elif after.total() > most_share * n:
            variant[name] = f"{over}: {advise_on_unfinished(after, alone=not (before['cut'] or before['cut early']))}"
        elif _differ(chosen, CHANCE / len(pairs)):
            differing[name] = f"{line}, more than chance explains: {advise_on_unfinished(before + after)}"
    return Unfinished(baseline=baseline, variant=variant, differing=differing)


def by_arm(pairs: Mapping[str, Mapping[str, Sequence[Pair]]], most_share: float) -> dict[str, Unfinished]:
    """Arm → these sets in its pairs with the variant."""
    return {arm: unfinished_sets(of_arm, most_share) for arm, of_arm in pairs.items()}


def _share(ways: Counter[str], n: int) -> str:
    each = ", ".join(f"{ways[way]:,} {words}" for way, (words, _) in WAYS.items() if ways[way])
    return f"{ways.total():,} of {n:,} ({ways.total() / n:.1%}: {each})" if each else f"0 of {n:,}"


def _differ(pairs: Sequence[Pair], chance: float) -> bool:
    """Whether one side has more unfinished answers, by an exact sign test over clusters."""
    net: Counter[int] = Counter()
    for pair in pairs:
        net[pair.cluster] += bool(way_unfinished(pair.variant)) - bool(way_unfinished(pair.baseline))
    worse, better = sum(change > 0 for change in net.values()), sum(change < 0 for change in net.values())
    return binomial_lower(max(worse, better), worse + better, chance / 2) > 0.5
