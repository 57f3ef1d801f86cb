"""Count why answers ended in both arms, to show beside a verdict. A rule reads `format.finished` instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from qualgate.gate.evidence.checks import Pair


def stop_reasons(pairs: Iterable[Pair]) -> dict[str, int]:
    """ "eos → length": how many answers ended so in the baseline and then so in the variant; the frequent ones first.

    {} where it is not recorded of every pair (scores from files say only that an answer was cut off).
    """
    transitions = Counter((pair.baseline.finish_reason, pair.variant.finish_reason) for pair in pairs)
    if any(not before or not after for before, after in transitions):
        return {}
    by_count = sorted(transitions.items(), key=lambda item: (-item[1], item[0]))
    return {before if before == after else f"{before} → {after}": count for (before, after), count in by_count}
