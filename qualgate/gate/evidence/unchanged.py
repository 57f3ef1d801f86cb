"""Say that no answer differs: the variant is as good as its baseline, or is the baseline itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qualgate.gate.evidence.checks import Pair
from qualgate.records import UnitEvidence
from qualgate.text.numbers import counted


def unchanged(pairs: Mapping[str, Sequence[Pair]]) -> tuple[str, ...]:
    """One line where every score equals the baseline's and no text is known to differ, else none."""
    every = [pair for of_set in pairs.values() for pair in of_set]
    scores = sum(len(pair.baseline.scorers) for pair in every)
    if not scores or any(_differ(pair.baseline, pair.variant) for pair in every):
        return ()
    texts = [(_text(pair.baseline), _text(pair.variant)) for pair in every]
    if not all(before and before[:1] == after[:1] for before, after in texts):
        return (f"no score differs: all {counted(scores, 'score')} equal the baseline's, and the texts are not known",)
    return (f"no answer differs: all {counted(scores, 'score')} and texts equal the baseline's",)


def _differ(baseline: UnitEvidence, variant: UnitEvidence) -> bool:
    if any(baseline.values.get(name) != variant.values.get(name) for name in {*baseline.scorers, *variant.scorers}):
        return True
    before, after = _text(baseline), _text(variant)
    return before[:1] == after[:1] and before != after


def _text(unit: UnitEvidence) -> tuple[str, ...]:
    """(kind of record, record) by which the answer's text is known; empty where none is."""
    if tokens := unit.token_ids or unit.answer:
        return "tokens", tokens.hex()
    if unit.tokens_sha256:
        return "sha256 of tokens", unit.tokens_sha256
    return ("sha256 of text", unit.text_sha256) if unit.text_sha256 else ()
