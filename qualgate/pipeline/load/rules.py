"""Judge each variant by a load's rules, level by level, from the number of its rounds within a limit.

A round is one measurement: its requests are correlated, so their number does not count. Each variant's round is
compared with the baseline's of the same round and level, measured right before or after it. The sign test (Dixon and
Mood, 1946) shows that a round is within the limit more often than not. It assumes independent and identically
distributed rounds, and nothing about the distribution of rates and times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, comb, log2
from pathlib import Path
from typing import Literal

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.pipeline.load.counters import Counted
from qualgate.pipeline.load.definitions import Definition
from qualgate.pipeline.load.measures import Measured, measured
from qualgate.pipeline.load.run import Loaded
from qualgate.pipeline.load.schedule import Level
from qualgate.records import LoadRule, Slo
from qualgate.records.identity import content_hash, file_hash
from qualgate.text.numbers import counted

Word = Literal["approve", "block", "undecided"]
Value = Callable[[Measured, Counted | None], float | None]


def _share(causes: Sequence[tuple[str, int]], numbers: Measured) -> float | None:
    return sum(count for _, count in causes) / numbers.requests if numbers.requests else None


def _p95(time: str) -> Value:
    def value(numbers: Measured, _: Counted | None) -> float | None:
        percentiles = dict(numbers.times)[time]
        return percentiles[1].pooled.value if percentiles else None

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
    "cancel.tokens": lambda _, count: None if count is None else count.afterwards,
}
"""The value of each metric in one round; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule at one level. values, baseline: per round, None if unknown; within: rounds within the limit; p: of the
    sign test for a block if the word is block, else for an approval; because: why nothing is shown."""

    variant: str
    rule: LoadRule
    level: Level
    word: Word
    values: tuple[float | None, ...]
    baseline: tuple[float | None, ...]
    within: int
    p: float
    because: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadVerdict:
    """The verdict on a variant: blocked if one of its findings is, approved if all are."""

    variant: str
    findings: tuple[Finding, ...]

    @property
    def word(self) -> Word:
        """The verdict's word."""
        words = {finding.word for finding in self.findings}
        return "block" if "block" in words else "undecided" if "undecided" in words or not words else "approve"


def check_rules(gate: GateFile) -> Iterator[str]:
    """Yield a line if there are too few rounds to approve. UsageError for a rule that could never be decided."""
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
    needed = rounds_needed(gate.policy.alpha)
    if rules and gate.load.rounds < needed:
        yield (
            f"load.rules: {counted(gate.load.rounds, 'round')} can approve nothing at alpha {gate.policy.alpha:g}; "
            f"`rounds: {needed}` can, where all of them are within a limit"
        )


def policy_sha256(gate: GateFile, by: str) -> str:
    """Hash what a verdict depends on besides the arms and their cases. by: name of the definitions."""
    load, slo = asdict(gate.load), asdict(gate.policy.slo) if gate.policy.slo else None
    load["trace"] = file_hash(Path(gate.load.trace)) if gate.load.trace else ""
    return content_hash([load, slo, gate.policy.alpha, gate.seed, by])


def verdicts(loaded: Loaded, by: Definition, slo: Slo | None, alpha: float) -> tuple[LoadVerdict, ...]:
    """Judge every arm but the first, the baseline. alpha: error rate of wrong approvals and of wrong blocks. An
    approval needs every rule at every level, so each is tested at alpha; a block needs one, so they share alpha."""
    rounds = {
        key: [(measured([stage], by, slo), count) for stage, count in zip(stages, loaded.counts[key], strict=True)]
        for key, stages in loaded.stages.items()
    }
    baseline, *variants = (arm.name for arm in loaded.arms)
    places = [(rule, level) for rule in loaded.load.rules for level in loaded.levels]
    judgements = []
    for name in variants:
        findings = []
        for rule, level in places:
            value = VALUES[rule.metric]
            variant_values, baseline_values = (
                tuple(value(*numbers) for numbers in rounds[arm, level]) for arm in (name, baseline)
            )
            values = variant_values, baseline_values
            findings.append(_finding(name, rule, level, values, (alpha, alpha / len(places))))
        judgements.append(LoadVerdict(variant=name, findings=tuple(findings)))
    return tuple(judgements)


def _finding(
    variant: str,
    rule: LoadRule,
    level: Level,
    values: tuple[Sequence[float | None], Sequence[float | None]],
    alphas: tuple[float, float],
) -> Finding:
    """Judge one rule at one level by sign tests over the rounds. values: the variant's and the baseline's, per round.
    alphas: for an approval, and for a block."""
    results = [_is_within(rule, value, baseline_value) for value, baseline_value in zip(*values, strict=True)]
    outcomes = [is_within for is_within in results if is_within is not None]
    within, count = sum(outcomes), len(results)
    holds, broken = sign_test(within, count), sign_test(len(outcomes) - within, count)
    word: Word = "block" if broken <= alphas[1] else "undecided"
    because = ""
    if len(outcomes) < count and word != "block":
        because = f"it is not known of {count - len(outcomes)} of {count} rounds"
    elif word != "block" and holds <= alphas[0]:
        word = "approve"
    elif word != "block":
        needed = rounds_needed(alphas[0])
        hint = f"; no fewer than {needed} rounds could show it" if count < needed else ""
        because = f"{within} of {count} rounds are within it (p = {holds:.2g}){hint}"
    return Finding(
        variant=variant, rule=rule, level=level, word=word, values=tuple(values[0]), baseline=tuple(values[1]),
        within=within, p=broken if word == "block" else holds, because=because,
    )  # fmt: skip


def _is_within(rule: LoadRule, value: float | None, baseline_value: float | None) -> bool | None:
    """Whether a round is within the rule's limit; None if a value it needs is unknown."""
    if value is None or (rule.relative and baseline_value is None):
        return None
    if rule.min is not None:
        return value >= rule.min
    if rule.max is not None:
        return value <= rule.max
    assert baseline_value is not None, "asked above"
    if rule.max_drop is not None:
        return value >= (1 - rule.max_drop) * baseline_value
    assert rule.max_increase is not None, "a rule has one limit"
    return value <= (1 + rule.max_increase) * baseline_value


def sign_test(successes: int, throws: int) -> float:
    """Return the probability of at least so many successes in `throws` throws of a fair coin; 1 for none."""
    return sum(comb(throws, heads) for heads in range(successes, throws + 1)) / 2**throws


def rounds_needed(alpha: float) -> int:
    """Return the fewest rounds that can show a rule if all of them are within its limit."""
    return ceil(log2(1 / alpha))
