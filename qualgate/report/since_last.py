"""A variant's changes since the last run of its gate file: the verdict's word, and each rule with another result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from qualgate.records import Comparison, Verdict
from qualgate.store.queries import VerdictBefore

NAMED = 3  # most rules named
NO_RULE = "no such rule"
_WORST_FIRST = ("broken", "undecided", "proven")


@dataclass(frozen=True, slots=True, kw_only=True)
class RulePair:
    """One rule's result on one slice, in two verdicts; None where the verdict has no such rule."""

    rule: str
    slice: str
    before: Comparison | None
    after: Comparison | None


def rule_pairs(before: Verdict | None, after: Verdict | None) -> Iterator[RulePair]:
    """Yield each rule and slice of two verdicts, in the order of the earlier one."""
    earlier, later = ({(c.rule, c.slice): c for c in v.comparisons} if v else {} for v in (before, after))
    for rule, slice_ in dict.fromkeys([*earlier, *later]):
        yield RulePair(rule=rule, slice=slice_, before=earlier.get((rule, slice_)), after=later.get((rule, slice_)))


def since_last_text(last: VerdictBefore, verdict: Verdict) -> str:
    """Return the line for people: "approve → block; exact_match [pooled]: proven → broken"."""
    word, now = last.verdict.word, verdict.word
    pairs = [] if "invalid" in (word, now) else rule_pairs(last.verdict, verdict)
    changed = [pair for pair in pairs if _status(pair.before) != _status(pair.after)]
    changed.sort(key=lambda pair: _WORST_FIRST.index(pair.after.status) if pair.after else len(_WORST_FIRST))
    rules = [_rule_text(pair) for pair in changed[:NAMED]]
    if len(changed) > NAMED:
        rules.append(f"and {len(changed) - NAMED:,} more")
    if not changed and word == now != "invalid":
        rules.append("no rule has another result")
    return "; ".join([f"{word} → {now}" if word != now else f"{now}, as before", *rules])


def _rule_text(pair: RulePair) -> str:
    comparison = pair.after or pair.before
    assert comparison is not None, "a pair has one side at least"
    return f"{comparison.head}: {_status(pair.before)} → {_status(pair.after)}"


def _status(comparison: Comparison | None) -> str:
    return NO_RULE if comparison is None else comparison.status
