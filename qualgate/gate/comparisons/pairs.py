"""The pairs that a slice is about, and which of them may depend on each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.evidence.checks import Pair
from qualgate.gate.evidence.time_groups import timed_together
from qualgate.gate.rules import Slice


def pairs_of(slice_: Slice, pairs: Mapping[str, Sequence[Pair]]) -> list[Pair]:
    """Pairs that the slice covers. pairs: by evalset."""
    return [
        pair
        for name in slice_.evalsets
        for pair in pairs.get(name, ())
        if slice_.holds(name, pair.baseline.key.case_id)
    ]


def clusters_of(pairs: Sequence[Pair]) -> NDArray:
    """[pairs] the number of each one's cluster."""
    return np.array([pair.cluster for pair in pairs])


def time_groups_of(pairs: Sequence[Pair]) -> tuple[NDArray, str]:
    """([pairs] equal numbers where times may depend on each other, why no test is possible): see `timed_together`."""
    return timed_together(clusters_of(pairs), [pair.baseline for pair in pairs], [pair.variant for pair in pairs])
