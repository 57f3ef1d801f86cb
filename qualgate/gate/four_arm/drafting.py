"""Check that the arms meant to speculate drafted, and the others did not: a copy of the baseline has its answers, too.

For our own engine only the draft steps count, pass by pass. For others the evidence is counts by answer, the counters
of the arm's server, or a declaration in the gate file. Without evidence of a proposed token, nothing is known of
speculation, whatever the answers are, and no arm is chosen. A missing counter proves nothing; one that stands still
proves that nothing was drafted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qualgate.errors import Exit
from qualgate.formatting import counted
from qualgate.gate.comparisons.draft_levels import decodes
from qualgate.gate.remark import PASSES, Judged, Remark, Remarks
from qualgate.records import (
    ArmEvidence,
    ArmStep,
    DraftCounts,
    Drafted,
    FourArms,
    RuleStatus,
    UnitEvidence,
    counted_in,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """Draft counts of an arm's answers."""

    answers: int
    reporting: int  # answers that report drafts
    proposed: int
    accepted: int | None  # None: missing for an answer that reports proposed tokens
    impossible: int  # answers whose counts contradict each other, or the steps of our own engine
    passes: int | None = None  # decoding passes of our own engine; None: another engine
    server: DraftCounts | None = None  # sum of its server's counters; None: no server, or unknown
    untold: str = ""  # why a server's counters are missing, or do not cover all its answers

    @classmethod
    def of(cls, units: Sequence[UnitEvidence], arm: ArmEvidence) -> _Counted:
        """Count the drafts of an arm. units: the arm's units that are compared."""
        if ran_here(arm):
            return cls._of_steps(units)
        counts = cls._of_counts([(unit.draft_proposed, unit.draft_accepted) for unit in units])
        return replace(counts, server=counted_in(arm.generation.windows), untold=arm.generation.uncounted)

    @classmethod
    def _of_steps(cls, units: Sequence[UnitEvidence]) -> _Counted:
        steps = [[step for step in unit.draft_steps if step.level == 1 and decodes(step)] for unit in units]
        sums = [(sum(step.proposed for step in of), sum(step.accepted for step in of)) for of in steps]
        by_answer = [(unit.draft_proposed or 0, unit.draft_accepted or 0) for unit in units]
        return cls(
            answers=len(units),
            reporting=sum(map(bool, steps)),
            proposed=sum(proposed for proposed, _ in sums),
            accepted=sum(accepted for _, accepted in sums),
            impossible=sum(counts != own for counts, own in zip(by_answer, sums, strict=True)),
            passes=sum(map(len, steps)),
        )

    @classmethod
    def _of_counts(cls, pairs: Sequence[tuple[int | None, int | None]]) -> _Counted:
        with_counts = [(proposed, accepted) for proposed, accepted in pairs if proposed is not None]
        accepted_counts = [accepted for _, accepted in with_counts if accepted is not None]
        return cls(
            answers=len(pairs),
            reporting=len(with_counts),
            proposed=sum(proposed for proposed, _ in with_counts),
            accepted=sum(accepted_counts) if len(accepted_counts) == len(with_counts) else None,
            impossible=sum(not 0 <= (accepted or 0) <= (proposed or 0) for proposed, accepted in pairs),
        )


def ran_here(arm: ArmEvidence) -> bool:
    """Whether our own engine gave the arm's answers, not a server or score files."""
    return bool(arm.generation.engine) and not (arm.identity and arm.identity.served)


def drafting_remarks(judged: Judged) -> Remarks:
    """Withhold the approval of an arm declared to speculate (`arm:`) without evidence that it drafted. A four-arm run
    has a step for it."""
    if judged.policy.four_arm is not None:
        return {}
    remarks = {}
    for arm in judged.evidence.variants:
        if arm.to_draft:
            done = [unit for unit in arm.units if unit.status == "done"]
            status, reason = _drafted(arm.name, _Counted.of(done, arm), None)
            withholds = () if status == "proven" else (*PASSES, Exit.UNDECIDED)
            remarks[arm.name] = Remark(lines=(f"drafting {status}: {reason}",), withholds=withholds)
    return remarks


def drafting_steps(
    units: Mapping[str, Sequence[UnitEvidence]], base: str, arms: FourArms, evidence: Mapping[str, ArmEvidence]
) -> dict[str, ArmStep]:
    """The drafting step of both arms meant to draft, and of quantization alone if it drafted. units, evidence: of all
    four."""
    counts = {name: _Counted.of(of_arm, evidence[name]) for name, of_arm in units.items()}
    declared = {drafted.arm: drafted for drafted in arms.drafting}
    steps = {}
    for name in (arms.speculation, arms.both):
        status, reason = _drafted(name, counts[name], declared.get(name))
        if _drafts(counts[base]):
            status, reason = "undecided", f"{base} is to draft nothing, and it drafted {_tokens(counts[base])}"
        steps[name] = ArmStep(arm=name, step="drafting", status=status, reason=reason)
    alone = arms.quantization
    if _drafts(counts[alone]):
        reason = f"{alone} is to be quantized alone, and it drafted {_tokens(counts[alone])}"
        steps[alone] = ArmStep(arm=alone, step="drafting", status="undecided", reason=reason)
    return steps


def _drafts(plain: _Counted) -> bool:
    return bool(plain.proposed or plain.impossible or (plain.server and plain.server.drafted))


def _drafted(name: str, seen: _Counted, declared: Drafted | None) -> tuple[RuleStatus, str]:
    return _drafted_here(name, seen) if seen.passes is not None else _drafted_elsewhere(name, seen, declared)


def _drafted_here(name: str, seen: _Counted) -> tuple[RuleStatus, str]:
    if seen.impossible:
        how_many = counted(seen.impossible, "answer has", "answers have")
        return "undecided", f"{how_many} other counts of drafts than the passes add up to"
    if seen.proposed:
        return "proven", f"drafted {_tokens(seen)}"
    none = (
        f"its {counted(seen.passes or 0, 'pass', 'passes')} had no draft" if seen.passes else "no pass of it was told"
    )
    return "undecided", (
        f"{name} is to speculate, and {none}: a copy of its target would answer as it does. Drafts that do not pay are "
        "switched off; a fixed length (`tokens: 5`) shows what they come to"
    )


def _drafted_elsewhere(name: str, seen: _Counted, declared: Drafted | None) -> tuple[RuleStatus, str]:
    if seen.impossible:
        return "undecided", f"{counted(seen.impossible, 'answer')} kept more of a draft than was proposed, or under 0"
    if declared is not None:
        if not (0 <= declared.accepted <= declared.proposed and declared.proposed > 0):
            return "undecided", f"{declared.accepted} of {declared.proposed} tokens are declared, which no draft can be"
        if declared.proposed < seen.proposed or (seen.reporting == seen.answers and not seen.proposed):
            return "undecided", (
                f"the gate file declares {declared.proposed:,} tokens drafted, and {name} drafted {_tokens(seen)}: one "
                "of the two is wrong"
            )
    told_none = seen.reporting == seen.answers and not seen.proposed
    if seen.proposed or (seen.server is not None and seen.server.drafted and not told_none):
        return "proven", f"drafted {_tokens(seen)}"
    if declared is not None and seen.server is not None and not seen.untold:
        return "undecided", (
            f"the gate file declares {declared.proposed:,} tokens drafted, and the counters of {name}'s server stood "
            "still: one of the two is wrong"
        )
    if declared is not None:
        share = declared.accepted / declared.proposed
        return "proven", (
            f"declared in the gate file, not measured: drafted {declared.proposed:,} tokens, {declared.accepted:,} "
            f"accepted ({share:.1%})"
        )
    return "undecided", _nothing_drafted(name, seen)


def _nothing_drafted(name: str, seen: _Counted) -> str:
    """Say why nothing shows that an arm of another engine drafted, and what to do."""
    copy = "a copy of its target would answer as it does"
    if seen.server is not None and not seen.untold:
        return (
            f"{name} is to speculate, and its server's counters of drafts stood still while it answered: {copy}. Look "
            "whether its command, or its configuration, turns speculation on"
        )
    if seen.untold and not seen.reporting:
        return (
            f"{name} is to speculate, and whether it does is not known, for {seen.untold}: {copy}. vLLM has counters "
            "where speculation is on, other engines by a flag (qualgate doctor lists them). Where its operator counts, "
            f"declare it: four_arm: {{drafting: {{{name}: {{proposed: N, accepted: M}}}}}}"
        )
    known = "its answers say that it drafted nothing" if seen.reporting else "nothing says that it drafted a token"
    return (
        f"{name} is to speculate, and {known}: {copy}. Say in its score rows "
        "what was drafted for each answer (`draft_proposed`, `draft_accepted`), or, where its server counts in all "
        f"alone, in the gate file: four_arm: {{drafting: {{{name}: {{proposed: N, accepted: M}}}}}}"
    )


def _tokens(seen: _Counted) -> str:
    if not seen.proposed and seen.server is not None:
        return _by_server(seen.server)
    accepted = ""
    if seen.accepted is not None and seen.proposed:
        accepted = f", {seen.accepted:,} accepted ({seen.accepted / seen.proposed:.1%})"
    if seen.passes is not None:
        return f"{seen.proposed:,} tokens{accepted}, in {counted(seen.passes, 'pass', 'passes')}"
    return f"{seen.proposed:,} tokens{accepted}, as {seen.reporting:,} of {counted(seen.answers, 'answer')} say"


def _by_server(counts: DraftCounts) -> str:
    """Describe a server's counts: SGLang counts only verifications, TensorRT-LLM only tokens."""
    parts = []
    if counts.proposed is not None:
        accepted = (
            "" if counts.acceptance_rate is None else f", {counts.accepted:,} accepted ({counts.acceptance_rate:.1%})"
        )
        parts.append(f"{counts.proposed:,} tokens{accepted}")
    if counts.verifications is not None:
        parts.append(f"in {counted(counts.verifications, 'verification')}")
    return f"{' '.join(parts)}, as its server counts them"
