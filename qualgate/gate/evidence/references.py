"""Hold variants against further arms of their run (`gate: {against: …}`), each in the baseline's place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from qualgate.errors import UsageError
from qualgate.gate.evidence.checks import Examination, examine
from qualgate.records import ArmEvidence, RunEvidence


def with_references(
    examined: Sequence[Examination], evidence: RunEvidence, references: Sequence[str]
) -> tuple[Examination, ...]:
    """Add each variant's pairs with the arms `references`, and leave out the examinations of these arms themselves.

    An arm that variants are held against must be whole as the baseline must: its faults, and whatever makes it and a
    variant incomparable, are faults of every verdict. UsageError: the run has no such arm.
    """
    own = {examination.variant: examination for examination in examined}
    if absent := [name for name in references if name not in own]:
        raise UsageError(f"The run has no arm {absent[0]!r:.80}, which rules are against. It has {', '.join(own)}.")
    judged = [examination for examination in examined if examination.variant not in references]
    # An arm with faults of its own can be compared with nothing.
    pairs = {name: _in_place(evidence, name) if own[name].pairs else {} for name in references}
    return tuple(
        _with_faults(examination, {name: pairs[name].get(examination.variant, own[name]) for name in references})
        for examination in judged
    )


def _in_place(evidence: RunEvidence, name: str) -> dict[str, Examination]:
    """Variant → its examination with the arm in the baseline's place."""
    (arm,) = (arm for arm in evidence.variants if arm.name == name)
    others = tuple(_without_drift(other) for other in evidence.variants if other.name != name)
    expected = tuple(key for key in evidence.expected if key.arm != evidence.baseline.name)
    examined = examine(replace(evidence, baseline=arm, variants=others, expected=expected))
    return {examination.variant: examination for examination in examined}


def _without_drift(arm: ArmEvidence) -> ArmEvidence:
    """The arm without what teacher forcing measured, which is against the baseline's answers."""
    if not any(unit.kl for unit in arm.units):
        return arm
    return replace(arm, units=tuple(replace(unit, kl=(), kl_upper=None) for unit in arm.units))


def _with_faults(examination: Examination, against: Mapping[str, Examination]) -> Examination:
    """The examination with those against other arms, whose faults and notes are its own too: each line once."""
    every = (examination, *against.values())

    def lines(of: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(line for part in of for line in part))

    return replace(
        examination,
        integrity=lines(part.integrity for part in every),
        incomplete=lines(part.incomplete for part in every),
        mismatched=lines(part.mismatched for part in every),
        notes=lines((examination.notes, *(part.notes for part in against.values() if part.pairs))),
        against=against,
    )
