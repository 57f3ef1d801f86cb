"""A load's rules for each variant: level by level, by how many of its rounds are within a limit.

A round is one measurement: what happens in it hangs together, so nothing is made of how many requests it had. Each
variant's is held against the baseline's of the same round and level, which was measured right before or after it. That
a round is within the limit more often than not is shown by the sign test (Dixon and Mood, 1946), which presumes nothing
of how rates and times scatter, only that rounds are drawn alike and apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, comb, log2
from pathlib import Path
from typing import Literal

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.formatting import counted
from qualgate.identity import content_hash, file_hash
from qualgate.load.counters import Counted
from qualgate.load.definitions import Definition
from qualgate.load.measures import Measured, measured
from qualgate.load.run import Loaded
from qualgate.load.schedule import Level
from qualgate.records import LoadRule, Slo

Said = Literal["approve", "block", "undecided"]
Value = Callable[[Measured, Counted | None], float | None]


def _share(causes: Sequence[tuple[str, int]], numbers: Measured) -> float | None:
    return sum(count for _, count in causes) / numbers.requests if numbers.requests else None


def _p95(time: str) -> Value:
    def value(numbers: Measured, _: Counted | None) -> float | None:
        found = dict(numbers.times)[time]
        return found[1].found.value if found else None

    return value


VALUES: dict[str, Value] = {
    "throughput.answers": lambda numbers, _: numbers.throughput,
    "throughput.tokens": lambda numbers, _: numbers.tokens,
    "throughput.good": lambda numbers, _: numbers.goodput,
    "ttft.p95": _p95("ttft"),
    "tpot.p95": _p95("tpot"),
    "e2e.p95": _p95("e2e"),
    "retry.share": lambda numbers, _: _share(numbers.retried, numbers),
    "failed.share": lambda numbers, _: _share(numbers.failed, numbers),
    "cancel.tokens": lambda _, told: None if told is None else told.afterwards,
}
"""By metric, of one round; None where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule at one level. values, baseline: of each round, None where it is not known; within: rounds that are;
    p: of the sign test, of what is said (of the likelier of the two where nothing is); because: why nothing is."""

    variant: str
    rule: LoadRule
    level: Level
    said: Said
    values: tuple[float | None, ...]
    baseline: tuple[float | None, ...]
    within: int
    p: float
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadVerdict:
    """Of a variant: blocked where one of its findings is, approved where all are."""

    variant: str
    findings: tuple[Finding, ...]

    @property
    def said(self) -> Said:
        """The verdict."""
        found = {one.said for one in self.findings}
        return "block" if "block" in found else "undecided" if "undecided" in found or not found else "approve"


def check_rules(gate: GateFile) -> Iterator[str]:
    """A line where so few rounds show nothing. UsageError for a rule that could never be decided."""
    rules, where = gate.load.rules, gate.path.name
    if any(rule.metric == "throughput.good" for rule in rules) and gate.policy.slo is None:
        raise UsageError(
            f"{where}: a rule of `load` on throughput.good, and no limits say what is good. Add for example `slo: "
            "{ttft: 0.5}`."
        )
    if rules and gate.baseline.served is None:
        raise UsageError(
            f"{where}: `load.rules` hold variants against the baseline, and it is not served. Give it an `endpoint` or "
            "a `serve` command."
        )
    least = rounds_needed(gate.policy.alpha)
    if rules and gate.load.rounds < least:
        yield (
            f"load.rules: {counted(gate.load.rounds, 'round')} can approve nothing at alpha {gate.policy.alpha:g}; "
            f"`rounds: {least}` can, where all of them are within a limit"
        )


def policy_sha256(gate: GateFile, by: str) -> str:
    """Of what a verdict depends on beside the arms and their cases. by: whose definitions."""
    load, slo = asdict(gate.load), asdict(gate.policy.slo) if gate.policy.slo else None
    load["trace"] = file_hash(Path(gate.load.trace)) if gate.load.trace else ""
    return content_hash([load, slo, gate.policy.alpha, gate.seed, by])


def verdicts(loaded: Loaded, by: Definition, slo: Slo | None, alpha: float) -> tuple[LoadVerdict, ...]:
    """Of every arm but the first, which is the baseline. alpha: of an approval, and of a block of anything sound: a
    variant is approved where every rule holds at every level, so that each is asked at alpha, and blocked by the worst
    of them, so that they share it."""
    rounds = {
        key: [(measured([stage], by, slo), count) for stage, count in zip(stages, loaded.counts[key], strict=True)]
        for key, stages in loaded.stages.items()
    }
    baseline, *variants = (arm.name for arm in loaded.arms)
    places = [(rule, level) for rule in loaded.load.rules for level in loaded.levels]
    found = []
    for name in variants:
        findings = []
        for rule, level in places:
            value = VALUES[rule.metric]
            mine, theirs = (tuple(value(*one) for one in rounds[arm, level]) for arm in (name, baseline))
            findings.append(_finding(name, rule, level, (mine, theirs), (alpha, alpha / len(places))))
        found.append(LoadVerdict(variant=name, findings=tuple(findings)))
    return tuple(found)


def _finding(
    variant: str,
    rule: LoadRule,
    level: Level,
    values: tuple[Sequence[float | None], Sequence[float | None]],
    alphas: tuple[float, float],
) -> Finding:
    each = [_is_within(rule, mine, theirs) for mine, theirs in zip(*values, strict=True)]
    known = [one for one in each if one is not None]
    within, count = sum(known), len(each)
    holds, broken = sign_test(within, count), sign_test(len(known) - within, count)
    said: Said = "block" if broken <= alphas[1] else "undecided"
    because = ""
    if len(known) < count and said != "block":
        because = f"it is not known of {count - len(known)} of {count} rounds"
    elif said != "block" and holds <= alphas[0]:
        said = "approve"
    elif said != "block":
        least = rounds_needed(alphas[0])
        few = f"; no fewer than {least} rounds could show it" if count < least else ""
        because = f"{within} of {count} rounds are within it (p = {holds:.2g}){few}"
    return Finding(
        variant=variant, rule=rule, level=level, said=said, values=tuple(values[0]), baseline=tuple(values[1]),
        within=within, p=broken if said == "block" else holds, because=because,
    )  # fmt: skip


def _is_within(rule: LoadRule, mine: float | None, theirs: float | None) -> bool | None:
    """None where a value that the rule is about is not known."""
    if mine is None or (rule.relative and theirs is None):
        return None
    if rule.min is not None:
        return mine >= rule.min
    if rule.max is not None:
        return mine <= rule.max
    assert theirs is not None, "asked above"
    if rule.max_drop is not None:
        return mine >= (1 - rule.max_drop) * theirs
    assert rule.max_increase is not None, "a rule has one limit"
    return mine <= (1 + rule.max_increase) * theirs


def sign_test(found: int, of: int) -> float:
    """The chance of so many or more heads in `of` throws of a coin; 1 for none."""
    return sum(comb(of, heads) for heads in range(found, of + 1)) / 2**of


def rounds_needed(alpha: float) -> int:
    """The least of which all within a limit show it."""
    return ceil(log2(1 / alpha))
