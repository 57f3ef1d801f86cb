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
from qualgate.text.numbers import counted


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
        counted_drafts = cls._of_counts([(unit.draft_proposed, unit.draft_accepted) for unit in units])
        return replace(counted_drafts, server=counted_in(arm.generation.windows), untold=arm.generation.uncounted)

    @classmethod
    def _of_steps(cls, units: Sequence[UnitEvidence]) -> _Counted:
        """Count drafts of our own engine by its recorded passes. Answers whose own counts differ from them are
        impossible.
        """
        steps = [[step for step in unit.draft_steps if step.level == 1 and decodes(step)] for unit in units]
        sums = [
            (sum(step.proposed for step in answer_steps), sum(step.accepted for step in answer_steps))
            for answer_steps in steps
        ]
        by_answer = [(unit.draft_proposed or 0, unit.draft_accepted or 0) for unit in units]
        return cls(
            answers=len(units),
            reporting=sum(map(bool, steps)),
            proposed=sum(proposed for proposed, _ in sums),
            accepted=sum(accepted for _, accepted in sums),
            impossible=sum(of_answer != of_steps for of_answer, of_steps in zip(by_answer, sums, strict=True)),
            passes=sum(map(len, steps)),
        )

    @classmethod
    def _of_counts(cls, pairs: Sequence[tuple[int | None, int | None]]) -> _Counted:
        """Count drafts by (proposed, accepted) of each answer. The accepted sum is None if an answer with drafts has
        none.
        """
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


def drafting_remarks(decision: Judged) -> Remarks:
    """Withhold the approval of an arm declared to speculate (`arm:`) without evidence that it drafted. A four-arm run
    has a step for it."""
    if decision.policy.four_arm is not None:
        return {}
    remarks = {}
    for arm in decision.evidence.variants:
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
    counts_by_arm = {name: _Counted.of(of_arm, evidence[name]) for name, of_arm in units.items()}
    declared = {drafted.arm: drafted for drafted in arms.drafting}
    steps = {}
    for name in (arms.speculation, arms.both):
        status, reason = _drafted(name, counts_by_arm[name], declared.get(name))
        if _drafts(counts_by_arm[base]):
            status, reason = (
                "undecided",
                f"{base} is to draft nothing, and it drafted {_drafts_in_words(counts_by_arm[base])}",
            )
        steps[name] = ArmStep(arm=name, step="drafting", status=status, reason=reason)
    alone = arms.quantization
    if _drafts(counts_by_arm[alone]):
        reason = f"{alone} is to be quantized alone, and it drafted {_drafts_in_words(counts_by_arm[alone])}"
        steps[alone] = ArmStep(arm=alone, step="drafting", status="undecided", reason=reason)
    return steps


def _drafts(plain: _Counted) -> bool:
    return bool(plain.proposed or plain.impossible or (plain.server and plain.server.drafted))


def _drafted(name: str, drafts: _Counted, declared: Drafted | None) -> tuple[RuleStatus, str]:
    return _drafted_here(name, drafts) if drafts.passes is not None else _drafted_elsewhere(name, drafts, declared)


def _drafted_here(name: str, drafts: _Counted) -> tuple[RuleStatus, str]:
    """Check whether an arm of our own engine drafted. Returns: (status, reason)."""
    if drafts.impossible:
        how_many = counted(drafts.impossible, "answer has", "answers have")
        return "undecided", f"{how_many} other counts of drafts than the passes add up to"
    if drafts.proposed:
        return "proven", f"drafted {_drafts_in_words(drafts)}"
    no_draft = (
        f"its {counted(drafts.passes or 0, 'pass', 'passes')} had no draft"
        if drafts.passes
        else "no pass of it was told"
    )
    return "undecided", (
        f"{name} is to speculate, and {no_draft}: a copy of its target would answer as it does. Drafts that do not pay "
        "are switched off; a fixed length (`tokens: 5`) shows what they come to"
    )


def _drafted_elsewhere(name: str, drafts: _Counted, declared: Drafted | None) -> tuple[RuleStatus, str]:
    """Check whether an arm of another engine drafted, by its answers' counts, its server's, or the gate file's
    declaration.

    A declaration that contradicts the counts proves nothing. Returns: (status, reason).
    """
    if drafts.impossible:
        return "undecided", f"{counted(drafts.impossible, 'answer')} kept more of a draft than was proposed, or under 0"
    if declared is not None:
        if not (0 <= declared.accepted <= declared.proposed and declared.proposed > 0):
            return "undecided", f"{declared.accepted} of {declared.proposed} tokens are declared, which no draft can be"
        if declared.proposed < drafts.proposed or (drafts.reporting == drafts.answers and not drafts.proposed):
            return "undecided", (
                f"the gate file declares {declared.proposed:,} tokens drafted, and {name} drafted "
                f"{_drafts_in_words(drafts)}: one of the two is wrong"
            )
    told_none = drafts.reporting == drafts.answers and not drafts.proposed
    if drafts.proposed or (drafts.server is not None and drafts.server.drafted and not told_none):
        return "proven", f"drafted {_drafts_in_words(drafts)}"
    if declared is not None and drafts.server is not None and not drafts.untold:
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
    return "undecided", _nothing_drafted(name, drafts)


def _nothing_drafted(name: str, drafts: _Counted) -> str:
    """Say why nothing shows that an arm of another engine drafted, and what to do."""
    copy = "a copy of its target would answer as it does"
    if drafts.server is not None and not drafts.untold:
        return (
            f"{name} is to speculate, and its server's counters of drafts stood still while it answered: {copy}. Look "
            "whether its command, or its configuration, turns speculation on"
        )
    if drafts.untold and not drafts.reporting:
        return (
            f"{name} is to speculate, and whether it does is not known, for {drafts.untold}: {copy}. vLLM has counters "
            "where speculation is on, other engines by a flag (qualgate doctor lists them). Where its operator counts, "
            f"declare it: four_arm: {{drafting: {{{name}: {{proposed: N, accepted: M}}}}}}"
        )
    known = "its answers say that it drafted nothing" if drafts.reporting else "nothing says that it drafted a token"
    return (
        f"{name} is to speculate, and {known}: {copy}. Say in its score rows "
        "what was drafted for each answer (`draft_proposed`, `draft_accepted`), or, where its server counts in all "
        f"alone, in the gate file: four_arm: {{drafting: {{{name}: {{proposed: N, accepted: M}}}}}}"
    )


def _drafts_in_words(drafts: _Counted) -> str:
    """Describe the drafted and accepted tokens, and who counted them."""
    if not drafts.proposed and drafts.server is not None:
        return _server_counts_in_words(drafts.server)
    accepted = ""
    if drafts.accepted is not None and drafts.proposed:
        accepted = f", {drafts.accepted:,} accepted ({drafts.accepted / drafts.proposed:.1%})"
    if drafts.passes is not None:
        return f"{drafts.proposed:,} tokens{accepted}, in {counted(drafts.passes, 'pass', 'passes')}"
    return f"{drafts.proposed:,} tokens{accepted}, as {drafts.reporting:,} of {counted(drafts.answers, 'answer')} say"


def _server_counts_in_words(server_counts: DraftCounts) -> str:
    """Describe a server's counts. SGLang counts only verifications, TensorRT-LLM only tokens."""
    parts = []
    if server_counts.proposed is not None:
        accepted = (
            ""
            if server_counts.acceptance_rate is None
            else f", {server_counts.accepted:,} accepted ({server_counts.acceptance_rate:.1%})"
        )
        parts.append(f"{server_counts.proposed:,} tokens{accepted}")
    if server_counts.verifications is not None:
        parts.append(f"in {counted(server_counts.verifications, 'verification')}")
    return f"{' '.join(parts)}, as its server counts them"
