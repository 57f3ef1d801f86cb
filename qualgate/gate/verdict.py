"""Judge each variant in order of importance: intact, complete, nothing broken, everything proven."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qualgate.errors import EXIT_ORDER, Exit, UsageError
from qualgate.gate.causes.blame import with_causes
from qualgate.gate.causes.cause import name_causes
from qualgate.gate.causes.noise_floor import with_noise_floor
from qualgate.gate.comparisons.acceptance import Terms, terms_of
from qualgate.gate.comparisons.by_metric import measure_all
from qualgate.gate.comparisons.drift_summary import summarise
from qualgate.gate.comparisons.ledger import ledger
from qualgate.gate.comparisons.result import Measured, unmeasured
from qualgate.gate.evidence.checks import Examination, Pair, examine
from qualgate.gate.evidence.judged import judge_notes
from qualgate.gate.evidence.people import people_notes
from qualgate.gate.evidence.quarantine import Held, hold, too_old
from qualgate.gate.evidence.references import with_references
from qualgate.gate.evidence.stop_reasons import stop_reasons
from qualgate.gate.evidence.unchanged import unchanged
from qualgate.gate.evidence.unfinished_sets import Unfinished, by_arm
from qualgate.gate.explain import explain, far_better, many_flips
from qualgate.gate.rules import Slice, check_policy
from qualgate.records import NOISE, ArmService, Comparison, Policy, RunEvidence, Verdict, VerdictWord
from qualgate.records.metrics import METRICS
from qualgate.stats.multiplicity import holm

Pairs = dict[str, tuple[Pair, ...]]  # by evalset
TAKEN = {  # how null scores were counted
    "proven": "taken at their worst, {} right and the variant wrong",
    "broken": "taken at their best, {} wrong and the variant right",
    "undecided": "taken at their worst nothing is proven, at their best nothing is broken",
}
NOTHING_CRITICAL = "no critical rule is there to be proven, so nothing can earn an approval"
ONLY_WITHOUT = "proven only without the quarantined cases, so a person has to sign; with them"


def decide_plain(evidence: RunEvidence, policy: Policy, now: str = "") -> tuple[Verdict, ...]:
    """The verdict on each variant: the recorded ones, then, by name, planned ones without any unit. Twin arms of
    `run --blame` get none; they only show the cause of a block. Nor do the arms that rules are `against`.

    now: UTC, ISO 8601, for quarantines that end and evidence that grows old; "" = unknown: no quarantine is in force,
    and a `max_age` decides nothing.

    Same evidence in any order of units → the same verdicts, to the byte. UsageError: no variant, or a policy that
    does not fit the evalsets.
    """
    return judge_all(prepared_for(evidence, policy, now), policy)


@dataclass(frozen=True, slots=True)
class Prepared:
    """Examined evidence, ready for a policy at any alpha."""

    evidence: RunEvidence
    slices: tuple[Slice, ...]
    examined: tuple[Examination, ...]


def prepared_for(evidence: RunEvidence, policy: Policy, now: str) -> Prepared:
    """Examine the evidence for `decide_plain`."""
    slices, quarantine, evidence = prepare(evidence, policy, now)
    in_full = with_references(examine(evidence), evidence, policy.references)
    examined = tuple(without(examination, quarantine) for examination in in_full)
    if not any(not examination.variant.endswith(NOISE) for examination in examined):
        raise UsageError("The run has no variant, so there is nothing to judge. Name one under `variants`.")
    rerun = next((examination.pairs for examination in examined if examination.variant.endswith(NOISE)), {})
    examined = tuple(replace(examination, about=replace(examination.about, rerun=rerun)) for examination in examined)
    return Prepared(evidence, slices, examined)


def judge_all(prepared: Prepared, policy: Policy) -> tuple[Verdict, ...]:
    """The verdict on each variant. policy: that of `prepared`, at any alpha."""
    terms = terms_of(prepared.evidence, policy)
    verdicts = with_causes([judge(examination, prepared.slices, policy, terms) for examination in prepared.examined])
    return with_noise_floor(name_causes(verdicts, prepared.evidence, policy.max_unfinished), prepared.evidence)


def prepare(evidence: RunEvidence, policy: Policy, now: str) -> tuple[tuple[Slice, ...], Held, RunEvidence]:
    """The policy's slices, its quarantine, and the evidence with faults of age and quarantine added."""
    slices = slices_of(evidence, policy)
    quarantine = hold(policy, evidence.expected, now[:10])
    return (
        slices,
        quarantine,
        replace(evidence, stale=(*evidence.stale, *quarantine.faults, *too_old(evidence, policy, now))),
    )


def slices_of(evidence: RunEvidence, policy: Policy) -> tuple[Slice, ...]:
    """The policy's rules spread over the expected cases, see `check_policy`."""
    labels, cases = evidence.labels, {(key.evalset, key.case_id) for key in evidence.expected}
    if labels is not None:  # None where one has none: a slice must not lose a case for want of a label
        labels = {case: labels[case] for case in cases} if cases <= labels.keys() else None
    return check_policy(policy, evidence.metrics, labels)


def without(examination: Examination, quarantine: Held) -> Examination:
    """Remove quarantined cases from the pairs that rules see. They ran and were checked like all others."""
    pairs = {
        name: tuple(pair for pair in chosen if (name, pair.baseline.key.case_id) not in quarantine.cases)
        for name, chosen in examination.pairs.items()
    }
    counted = examination.pairs if any(len(pairs[name]) < len(examination.pairs[name]) for name in pairs) else None
    against = {arm: without(other, quarantine) for arm, other in examination.against.items()}
    notes = (*examination.notes, *quarantine.notes)
    return replace(examination, pairs=pairs, counted=counted, notes=notes, against=against)


def overall_exit(verdicts: Iterable[Verdict]) -> Exit:
    """The first of 14, 13, 10, 12, 11, 0 that occurs. UsageError for no verdict: silence is no approval."""
    codes = {verdict.exit for verdict in verdicts}
    for code in EXIT_ORDER:
        if code in codes:
            return code
    raise UsageError("There is no verdict to take an exit code from.")


def judge(
    examination: Examination,
    slices: Sequence[Slice],
    policy: Policy,
    terms: Terms,
    by: Callable[[Slice, Pairs], Measured] | None = None,
) -> Verdict:
    """One variant's verdict. by: what measures a slice of its pairs, else the fixed tests on all of them."""
    if faults := (*examination.integrity, *examination.incomplete):
        code = Exit.INTEGRITY if examination.integrity else Exit.INFRASTRUCTURE
        return Verdict(variant=examination.variant, word="invalid", exit=int(code), reasons=faults)

    sides = {"": examination, **examination.against}

    def measured(pairs: Mapping[str, Pairs], unfinished: Mapping[str, Unfinished]) -> list[Measured]:
        if by:
            return [by(slice_, pairs[""]) for slice_ in slices]
        about = {arm: side.about for arm, side in sides.items()}
        return measure_all(slices, pairs, unfinished, policy.alpha, terms, about)

    every = {arm: side.pairs for arm, side in sides.items()}
    unfinished = by_arm(every, policy.max_unfinished)
    ends = tuple(dict.fromkeys(line for side in unfinished.values() for line in side.lines))
    if examination.mismatched:
        results = [unmeasured(slice_, 0, "not compared: " + examination.mismatched[0]) for slice_ in slices]
    else:
        results = measured(every, unfinished)
    comparisons = _settle(results, policy.alpha)
    word, code, reasons = _conclude(comparisons, slices, examination.mismatched, policy)
    if word == "approve" and examination.counted:  # an entry may have been written once the failures were seen
        every = {arm: side.counted or side.pairs for arm, side in sides.items()}
        if reason := _unproven(_settle(measured(every, by_arm(every, policy.max_unfinished)), policy.alpha)):
            word, code, reasons = "review", Exit.REVIEW, (f"{ONLY_WITHOUT}: {reason}", *reasons)
    first = far_better(comparisons)
    if word in ("approve", "review"):
        if any(side.variant for side in unfinished.values()):
            word, code = "undecided", Exit.UNDECIDED
        first = (*first, *ends, *many_flips(comparisons))
    else:
        reasons = (*reasons, *(line for line in ends if not any(line in reason for reason in reasons)))
    pairs = [pair for name in sorted(examination.pairs) for pair in examination.pairs[name]]
    return Verdict(
        variant=examination.variant,
        word=word,
        exit=int(code),
        reasons=(
            *first,
            *(unchanged(examination.pairs) if word in ("approve", "review") else ()),
            *reasons,
            *_taken_at_worst(results, comparisons),
            *examination.notes,
            *judge_notes(examination.about.judged, policy.alpha),
            *people_notes(examination.about.preferred),
        ),
        comparisons=comparisons,
        drift=summarise(pairs),
        stop_reasons=stop_reasons(pairs),
        services=_services_if_cost(examination, slices, terms),
        votes=examination.about.preferred.read if examination.about.preferred else "",
    )


def _unproven(comparisons: Sequence[Comparison]) -> str:
    """The reason of the first critical rule that is not proven; "" where all are."""
    critical = (comparison for comparison in comparisons if comparison.tier == "critical")
    return next((comparison.reason for comparison in critical if comparison.status != "proven"), "")


def _taken_at_worst(measured: Sequence[Measured], comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    """Note proven rules with null scores; for the others their own reason says so."""
    return tuple(
        f"{result.slice.head}: {result.unsaid}: {TAKEN['proven'].format(result.slice.base)}"
        for result, comparison in zip(measured, comparisons, strict=True)
        if result.unsaid and comparison.status == "proven"
    )


def _services_if_cost(examination: Examination, slices: Sequence[Slice], terms: Terms) -> tuple[ArmService, ...]:
    """Book both arms' service figures if a rule on cost needs them; () otherwise."""
    pairs = [pair for name in sorted(examination.pairs) for pair in examination.pairs[name]]
    if not pairs or not any(METRICS[slice_.rule.metric].kind == "cost" for slice_ in slices):
        return ()
    before = ledger("baseline", [pair.baseline for pair in pairs], terms)
    after = ledger(examination.variant, [pair.variant for pair in pairs], terms)
    return before.service, after.service


def _settle(measured: Sequence[Measured], alpha: float) -> tuple[Comparison, ...]:
    """Apply Holm's correction over each tier: blocking is a union of claims. Unmeasured slices have a p-value of 1.

    A tier's rules against several arms are one family, so a wrong block stays within alpha over all of them. Proofs
    need no correction: an approval claims every critical rule at once, an intersection-union test, whose error is at
    most that of one test (Berger, Technometrics 24, 1982).
    """
    adjusted: dict[int, float] = {}
    for tier in ("critical", "supporting", "advisory"):
        family = [index for index, result in enumerate(measured) if result.comparison.tier == tier]
        p_values = [p if (p := measured[index].comparison.p_broken) is not None else 1.0 for index in family]
        adjusted.update(zip(family, holm(p_values), strict=True))
    return tuple(_with_status(result, adjusted[index], alpha) for index, result in enumerate(measured))


def _with_status(measured: Measured, adjusted_p_broken: float, alpha: float) -> Comparison:
    """Proven: the bound excludes the limit. Broken: a breach is proven. Otherwise undecided.

    An obstacle forbids proving; a loss that is proven all the same is a fact and stays broken.
    """
    if adjusted_p_broken <= alpha:
        status = "broken"
    elif measured.p_within <= alpha and not measured.obstacle:
        status = "proven"
    else:
        status = "undecided"
    comparison = replace(measured.comparison, status=status)
    barred = status == "undecided" and measured.obstacle
    reason = measured.obstacle if barred else explain(measured.slice, comparison, alpha)
    if measured.unsaid:
        reason = f"{reason}; {measured.unsaid}: {TAKEN[status].format(measured.slice.base)}"
    return replace(comparison, reason=reason)


def _conclude(
    comparisons: Sequence[Comparison], slices: Sequence[Slice], mismatched: tuple[str, ...], policy: Policy
) -> tuple[VerdictWord, Exit, tuple[str, ...]]:
    """Derive the verdict from the comparisons: mismatched, block, undecided, review or approve, whichever comes first.

    Returns: (word, exit code, reasons). Broken rules are listed with the largest excess over their limits first.
    """

    def reasons(tier: str, status: str) -> tuple[str, ...]:
        """Return the reasons of a tier's rules with this status, the most broken ones first."""
        chosen = [
            (_excess(comparison, slice_), index, comparison.reason)
            for index, (comparison, slice_) in enumerate(zip(comparisons, slices, strict=True))
            if comparison.tier == tier and comparison.status == status
        ]
        ordered = sorted(chosen, key=lambda entry: (-entry[0], entry[1])) if status == "broken" else chosen
        return tuple(reason for _, _, reason in ordered)

    broken, undecided = reasons("critical", "broken"), reasons("critical", "undecided")
    lesser = (*reasons("supporting", "broken"), *reasons("supporting", "undecided"))
    lesser = (*lesser, *reasons("advisory", "broken"), *reasons("advisory", "undecided"))
    critical = sum(comparison.tier == "critical" for comparison in comparisons)
    proven = f"all {critical} critical rules proven" if critical > 1 else "the critical rule is proven"
    if arms := list(dict.fromkeys(comparison.against for comparison in comparisons if comparison.against)):
        proven = f"{proven}, against the baseline and {' and '.join(arms)}"
    if mismatched:
        return "undecided", Exit.UNDECIDED, mismatched
    if broken:
        return "block", Exit.BLOCK, (*broken, *undecided, *lesser)
    if undecided or not critical:
        nothing = () if critical else (NOTHING_CRITICAL,)
        return "undecided", Exit.UNDECIDED, (*nothing, *undecided, *lesser)
    if reasons("supporting", "broken"):
        return "review", Exit.REVIEW, (*lesser, proven)
    if policy.review == "always":
        return "review", Exit.REVIEW, (f"{proven}; the policy asks for a person", *lesser)
    return "approve", Exit.APPROVE, (proven, *lesser)


def _excess(comparison: Comparison, slice_: Slice) -> float:
    """A quality loss as a multiple of its allowance; 0 for drift and latency, which follow in rule order."""
    allowed = slice_.rule.max_drop or slice_.rule.max_relative_drop
    if METRICS[comparison.metric].kind != "quality" or not allowed:
        return 0.0
    return -(comparison.difference or 0.0) / allowed
