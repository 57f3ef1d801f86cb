"""Measure the slices of an earlier, intact run of the gate file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.acceptance import Terms, terms_of
from qualgate.gate.comparisons.by_metric import measure
from qualgate.gate.comparisons.lengths import having, longest, tokens
from qualgate.gate.comparisons.pairs import pairs_of
from qualgate.gate.comparisons.result import Measured
from qualgate.gate.evidence.checks import Examination, examine
from qualgate.gate.evidence.unfinished_sets import unfinished_sets
from qualgate.gate.planning.from_earlier_run.chances import UNTOLD
from qualgate.gate.rules import Slice
from qualgate.records import NOISE, TWIN, Policy, RunEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRun:
    """The comparable arms of an earlier run, and the terms of the planned policy."""

    run: str = ""  # its id; "" = there is none
    arms: tuple[Examination, ...] = ()  # most like the baseline first
    terms: Terms | None = None
    alpha: float = 0.05
    most_unfinished: float = 0.05

    @classmethod
    def of(cls, evidence: RunEvidence | None, policy: Policy) -> EarlierRun:
        """Take the intact arms of the run; empty without a run."""
        if evidence is None:
            return cls()
        sound = [
            examination
            for examination in examine(evidence)
            if examination.pairs and not examination.variant.endswith(TWIN)
        ]
        rerun = next((examination.pairs for examination in sound if examination.variant.endswith(NOISE)), {})
        arms = [replace(examination, about=replace(examination.about, rerun=rerun)) for examination in sound]
        return cls(
            run=evidence.run_id,
            arms=tuple(sorted(arms, key=lambda arm: (not same_weights(arm), _flips(arm, evidence), arm.variant))),
            terms=terms_of(evidence, policy),
            alpha=policy.alpha,
            most_unfinished=policy.max_unfinished,
        )

    def measured(self, slice_: Slice) -> Iterator[tuple[Examination, Measured]]:
        """Measure the slice on each arm, in order."""
        for arm in self.arms:
            yield arm, self.measure(slice_, arm)

    def measure(self, slice_: Slice, arm: Examination) -> Measured:
        """Measure the slice on one arm as the gate does."""
        return measure(
            slice_, arm.pairs, unfinished_sets(arm.pairs, self.most_unfinished), self.alpha, self.terms, arm.about
        )

    def itself(self, slice_: Slice) -> Measured | None:
        """Measure the slice on the baseline's own answers, as if a variant had given them."""
        if not self.arms:
            return None
        pairs = {
            name: tuple(replace(pair, variant=pair.baseline) for pair in of_set)
            for name, of_set in self.arms[0].pairs.items()
        }
        return self.measure(slice_, replace(self.arms[0], pairs=pairs))

    def lengths(self, slice_: Slice) -> NDArray:
        """Tokens of the baseline's answers or thoughts; [1] if unknown: all count as equally long."""
        metric = slice_.rule.metric
        pairs = [pair for arm in self.arms[:1] for pair in having(metric, pairs_of(slice_, arm.pairs))]
        token_counts = [tokens(metric, pair.baseline) or 0 for pair in pairs]
        return np.array(token_counts if any(token_counts) else [1], float)

    def longest(self, slice_: Slice) -> float | None:
        """The longest possible answer as a multiple of the baseline's mean; None: unknown."""
        return next((longest(slice_.rule.metric, pairs_of(slice_, arm.pairs)) for arm in self.arms), None)

    def silence(self, slice_: Slice, measured: Measured | None) -> str:
        """Say why the run predicts nothing for the slice. measured: its measurement."""
        if measured is None or not measured.obstacle:
            return UNTOLD
        why, *_ = measured.obstacle.removeprefix(f"{slice_.head}: ").split(". ")
        return f"in run {self.run} {why}"


def same_weights(arm: Examination) -> bool:
    """Whether the arm has the baseline's own weights."""
    return arm.variant.endswith(NOISE) or any(note.startswith("A/A") for note in arm.notes)


def _flips(arm: Examination, evidence: RunEvidence) -> int:
    """Number of scores that differ from the baseline's."""
    return sum(
        pair.baseline.values.get(metric) != pair.variant.values.get(metric)
        for name, pairs in arm.pairs.items()
        for pair in pairs
        for metric in evidence.metrics.get(name, ())
    )
