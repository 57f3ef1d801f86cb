"""Add to verdicts what else the evidence says, and withhold an approval that it does not carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from qualgate.errors import Exit
from qualgate.records import FourArm, Policy, RunEvidence, Verdict

PASSES = (Exit.APPROVE, Exit.REVIEW)
DECIDES = (*PASSES, Exit.UNDECIDED, Exit.BLOCK)
FAULTY = (Exit.INTEGRITY, Exit.INFRASTRUCTURE)  # of evidence that cannot be judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdicts of a run as they stand, and what they rest on."""

    evidence: RunEvidence
    policy: Policy  # the gate file's
    rules: Policy  # by which was decided: an nel policy's are known once there is evidence
    now: str  # see `decide`
    verdicts: tuple[Verdict, ...]

    @property
    def sound(self) -> tuple[Verdict, ...]:
        """Those on evidence that is neither broken nor incomplete."""
        return tuple(verdict for verdict in self.verdicts if verdict.exit not in FAULTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Lines among the reasons of one verdict, and what they change.

    place: "head" is the first line of a verdict that passes, and the second of any other.
    """

    lines: tuple[str, ...] = ()
    place: Literal["first", "head", "last"] = "last"
    withholds: tuple[Exit, ...] = ()  # a verdict with one of these exits becomes undecided, the lines come first
    answer: FourArm | None = None  # the four-arm answer with this remark; None: it stays
    facts: Mapping[str, Any] = field(default_factory=dict)  # fields of the verdict


Remarks = Mapping[str, Remark]  # by variant


def with_remarks(verdicts: Iterable[Verdict], remarks: Remarks) -> tuple[Verdict, ...]:
    """Apply each remark to the verdict on its variant."""
    return tuple(_with_remark(verdict, remarks.get(verdict.variant)) for verdict in verdicts)


def no_choice(verdict: Verdict, why: str) -> FourArm | None:
    """The four-arm answer without its choice, undecided; None where there is no such answer."""
    return verdict.four_arm and replace(verdict.four_arm, choice="", why=why, exit=int(Exit.UNDECIDED))


def _with_remark(verdict: Verdict, remark: Remark | None) -> Verdict:
    """Add the remark's lines, facts and answer to a verdict. A remark that withholds the verdict makes it undecided.

    Its lines come first if they withhold or ask to; else after the head of a verdict that passes, or last. None: the
    verdict is unchanged.
    """
    if remark is None:
        return verdict
    withheld, passes = verdict.exit in remark.withholds, verdict.exit in PASSES
    before, after = verdict.reasons, ()
    if withheld or remark.place == "first" or (remark.place == "head" and passes):
        before, after = (), verdict.reasons
    elif remark.place == "head":
        before, after = verdict.reasons[:1], verdict.reasons[1:]
    if withheld:
        verdict = replace(verdict, word="undecided", exit=int(Exit.UNDECIDED))
    fields: dict[str, Any] = {"reasons": (*before, *remark.lines, *after)}
    fields |= {"four_arm": remark.answer or verdict.four_arm, **remark.facts}
    return replace(verdict, **fields)
