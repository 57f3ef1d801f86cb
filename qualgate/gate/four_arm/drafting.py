"""Did the arms that are to speculate draft, and the others not? A second copy of the baseline gives its answers, too.

Of an arm that ran on our own engine its steps say it, pass by pass, and nothing else does. Of others it is counted by
answer, by the counters of the server that answered for the arm, or declared in the gate file, as a server counted it.
Where nothing says that a token was proposed, nothing is known of speculation, whatever the answers say, and no arm is
chosen. A counter that is not there says nothing; one that stands still says that nothing was drafted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from qualgate.errors import Exit
from qualgate.formatting import counted
from qualgate.gate.comparisons.draft_levels import decodes
from qualgate.records import (
    ArmEvidence,
    ArmStep,
    DraftCounts,
    Drafted,
    FourArms,
    RuleStatus,
    RunEvidence,
    UnitEvidence,
    Verdict,
    counted_in,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """What an arm's answers say of their drafts."""

    answers: int
    told: int  # of them, those that say it
    proposed: int
    accepted: int | None  # None: not every one that says what was proposed says this as well
    impossible: int  # answers whose counts contradict each other, or the steps of our own engine
    passes: int | None = None  # that the steps of our own engine are of; None: an arm of another
    server: DraftCounts | None = None  # what its server's counters add up to; None: no server, or not known
    untold: str = ""  # why a server's counters say nothing, or not of all its answers

    @classmethod
    def of(cls, units: Sequence[UnitEvidence], arm: ArmEvidence) -> _Counted:
        """units: of the arm, those that are compared."""
        if ran_here(arm):
            return cls._of_steps(units)
        found = cls._of_counts([(unit.draft_proposed, unit.draft_accepted) for unit in units])
        return replace(found, server=counted_in(arm.generation.windows), untold=arm.generation.uncounted)

    @classmethod
    def _of_steps(cls, units: Sequence[UnitEvidence]) -> _Counted:
        steps = [[step for step in unit.draft_steps if step.level == 1 and decodes(step)] for unit in units]
        sums = [(sum(step.proposed for step in of), sum(step.accepted for step in of)) for of in steps]
        said = [(unit.draft_proposed or 0, unit.draft_accepted or 0) for unit in units]
        return cls(
            answers=len(units),
            told=sum(map(bool, steps)),
            proposed=sum(proposed for proposed, _ in sums),
            accepted=sum(accepted for _, accepted in sums),
            impossible=sum(counts != own for counts, own in zip(said, sums, strict=True)),
            passes=sum(map(len, steps)),
        )

    @classmethod
    def _of_counts(cls, pairs: Sequence[tuple[int | None, int | None]]) -> _Counted:
        told = [(proposed, accepted) for proposed, accepted in pairs if proposed is not None]
        kept = [accepted for _, accepted in told if accepted is not None]
        return cls(
            answers=len(pairs),
            told=len(told),
            proposed=sum(proposed for proposed, _ in told),
            accepted=sum(kept) if len(kept) == len(told) else None,
            impossible=sum(not 0 <= (accepted or 0) <= (proposed or 0) for proposed, accepted in pairs),
        )


def ran_here(arm: ArmEvidence) -> bool:
    """Whether our own engine gave its answers: not a server, nor whoever wrote score files."""
    return bool(arm.generation.engine) and not (arm.identity and arm.identity.served)


def with_drafting(verdicts: Sequence[Verdict], evidence: RunEvidence) -> tuple[Verdict, ...]:
    """The verdicts; an arm that is said to speculate (`arm:`) is not approved where nothing shows that it drafted."""
    said = {arm.name: arm for arm in evidence.variants if arm.to_draft}
    return tuple(_as_it_drafted(one, said[one.variant]) if one.variant in said else one for one in verdicts)


def _as_it_drafted(verdict: Verdict, arm: ArmEvidence) -> Verdict:
    done = [unit for unit in arm.units if unit.status == "done"]
    status, reason = _drafted(arm.name, _Counted.of(done, arm), None)
    told = f"drafting {status}: {reason}"
    if status == "proven" or verdict.exit not in (Exit.APPROVE, Exit.REVIEW, Exit.UNDECIDED):
        return replace(verdict, reasons=(*verdict.reasons, told))
    return replace(verdict, word="undecided", exit=int(Exit.UNDECIDED), reasons=(told, *verdict.reasons))


def drafting_steps(
    units: Mapping[str, Sequence[UnitEvidence]], base: str, arms: FourArms, evidence: Mapping[str, ArmEvidence]
) -> dict[str, ArmStep]:
    """The step of both arms that are to draft, and of quantization alone where it did. units, evidence: of all four."""
    found = {name: _Counted.of(of_arm, evidence[name]) for name, of_arm in units.items()}
    declared = {one.arm: one for one in arms.drafting}
    steps = {}
    for name in (arms.speculation, arms.both):
        status, reason = _drafted(name, found[name], declared.get(name))
        if _drafts(found[base]):
            status, reason = "undecided", f"{base} is to draft nothing, and it drafted {_tokens(found[base])}"
        steps[name] = ArmStep(arm=name, step="drafting", status=status, reason=reason)
    alone = arms.quantization
    if _drafts(found[alone]):
        reason = f"{alone} is to be quantized alone, and it drafted {_tokens(found[alone])}"
        steps[alone] = ArmStep(arm=alone, step="drafting", status="undecided", reason=reason)
    return steps


def _drafts(plain: _Counted) -> bool:
    return bool(plain.proposed or plain.impossible or (plain.server and plain.server.drafted))


def _drafted(name: str, seen: _Counted, declared: Drafted | None) -> tuple[RuleStatus, str]:
    return _drafted_here(name, seen) if seen.passes is not None else _drafted_elsewhere(name, seen, declared)


def _drafted_here(name: str, seen: _Counted) -> tuple[RuleStatus, str]:
    if seen.impossible:
        said = counted(seen.impossible, "answer has", "answers have")
        return "undecided", f"{said} other counts of drafts than the passes add up to"
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
        if declared.proposed < seen.proposed or (seen.told == seen.answers and not seen.proposed):
            return "undecided", (
                f"the gate file declares {declared.proposed:,} tokens drafted, and {name} drafted {_tokens(seen)}: one "
                "of the two is wrong"
            )
    told_none = seen.told == seen.answers and not seen.proposed
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
    """Why an arm of another engine is not known to have drafted, and what to do."""
    copy = "a copy of its target would answer as it does"
    if seen.server is not None and not seen.untold:
        return (
            f"{name} is to speculate, and its server's counters of drafts stood still while it answered: {copy}. Look "
            "whether its command, or its configuration, turns speculation on"
        )
    if seen.untold and not seen.told:
        return (
            f"{name} is to speculate, and whether it does is not known, for {seen.untold}: {copy}. vLLM has counters "
            "where speculation is on, other engines by a flag (qualgate doctor lists them). Where its operator counts, "
            f"declare it: four_arm: {{drafting: {{{name}: {{proposed: N, accepted: M}}}}}}"
        )
    known = "its answers say that it drafted nothing" if seen.told else "nothing says that it drafted a token"
    return (
        f"{name} is to speculate, and {known}: {copy}. Say in its score rows "
        "what was drafted for each answer (`draft_proposed`, `draft_accepted`), or, where its server counts in all "
        f"alone, in the gate file: four_arm: {{drafting: {{{name}: {{proposed: N, accepted: M}}}}}}"
    )


def _tokens(seen: _Counted) -> str:
    if not seen.proposed and seen.server is not None:
        return _by_server(seen.server)
    kept = ""
    if seen.accepted is not None and seen.proposed:
        kept = f", {seen.accepted:,} accepted ({seen.accepted / seen.proposed:.1%})"
    if seen.passes is not None:
        return f"{seen.proposed:,} tokens{kept}, in {counted(seen.passes, 'pass', 'passes')}"
    return f"{seen.proposed:,} tokens{kept}, as {seen.told:,} of {counted(seen.answers, 'answer')} say"


def _by_server(found: DraftCounts) -> str:
    """In what an engine counts: SGLang the verifications alone, TensorRT-LLM the tokens alone."""
    told = []
    if found.proposed is not None:
        kept = "" if found.acceptance_rate is None else f", {found.accepted:,} accepted ({found.acceptance_rate:.1%})"
        told.append(f"{found.proposed:,} tokens{kept}")
    if found.verifications is not None:
        told.append(f"in {counted(found.verifications, 'verification')}")
    return f"{' '.join(told)}, as its server counts them"
