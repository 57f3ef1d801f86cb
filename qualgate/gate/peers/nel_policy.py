"""Apply a NeMo Evaluator gate policy (version 1) to our evidence: nel's own answer, and our verdict by its margins.

nel gates one reward for each benchmark. Here a benchmark is the evalset of that name and its reward is the first
quality metric that the evalset lists. Margins, tiers and the 95 % two-sided level are nel's. Ours differs in this:
evidence must be whole, bounds are exact, blocks are corrected for their number, a guard needs an interval, and a policy
that gates nothing approves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from qualgate.errors import Exit, UsageError
from qualgate.gate.peers.nel_v1 import CONFIDENCE, judge
from qualgate.gate.peers.rule import Outcomes, PeerVerdict
from qualgate.gate.peers.said import outcomes
from qualgate.gate.verdict import decide_plain
from qualgate.records import Comparison, Policy, Rule, RunEvidence, Tier, Verdict
from qualgate.records.metrics import METRICS

METRICS_GATED = ("mean_reward", "pass@1")
MOST_MARGIN = 1 - 1e-6  # a tolerance of 1 and more is kept by everything
LEAST_MARGIN = 1e-6  # for a tolerance of 0, which no sample can keep: then only a proven gain approves
NOTHING_ELSE = Policy(rules=())
NOT_KNOWN: Mapping[str, float] = MappingProxyType({})
Word = Literal["GO", "NO-GO", "INCONCLUSIVE"]
Status = Literal["PASS", "BREACH", "INSUFFICIENT_EVIDENCE", "MISSING"]
_SAME = {"GO": {"approve"}, "NO-GO": {"block"}, "INCONCLUSIVE": {"undecided"}}
_STATUS: dict[str, Status] = {"pass": "PASS", "fail": "BREACH", "cannot": "INSUFFICIENT_EVIDENCE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class NelBenchmark:
    """The thresholds of one benchmark, defaults filled in."""

    tier: Tier = "supporting"
    max_drop: float = 0.015
    max_relative_drop: float | None = None
    relative_guard_below: float | None = None
    metric: str | None = None
    direction: Literal["higher_is_better", "lower_is_better"] = "higher_is_better"

    @property
    def gated(self) -> bool:
        """Whether the benchmark can block."""
        return self.tier != "advisory"


@dataclass(frozen=True, slots=True, kw_only=True)
class NelPolicy:
    """The policy as read, its benchmarks' gaps filled from the defaults."""

    defaults: NelBenchmark = NelBenchmark()
    benchmarks: dict[str, NelBenchmark] = field(default_factory=dict)  # those the policy lists

    def of(self, benchmark: str) -> NelBenchmark:
        """Thresholds of a benchmark; the defaults if the policy does not list it."""
        return self.benchmarks.get(benchmark, self.defaults)


@dataclass(frozen=True, slots=True, kw_only=True)
class NelLine:
    """nel's answer on one benchmark."""

    benchmark: str
    tier: Tier
    status: Status
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NelSaid:
    """nel's answer on one variant, and why our verdict differs (empty: it does not)."""

    variant: str
    says: Word
    why: str
    benchmarks: tuple[NelLine, ...]
    differences: tuple[str, ...] = ()


def as_text(nel: NelPolicy) -> str:
    """The policy as text for `Policy.nel`: equal policies have equal texts."""
    return json.dumps(asdict(nel), sort_keys=True)


def of_text(text: str) -> NelPolicy:
    """Parse the output of `as_text`."""
    body = json.loads(text)
    benchmarks = {name: NelBenchmark(**thresholds) for name, thresholds in body["benchmarks"].items()}
    return NelPolicy(defaults=NelBenchmark(**body["defaults"]), benchmarks=benchmarks)


def decide_by(
    nel: NelPolicy, evidence: RunEvidence, policy: Policy = NOTHING_ELSE, now: str = ""
) -> tuple[tuple[Verdict, ...], Policy, tuple[NelSaid, ...]]:
    """(our verdicts by nel's policy, the policy as ours, nel's answer beside each). UsageError: unfit policy.

    policy: its rules and alpha are replaced by nel's. Review, quarantine and `max_age`, which nel lacks, stay.
    """
    adopted, notes, missing = adopt(nel, evidence.metrics, _mean_rewards(evidence))
    policy = replace(policy, rules=adopted.rules, alpha=adopted.alpha, nel=as_text(nel))
    replies = {reply.variant: reply for reply in nel_says(nel, evidence)}
    verdicts = tuple(
        _barred(verdict, missing, notes, replies.get(verdict.variant))
        for verdict in decide_plain(evidence, policy, now)
    )
    beside = tuple(
        _with_differences(verdict, replies[verdict.variant]) for verdict in verdicts if verdict.variant in replies
    )
    return verdicts, policy, beside


def adopt(
    nel: NelPolicy, metrics: Mapping[str, tuple[str, ...]], levels: Mapping[str, float] = NOT_KNOWN
) -> tuple[Policy, tuple[str, ...], tuple[str, ...]]:
    """(our policy, notes on thresholds read in our way, required benchmarks that the run lacks).

    metrics: those of each evalset, in its order. levels: the baseline's mean reward on each; without it, no guard.
    critical and supporting both block in nel, so both are critical here. The margin of a benchmark under its relative
    guard is the smaller of `max_drop` and `max_relative_drop` times the baseline's level.
    """
    check(nel)
    rules, notes = [], []
    rewards = _rewards(metrics)
    for name, reward in rewards.items():
        wanted = nel.of(name)
        if wanted.gated and wanted.metric not in (None, *METRICS_GATED):
            raise UsageError(
                f"the nel policy gates {name} by {wanted.metric!r:.60}, which is neither {' nor '.join(METRICS_GATED)}"
            )
        if wanted.direction == "lower_is_better":
            raise UsageError(
                f"the nel policy has {name} as lower_is_better; all our scores are better when higher. Leave it out."
            )
        if wanted.metric == "pass@1" and not METRICS[reward].binary:
            raise UsageError(
                f"the nel policy gates pass@1 of {name}, whose {reward} is not right or wrong but a number"
            )
        margin, guard = wanted.max_drop, _guard(wanted, levels.get(name))
        if guard is not None and guard < margin:
            notes.append(f"nel policy: {name} is under its relative guard, so at most {guard:.4g} may be lost of it")
            margin = guard
        never = margin > MOST_MARGIN
        if never:
            notes.append(f"nel policy: {name} tolerates a loss of {margin:g}, which nothing exceeds: it gates nothing")
        if margin < LEAST_MARGIN:
            notes.append(f"nel policy: {name} tolerates no loss at all, so only a proven gain can approve")
        others = [metric for metric in _quality(metrics[name]) if metric != reward]
        if others:
            notes.append(f"nel policy: {name} is gated on {reward} alone, not on {', '.join(others)}")
        rules.append(
            Rule(
                metric=reward,
                scope="evalset",
                evalset=name,
                tier="critical" if wanted.gated and not never else "advisory",
                max_drop=min(max(margin, LEAST_MARGIN), MOST_MARGIN),
            )
        )
    missing = tuple(name for name in sorted(nel.benchmarks) if nel.of(name).gated and name not in rewards)
    return Policy(rules=tuple(rules), alpha=round((1 - CONFIDENCE) / 2, 6)), tuple(notes), missing


def check(nel: NelPolicy) -> None:
    """Refuse what nel refuses: a required benchmark must gate an explicit metric that nel supports."""
    for name in sorted(nel.benchmarks):
        metric = nel.of(name).metric
        if nel.of(name).gated and metric not in METRICS_GATED:
            raise UsageError(
                f"the nel policy requires {name}: it must gate {' or '.join(METRICS_GATED)}; it has {metric or 'none'}"
                ". Either is nel's word for a benchmark's reward, here the first quality metric of the evalset"
            )


def nel_says(nel: NelPolicy, evidence: RunEvidence) -> tuple[NelSaid, ...]:
    """Apply nel's gate to every variant: only rows of both arms count, whatever else is missing, failed or stale."""
    rewards = _rewards(evidence.metrics)
    replies = []
    for variant in evidence.variants:
        by_evalset = {
            outcome.evalset: outcome
            for outcome in outcomes(evidence, variant)
            if rewards.get(outcome.evalset) == outcome.metric
        }
        present = {name: outcome for name, outcome in by_evalset.items() if outcome.baseline.n and outcome.variant.n}
        lines = [
            NelLine(benchmark=name, tier=nel.of(name).tier, status="MISSING", why="required, and not in the results")
            for name in sorted(nel.benchmarks)
            if nel.of(name).gated and name not in present
        ]
        for name, outcome in sorted(present.items()):
            verdict = _nel_verdict(nel.of(name), outcome)
            lines.append(NelLine(benchmark=name, tier=nel.of(name).tier, status=_STATUS[verdict.says], why=verdict.why))
        word, why = _aggregate(lines)
        replies.append(NelSaid(variant=variant.name, says=word, why=why, benchmarks=tuple(lines)))
    return tuple(replies)


def _nel_verdict(wanted: NelBenchmark, outcome: Outcomes) -> PeerVerdict:
    """Apply nel's rule, with a benchmark's margins, to the outcomes."""
    return judge(
        outcome,
        max_drop=wanted.max_drop,
        max_relative_drop=wanted.max_relative_drop,
        relative_guard_below=wanted.relative_guard_below,
        advisory=not wanted.gated,
    )


def _aggregate(lines: list[NelLine]) -> tuple[Word, str]:
    """NO-GO for any breach or absence, else INCONCLUSIVE for insufficient evidence, else GO, even without a gate."""
    gated = [line for line in lines if line.tier != "advisory"]
    against = [f"{line.benchmark} {line.status}" for line in gated if line.status in ("BREACH", "MISSING")]
    if against:
        return "NO-GO", ", ".join(against)
    unsure = [f"{line.benchmark} {line.status}" for line in gated if line.status == "INSUFFICIENT_EVIDENCE"]
    if unsure:
        return "INCONCLUSIVE", ", ".join(unsure)
    return "GO", f"all {len(gated)} gated benchmarks passed" if gated else "no gated benchmark was evaluated"


def _quality(metrics: Sequence[str]) -> list[str]:
    return [name for name in metrics if name in METRICS and METRICS[name].kind == "quality"]


def _rewards(metrics: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """evalset → the metric that stands for nel's reward."""
    by_evalset = {name: _quality(metrics[name]) for name in sorted(metrics)}
    return {name: first[0] for name, first in by_evalset.items() if first}


def _mean_rewards(evidence: RunEvidence) -> dict[str, float]:
    """Return the baseline's mean reward of each evalset, from the first variant's pairs; {} without a variant."""
    rewards = _rewards(evidence.metrics)
    levels: dict[str, float] = {}
    for variant in evidence.variants[:1]:
        for outcome in outcomes(evidence, variant):
            if rewards.get(outcome.evalset) == outcome.metric:
                levels.setdefault(outcome.evalset, outcome.baseline.mean)
    return levels


def _guard(wanted: NelBenchmark, level: float | None) -> float | None:
    """The loss that the relative guard allows at the baseline's level; None where it does not apply."""
    if wanted.max_relative_drop is None or level is None:
        return None
    if wanted.relative_guard_below is not None and level >= wanted.relative_guard_below:
        return None
    return wanted.max_relative_drop * level


def _barred(verdict: Verdict, missing: tuple[str, ...], notes: tuple[str, ...], reply: NelSaid | None) -> Verdict:
    """Make approvals undecided without a required benchmark; what is broken stays broken. If nel would decide
    otherwise, add its answer."""
    absent = tuple(f"{name} is required by the nel policy and was not in the run" for name in missing)
    if absent and verdict.word in ("approve", "review", "undecided"):
        verdict = replace(verdict, word="undecided", exit=int(Exit.UNDECIDED), reasons=(*absent, *verdict.reasons))
    else:
        verdict = replace(verdict, reasons=(*verdict.reasons, *absent))
    differs = reply is not None and verdict.word not in _SAME[reply.says]
    beside = (f"by its own rules, nel would say {reply.says}: {reply.why}",) if reply and differs else ()
    return replace(verdict, reasons=(*verdict.reasons, *beside, *notes))


def _with_differences(verdict: Verdict, reply: NelSaid) -> NelSaid:
    """Add every difference from nel to its reply: of the verdict, and of single benchmarks even if the verdicts
    agree.
    """
    lines = {line.benchmark: line for line in reply.benchmarks}
    why = []
    if verdict.word not in _SAME[reply.says]:
        why.append(f"nel would say {reply.says} ({reply.why}), qualgate says {verdict.word}: {verdict.reasons[0]}")
    for comparison in verdict.comparisons:
        line = lines.get(comparison.slice)
        if line is not None and (line.status, comparison.status) not in _AGREED:
            our_status = f"qualgate {comparison.status}: {_because(line, comparison)}"
            why.append(f"{comparison.slice}: nel {line.status}, {line.why}; {our_status}")
    return replace(reply, differences=tuple(why))


_AGREED = {("PASS", "proven"), ("BREACH", "broken"), ("INSUFFICIENT_EVIDENCE", "undecided")}


def _because(line: NelLine, comparison: Comparison) -> str:
    """Say what our rule requires beyond nel's, then our reason."""
    if not comparison.method:  # nothing was measured: our reason says why
        return comparison.reason
    if line.status == "PASS":
        requirement = "an exact bound, and a baseline that is right often enough, are asked for"
    elif "relative drop" in line.why:
        requirement = "a guard needs an interval, not the point estimate alone"
    elif line.status == "BREACH":
        requirement = "an exact bound is asked for, corrected for the number of rules"
    else:
        requirement = "the exact paired bound decides where the t interval straddles or has too few pairs"
    return f"{requirement}; {comparison.reason}"
