"""Check that the evidence is complete, intact and paired by identity, so that a verdict may rest on it.

Nothing here is a statistic. A unit that the machinery lost, failed, aborted or doubled is no answer, neither right nor
wrong. An answer cut at its maximum length is an answer (`unfinished_sets` counts those).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite

from qualgate.gate.causes.cause import contradictory, relation
from qualgate.gate.evidence.duplicates import join
from qualgate.gate.evidence.unread_calls import counted_as_wrong, lost_calls
from qualgate.records import UNCOUNTED, ArmEvidence, JudgedArm, RunEvidence, UnitEvidence, UnitKey
from qualgate.records.metrics import METRICS, out_of_range
from qualgate.text.numbers import counted

# Identity fields that must be equal on both sides; the engine, which is last, only where neither is served.
PAIRED_BY = ("template", "tokenizer", "sampling", "engine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same case and repeat, answered by both arms."""

    baseline: UnitEvidence
    variant: UnitEvidence
    cluster: int  # pairs with equal numbers may depend on each other: a shared passage, or repeats of one case
    max_new_tokens: int | None = None  # tokens that an answer may take at most; None: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What is known of two arms beside their pairs."""

    baseline: Mapping[str, float] = field(default_factory=dict)  # `ArmEvidence.facts`
    variant: Mapping[str, float] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)  # of the variant: metric → why it has no number
    rerun: Mapping[str, tuple[Pair, ...]] = field(default_factory=dict)  # the A/A arm's pairs, where there is one
    judged: JudgedArm | None = None  # of the variant
    preferred: JudgedArm | None = None  # likewise, by people


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Faults and pairs of one variant and the baseline. Each entry is a line for the user; empty = nothing wrong."""

    variant: str
    integrity: tuple[str, ...] = ()  # not what was recorded: invalid, 14
    incomplete: tuple[str, ...] = ()  # the machinery did not deliver: invalid, 13
    mismatched: tuple[str, ...] = ()  # not the same question to both sides, or no longer the one to judge: undecided
    notes: tuple[str, ...] = ()
    pairs: dict[str, tuple[Pair, ...]]  # evalset → pairs in order of case and repeat; only when nothing is wrong
    counted: dict[str, tuple[Pair, ...]] | None = None  # with the quarantined ones; None: none is
    about: About = About()
    against: Mapping[str, Examination] = field(default_factory=dict)  # arm in the baseline's place → pairs with it


def examine(evidence: RunEvidence) -> tuple[Examination, ...]:
    """Examine each variant: the recorded ones, then, by name, those that were planned and left no unit."""
    planned: dict[str, list[UnitKey]] = {}
    for key in evidence.expected:
        planned.setdefault(key.arm, []).append(key)
    known = {evidence.baseline.name, *(arm.name for arm in evidence.variants)}
    absent = (ArmEvidence(name=name, identity=None, units=()) for name in sorted(planned.keys() - known))
    names = Counter(arm.name for arm in (evidence.baseline, *evidence.variants))
    baseline_faults = _arm_faults(evidence.baseline, planned.get(evidence.baseline.name, []), evidence)
    examinations = []
    for variant in (*evidence.variants, *absent):
        faults = _arm_faults(variant, planned.get(variant.name, []), evidence)
        broken = [*evidence.integrity, *baseline_faults[0], *faults[0]]
        incomplete = [*baseline_faults[1], *faults[1]]
        if names[variant.name] > 1:
            broken.append(f"two arms are called {variant.name}")
        unpaired = {_question(key) for key in planned.get(evidence.baseline.name, ())} ^ {
            _question(key) for key in planned.get(variant.name, ())
        }
        if unpaired:
            incomplete.append(
                f"{counted(len(unpaired), 'unit was', 'units were')} planned for one of {evidence.baseline.name} and "
                f"{variant.name} only{_some(unpaired)}"
            )
        if variant.stopped is not None and not broken:
            examinations.append(
                Examination(variant=variant.name, mismatched=(_stopped_line(variant, planned),), pairs={})
            )
        elif broken or incomplete:
            examinations.append(
                Examination(variant=variant.name, integrity=tuple(broken), incomplete=tuple(incomplete), pairs={})
            )
        else:
            examinations.append(_examine_complete(evidence, variant))
    return tuple(examinations)


def _examine_complete(evidence: RunEvidence, variant: ArmEvidence) -> Examination:
    """Pair a complete variant with the baseline, and find what makes both incomparable.

    Mismatches leave no pairs. Notes tell of an A/A arm, of repeats that differ, and of calls that were not read.
    """
    variant = replace(variant, units=tuple(counted_as_wrong(evidence.baseline.units, variant.units)))
    pairs = paired(evidence, variant)
    arms = (evidence.baseline, variant)
    beyond = [line for arm in arms for line in (*_overflows(arm), *_not_reproduced(arm))]
    mismatched = (*evidence.stale, *beyond, *_mismatches(evidence, variant, pairs))
    same = getattr(evidence.baseline.identity, "weights", 0) == getattr(variant.identity, "weights", 1)
    same = same and not getattr(variant.identity, "speculation", "")
    same = same and getattr(evidence.baseline.identity, "kv_cache", "") == getattr(variant.identity, "kv_cache", "")
    the = "the " if evidence.baseline.name == "baseline" else ""
    by_set: dict[str, list[Pair]] = {name: [] for name in sorted(evidence.metrics)}
    for pair in pairs:
        by_set[pair.baseline.key.evalset].append(pair)
    return Examination(
        variant=variant.name,
        mismatched=mismatched,
        notes=(
            *((f"A/A: same weights as {the}{evidence.baseline.name}",) if same else ()),
            *_flaky(evidence.baseline, variant),
            *_lost_calls(variant),
        ),
        pairs={} if mismatched else {name: tuple(chosen) for name, chosen in by_set.items()},
        about=About(
            baseline=evidence.baseline.facts,
            variant=variant.facts,
            unmeasured=variant.unmeasured,
            judged=variant.judged,
            preferred=variant.preferred,
        ),
    )


def _stopped_line(variant: ArmEvidence, planned: Mapping[str, Sequence[UnitKey]]) -> str:
    """Say why only the policy that stopped the run may judge it: a fixed test assumes cases not chosen by looking."""
    stopped = variant.stopped
    assert stopped is not None, "asked of stopped variants alone"
    return (
        f"{variant.name}: generation ended at {stopped.seen} of "
        f"{counted(len(planned.get(variant.name, ())), 'case')}, when the "
        "run's own policy was settled; another policy, or another way to decide, cannot judge cases chosen by looking: "
        "run again with it"
    )


def _overflows(arm: ArmEvidence) -> tuple[str, ...]:
    """Report activations that overflow float16: a server with that dtype would answer otherwise."""
    if not arm.overflow:
        return ()
    (_, module, count), *others = arm.overflow
    of_others = f", then of {counted(len(others), 'other module')}" if others else ""
    return (
        f"{arm.name}: {counted(sum(entry[2] for entry in arm.overflow), 'activation')} beyond float16's largest "
        f"number, 65504 (first {count} of {module}{of_others}): a server that stores them in float16 turns them into "
        "infinities, so its answers are not those of these weights. Declare `dtype: bfloat16` if that is what is "
        "served",
    )


def _not_reproduced(arm: ArmEvidence) -> tuple[str, ...]:
    """Report tokens that the engine did not reproduce when it generated them again."""
    run = arm.generation
    if not run.otherwise:
        return ()
    return (
        f"{arm.name}: {run.otherwise} of {counted(run.checked, 'token')} that were said once more, plainly and "
        f"alone, came out otherwise than in the run (engine: {run.engine}). That is a defect of the engine or of the "
        "machine: report it with what `qualgate doctor` says here",
    )


def _flaky(*arms: ArmEvidence) -> tuple[str, ...]:
    """Report cases whose repeats differ in score within one arm. They count like all others."""
    notes = []
    for arm in arms:
        if not any(unit.key.repeat for unit in arm.units):
            continue
        scores_by_case: dict[tuple[str, str], set[tuple[tuple[str, float | None], ...]]] = {}
        for unit in arm.units:
            scores = tuple(sorted((name, unit.values[name]) for name in unit.scorers if name in unit.values))
            scores_by_case.setdefault((unit.key.evalset, unit.key.case_id), set()).add(scores)
        if flaky := sorted((*case, 0) for case, ways in scores_by_case.items() if len(ways) > 1):
            notes.append(
                f"{arm.name}: {len(flaky)} of {counted(len(scores_by_case), 'case')} differ between their repeats"
                f"{_some(flaky)}"
            )
    return tuple(notes)


def _lost_calls(variant: ArmEvidence) -> tuple[str, ...]:
    """Report answers whose calls only another dialect reads. They count as wrong."""
    lost = lost_calls(variant.units)
    if not lost:
        return ()
    return (
        f"{variant.name}: {counted(len(lost), 'answer holds', 'answers hold')} a call that the declared dialect does "
        "not read and another does. It reads the baseline's, so the parser is the right one, and these count as wrong"
        f"{_some([_question(unit.key) for unit in lost])}",
    )


def _question(key: UnitKey) -> tuple[str, str, int]:
    return key.evalset, key.case_id, key.repeat


def _arm_faults(arm: ArmEvidence, expected: Sequence[UnitKey], evidence: RunEvidence) -> tuple[list[str], list[str]]:
    """(integrity, incomplete) of one arm: exactly one terminal row for each expected unit, and sound values in it."""
    integrity, incomplete, metrics = [], [], evidence.metrics

    def report(into: list[str], what: str, keys: Iterable[UnitKey]) -> None:
        questions = {_question(key) for key in keys}
        if questions:
            into.append(f"{arm.name}: {len(questions)} of {counted(len(expected), 'unit')} {what}{_some(questions)}")

    rows = Counter(unit.key for unit in arm.units)
    planned = Counter(expected)
    report(integrity, "recorded more than once", [key for key, count in rows.items() if count > 1])
    report(integrity, "planned more than once", [key for key, count in planned.items() if count > 1])
    report(integrity, "recorded but never planned", rows.keys() - planned.keys())
    report(integrity, "of a set that the run does not list", [key for key in planned if key.evalset not in metrics])
    if not expected:
        incomplete.append(f"{arm.name}: no unit was planned")
    missing = {unit.key for unit in arm.units if unit.status == "missing"} | (planned.keys() - rows.keys())
    report(incomplete, "missing", missing)
    failed = [unit for unit in arm.units if unit.status not in ("done", "missing")]
    report(incomplete, "failed", [unit.key for unit in failed])
    incomplete += sorted({f"{arm.name}: {unit.error}" for unit in failed if unit.error})[:3]
    done = [unit for unit in arm.units if unit.status == "done"]
    report(
        incomplete,
        "ended by the server (abort, content_filter), which is no answer, however it was scored; ask these cases "
        "again, or take them out of the evalset",
        [unit.key for unit in done if unit.finish_reason == "abort"],
    )
    lacking: dict[str, list[UnitKey]] = {}
    for unit in done:
        for name in set(metrics.get(unit.key.evalset, ())) - unit.values.keys():
            lacking.setdefault(name, []).append(unit.key)
    whose: dict[str, list[str]] = {}
    for name in sorted(lacking):
        whose.setdefault(_who_asks(name, arm, evidence), []).append(name)
    for asks, names in whose.items():
        unscored = [key for name in names for key in lacking[name]]
        report(incomplete, f"without a score of {', '.join(names)}, {asks}", unscored)
    report(incomplete, "with a value that is no number of its range (NaN?)", [u.key for u in done if not _sound(u)])
    if strange := sorted(name for name, value in arm.facts.items() if not _sound_fact(name, value)):
        incomplete.append(f"{arm.name}: {', '.join(strange)}, measured of it, is no number of its range (NaN?)")
    if arm.identity is None:
        incomplete.append(f"{arm.name}: no job ever finished, so what it was is not known")
    return integrity, incomplete


def _who_asks(metric: str, arm: ArmEvidence, evidence: RunEvidence) -> str:
    """Say why answers of `arm` must have this metric; with score files, perhaps because another file has it."""
    arms = [
        other for other in (evidence.baseline, *evidence.variants) if any(metric in unit.values for unit in other.units)
    ]
    if others := [other.name for other in arms if other.name != arm.name]:
        return f"which there is of {' and '.join(others)}"
    return "which there is of its other answers" if arms else "which their set or a rule asks for"


def _sound_fact(name: str, value: float) -> bool:
    """Sizes are over 0, shares and rates within 0..1 (sums of floats leave them by some ulp), decibels any number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return False
    unit = METRICS[name].unit if name in METRICS else "bytes"
    if unit == "dB":
        return True
    if unit == "bytes":
        return value > 0 or (value == 0 and name != "memory.weights")
    return 0 <= value <= 1 + 1e-9


def _sound(unit: UnitEvidence) -> bool:
    """Values are within their metrics' ranges, agreement within 0..1, and whatever else was measured a possible one."""
    if any(value is not None and out_of_range(name, value) for name, value in unit.values.items()):
        return False
    agreement = unit.top1_agreement
    if agreement is not None and not 0 <= agreement <= 1:
        return False
    if any(not 0 <= taken < inf for taken in _taken(unit)):
        return False
    if unit.thought is not None and unit.thought < UNCOUNTED:
        return False
    if len(unit.token_ids) % 4 or len(unit.answer or b"") % 4 or len(unit.margins or b"") % 8:
        return False  # not whole int32 and float64 numbers
    if unit.kl_upper is not None and not _are_upper(unit.kl_upper, unit.kl):
        return False
    return not unit.kl or (isfinite(sum(unit.kl)) and min(unit.kl) >= 0 and 0 <= unit.kl_eta < 1)


def _are_upper(upper: Sequence[float], kl: Sequence[float]) -> bool:
    """A bound for each position, none below what is proven at least; one may be infinite."""
    return len(upper) == len(kl) and all(
        upper_bound >= lower_bound for lower_bound, upper_bound in zip(kl, upper, strict=True)
    )


def _taken(unit: UnitEvidence) -> Iterator[float]:
    """Yield recorded token counts and seconds of the unit and its attempts; a negative one would offset others."""
    for amount in (unit.tokens, unit.prompt_tokens):
        if amount is not None:
            yield amount
    for attempt in unit.attempts:
        for amount in (attempt.prompt_tokens, attempt.output_tokens, attempt.seconds):
            if amount is not None:
                yield amount


Label = tuple[str, str, bool]  # evalset, the cluster's or else the case's own id, whether it is the case's own


def paired(evidence: RunEvidence, variant: ArmEvidence) -> list[Pair]:
    """Pair each unit of the baseline with the variant's answer to the same question, by case and repeat.
    KeyError for a missing answer."""
    answers = {_question(unit.key): unit for unit in variant.units}
    units = sorted(evidence.baseline.units, key=lambda unit: _question(unit.key))
    questions = evidence.questions
    first = join(
        (_label(unit), question)
        for unit in units
        for question in (questions.get((unit.key.evalset, unit.key.case_id), ""), unit.case_hash)
    )
    numbers: dict[Label, int] = {}
    return [
        Pair(
            baseline=unit,
            variant=answers[_question(unit.key)],
            cluster=numbers.setdefault(first(_label(unit)), len(numbers)),
            max_new_tokens=evidence.max_new_tokens.get((unit.key.evalset, unit.key.case_id)),
        )
        for unit in units
    ]


def _label(unit: UnitEvidence) -> Label:
    return unit.key.evalset, unit.cluster or unit.key.case_id, unit.cluster is None


def _mismatches(evidence: RunEvidence, variant: ArmEvidence, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """List how the arms' questions, cases, kernels or scorers differ, or answers that the arm's weights did not give.

    pairs: of the variant and the baseline. () if nothing differs.
    """
    # A served arm is judged with its engine, as its users meet it.
    served = any(getattr(arm.identity, "served", "") for arm in (evidence.baseline, variant))
    mismatches = [
        f"{field} differs between {evidence.baseline.name} and {variant.name}: not the same question to both"
        for field in (PAIRED_BY if not served else PAIRED_BY[:-1])
        if getattr(evidence.baseline.identity, field) != getattr(variant.identity, field)
    ]
    other_case = {
        _question(pair.baseline.key)
        for pair in pairs
        if not pair.baseline.case_hash
        or pair.baseline.case_hash != pair.variant.case_hash
        or pair.baseline.cluster != pair.variant.cluster
    }
    unhashed = {
        _question(pair.baseline.key) for pair in pairs if not (pair.baseline.case_hash and pair.variant.case_hash)
    }
    if unhashed:
        mismatches.append(
            f"{counted(len(unhashed), 'case lacks', 'cases lack')} a `case_hash` on one side or both, so whether both "
            "were asked the same is not known: give rows of scores the one that `qualgate score` writes, or say "
            f"`gate: {{identity: ids}}` to pair by ids alone{_some(unhashed)}"
        )
    if other_case := other_case - unhashed:
        mismatches.append(
            f"{counted(len(other_case), 'case is', 'cases are')} not the same version on both sides{_some(other_case)}"
        )
    relations = [relation(pair.baseline, pair.variant) for pair in pairs]
    if contradictory(relations):
        mismatches.append(
            f"{variant.name}: {counted(relations.count('contradiction'), 'answer is', 'answers are')} not what its own "
            "weights say there "
            "(an answer of other weights, or out of a stale cache)"
        )
    kernels = {pair.variant.kernel for pair in pairs}
    if len(kernels) > 1:
        names = ", ".join(sorted(kernel or "not recorded" for kernel in kernels))
        mismatches.append(
            f"{variant.name}: its answers came from different kernels ({names}): run again on one machine"
        )
    other_scorer = set()
    for pair in pairs:
        scored = {*evidence.metrics[pair.baseline.key.evalset], *pair.baseline.scorers, *pair.variant.scorers}
        for metric in scored:
            scorer = pair.baseline.scorers.get(metric)
            if not scorer or scorer != pair.variant.scorers.get(metric):
                other_scorer.add((metric, pair.baseline.key.evalset))
    mismatches += [f"{metric} [{name}]: not scored by the same scorer version" for metric, name in sorted(other_scorer)]
    return tuple(mismatches)


def _some(questions: Iterable[tuple[str, str, int]]) -> str:
    """Name the first three questions, for a message."""
    names = [f"{name}/{case}" + (f"#{repeat}" if repeat else "") for name, case, repeat in sorted(questions)]
    return ": " + ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
