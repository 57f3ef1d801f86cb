"""Find the cases that no critical rule counts. A loss there would pass unseen, so nothing is approved.

A case that holds a reference, a schema, tests or calls is counted by a critical rule on a metric that reads them; any
other case by a critical rule on answers. `gate: {uncounted: allow}` approves all the same, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from qualgate.gate.evidence.quarantine import hold
from qualgate.gate.remark import PASSES, Judged, Remark, Remarks, no_choice
from qualgate.gate.rules import Slice, check_policy
from qualgate.gate.verdict import slices_of
from qualgate.records import Evalset, Policy, RunEvidence, Verdict
from qualgate.records.metrics import LM_EVAL, METRICS, READERS, reference_keys
from qualgate.text.numbers import counted

CaseId = tuple[str, str]  # evalset, case
SHOWN = 3  # cases named of each kind
_READING = frozenset(metric for metrics in READERS.values() for metric in metrics)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """The cases to be judged.

    metrics: evalset → metrics that score its cases. references: keys of `READERS` that a case has; without an entry,
    each case is assumed to have what its set's metrics read.
    """

    ids: Sequence[CaseId]
    metrics: Mapping[str, tuple[str, ...]]
    references: Mapping[CaseId, tuple[str, ...]]

    def readers(self, case: CaseId) -> frozenset[str]:
        """Metrics that read the case's references; empty without any."""
        return _readers(self.metrics.get(case[0], ()), self.references.get(case))


def cases_of(evidence: RunEvidence, quarantined: Collection[CaseId] = ()) -> Cases:
    """Cases of the evidence's closed list. quarantined: left out, the verdict lists them separately."""
    expected = dict.fromkeys((key.evalset, key.case_id) for key in evidence.expected)
    ids = [case for case in expected if case not in quarantined]
    return Cases(ids=ids, metrics=evidence.metrics, references=evidence.references)


@cache
def _readers(scored: tuple[str, ...], keys: tuple[str, ...] | None) -> frozenset[str]:
    known = _READING.intersection(scored) if keys is None else {metric for key in keys for metric in READERS[key]}
    others = (
        metric for metric in scored if metric.startswith(LM_EVAL) or metric not in METRICS
    )  # which judge by what they hold
    return frozenset((*known, *others))


def uncounted_before(sets: Sequence[Evalset], policy: Policy) -> str:
    """Predict what a verdict on these sets says about uncounted cases; "" for nothing."""
    if policy.nel or policy.decides_nothing:
        return ""
    metrics = {item.name: item.metrics for item in sets}
    of_sets = {(item.name, case.id): case for item in sets for case in item.cases}
    cases = Cases(
        ids=tuple(of_sets),
        metrics=metrics,
        references={key: reference_keys(case.body) for key, case in of_sets.items()},
    )
    return uncounted(
        cases, check_policy(policy.against(), metrics, {key: case.labels for key, case in of_sets.items()})
    )


def uncounted(cases: Cases, slices: Sequence[Slice]) -> str:
    """Say how many cases no critical rule counts, and which rule would; "": all are counted."""
    critical = [slice_ for slice_ in slices if slice_.rule.tier == "critical"]
    by_kind: dict[tuple[str, frozenset[str]], list[str]] = {}
    for case in cases.ids:
        by_kind.setdefault((case[0], cases.readers(case)), []).append(case[1])
    missed = {}
    for (evalset, readers), ids in by_kind.items():
        fit = [slice_ for slice_ in critical if evalset in slice_.evalsets and _counts(slice_.rule.metric, readers)]
        missing = [case for case in ids if not any(slice_.holds(evalset, case) for slice_ in fit)]
        if missing:
            missed[evalset, readers] = missing
    if not missed:
        return ""
    number, total = sum(map(len, missed.values())), sum(map(len, by_kind.values()))
    kinds = (
        _kind(at, readers, missing, cases.metrics.get(at, ()))
        for (at, readers), missing in sorted(missed.items(), key=str)
    )
    are = "is" if number == 1 else "are"
    return (
        f"{number:,} of {counted(total, 'case')} {are} counted by no critical rule, so a loss there would not show: "
        + "; ".join(kinds)
    )


def _counts(metric: str, readers: frozenset[str]) -> bool:
    return metric in readers if readers else _on_answers(metric)


def _on_answers(metric: str) -> bool:
    return METRICS[metric].approves or METRICS[metric].kind in ("judged", "stability") or metric.startswith("parity.")


def _kind(evalset: str, readers: frozenset[str], missing: Sequence[str], scored: Iterable[str]) -> str:
    """Describe uncounted cases of one set with the same references, and what would count them."""
    some = (
        f"{len(missing):,} of {evalset} ({', '.join(sorted(missing)[:SHOWN])}{', …' if len(missing) > SHOWN else ''})"
    )
    if not readers:
        return f"{some}: {{metric: format.nonempty, evalset: {evalset}, max_drop: 0.02}} would count them"
    if metric := next((name for name in scored if name in readers and name in METRICS), ""):
        return f"{some}: {{metric: {metric}, evalset: {evalset}, max_drop: 0.02}} would count them"
    if known := [name for name in METRICS if name in readers]:
        return f"{some}: score the set by {' or '.join(known[:SHOWN])}, and write a rule on it"
    return f"{some}: no rule can name the metrics that score them"


def uncounted_remarks(judged: Judged) -> Remarks:
    """Withhold approvals and reviews where no critical rule counts some cases, unless the policy allows it.
    Rules against other arms than the baseline count none: they may be about a part of the cases.

    An nel policy gates by other means, and a run that decides nothing has no approval.
    """
    evidence, policy = judged.evidence, judged.policy
    if policy.nel or evidence.decides_nothing:
        return {}
    quarantined = hold(policy, evidence.expected, judged.now[:10]).cases
    missed = uncounted(cases_of(evidence, quarantined), slices_of(evidence, policy.against()))
    if not missed:
        return {}
    if policy.uncounted == "allow":
        note = Remark(lines=(f"{missed} (allowed by `gate: {{uncounted: allow}}`)",), place="head")
        return {verdict.variant: note for verdict in judged.sound}
    return {verdict.variant: _withhold(verdict, missed) for verdict in judged.sound}


def _withhold(verdict: Verdict, missed: str) -> Remark:
    chosen = verdict.four_arm is not None and verdict.four_arm.exit in PASSES
    line = f"{missed}. If that is meant: `gate: {{uncounted: allow}}`" if verdict.exit in PASSES else missed
    return Remark(lines=(line,), withholds=PASSES, answer=no_choice(verdict, missed) if chosen else None)
