"""Judge a trial: a few cases, or a first look without rules. It neither passes nor blocks."""

from __future__ import annotations

from dataclasses import replace

from qualgate.errors import Exit
from qualgate.gate.remark import DECIDES, FAULTY, Judged, Remark, Remarks, no_choice
from qualgate.gate.verdict import NOTHING_CRITICAL
from qualgate.records import Verdict

NO_POLICY = (
    "no policy, no verdict: these arms were looked at, and nobody said what loss is accepted; say it by a rule of a "
    "gate file, and run that"
)


def trial_remarks(decision: Judged) -> Remarks:
    """Withhold what a trial decides, whichever policy judges it. Broken or incomplete evidence stays that."""
    trial, policy = decision.evidence.decides_nothing, decision.policy
    if not trial:
        return {}
    return {  # rules given to a first look later are judged as a trial's
        verdict.variant: _first_look(verdict) if policy.first_look else _trial(verdict, f"{trial}: it decides nothing")
        for verdict in decision.verdicts
    }


def _trial(verdict: Verdict, why: str) -> Remark:
    if verdict.exit in FAULTY:
        return Remark(lines=(why,))
    line = f"{why}; judged on these alone it would be {verdict.word}"
    return Remark(lines=(line,), withholds=DECIDES, answer=no_choice(verdict, why))


def _first_look(verdict: Verdict) -> Remark:
    """Replace a verdict by what was measured, without a margin: nobody chose any. Faulty evidence gets a note only."""
    if verdict.exit in FAULTY:
        return Remark(lines=(NO_POLICY,))
    by_margins = {comparison.reason for comparison in verdict.comparisons} | {NOTHING_CRITICAL}
    measured = tuple(
        replace(
            comparison,
            rule=f"{comparison.metric} [{comparison.slice}]",
            status="undecided",
            tier="advisory",
            reason=NO_POLICY,
        )
        for comparison in verdict.comparisons
    )
    reasons = (NO_POLICY, *(reason for reason in verdict.reasons if reason not in by_margins))
    facts = {"word": "undecided", "exit": int(Exit.UNDECIDED), "reasons": reasons, "comparisons": measured}
    return Remark(facts=facts)
