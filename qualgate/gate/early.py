"""Decide whether generation may stop for a variant, by tests that stay valid over many looks.

Cases come in a seeded order that is independent of their outcomes, whole clusters together. The sizes of the looks are
planned before the first answer. A look counts only the answered beginning of the order, so neither workers nor answer
lengths choose the cases, and the verdict does not depend on who finished first. A failed unit ends that beginning.

A quality rule with a `max_drop` is judged by `stats.betting`. Every other rule (drift, latency, cost, a relative
drop, pass@k) has a test for one look only: it waits until every case is in, and so does an approval that needs it. Such
a test runs once, on the whole list, so it stays below alpha whatever earlier looks decided. A block needs only the
broken rule.

A stopped variant keeps the verdict of the look that stopped it, by its own policy. A fixed test on the same cases would
be invalid: they were chosen by looking.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from math import ceil, log
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from qualgate.errors import Exit, UsageError
from qualgate.gate.advice import SENSITIVITY_ALPHA
from qualgate.gate.causes.cause import name_causes
from qualgate.gate.causes.unfinished import way_unfinished
from qualgate.gate.comparisons.acceptance import terms_of
from qualgate.gate.comparisons.by_metric import measure
from qualgate.gate.comparisons.pairs import pairs_of
from qualgate.gate.comparisons.quality import too_weak
from qualgate.gate.comparisons.result import Measured, unmeasured
from qualgate.gate.comparisons.unsaid import Outcomes, taken
from qualgate.gate.evidence.checks import Pair, examine
from qualgate.gate.evidence.duplicates import join
from qualgate.gate.evidence.unfinished_sets import unfinished_sets
from qualgate.gate.rules import Slice
from qualgate.gate.verdict import decide_plain, judge, prepare, without
from qualgate.records import (
    ArmEvidence,
    Case,
    EarlyStop,
    Policy,
    Rule,
    RunEvidence,
    Seen,
    Stopped,
    UnitKey,
    Verdict,
)
from qualgate.records.identity import content_hash
from qualgate.records.metrics import BY_TRAJECTORY, METRICS
from qualgate.stats.betting import Presumed, SequentialResult, capital, compare_in_sequence, presume
from qualgate.stats.without_replacement import p_reached
from qualgate.text.numbers import counted

Question = tuple[str, str, int]  # evalset, case id, repeat
Order = tuple[tuple[Question, ...], ...]  # clusters, each with its questions

LEAST_BETWEEN = 16  # questions between two looks, and so rows of a job: the shipped model takes as long for one answer
# in jobs of 16 as of 64 (8: a fifth longer). Of a list of 2,800 a look takes 0.05 s, and to read what is new 0.02 s.
UNFINISHED_ALPHA = 0.05  # of "the list keeps its bar on a side's unfinished answers", over all looks together
STEP = 0.0125  # of the questions that are in, from one look to the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at one variant."""

    verdict: Verdict  # of the cases seen alone
    seen: int  # of the order's questions
    settled: bool  # more cases would not change the word; generation may stop


# ------------------------------------------------------------------------------------------------------- the order


def seeded_order(cases: Iterable[Case], seed: int, repeats: int = 1) -> Order:
    """Clusters in random order, each with its questions; clusters that share a question are joined. The same cases and
    seed give the same order."""
    return _seeded_clusters(((case.evalset, case.id, case.cluster, case.question) for case in cases), seed, repeats)


def order_of(evidence: RunEvidence, seed: int) -> Order:
    """The order in which the looks took a run's closed list."""
    repeats: dict[tuple[str, str], int] = {}
    for key in evidence.expected:
        case = (key.evalset, key.case_id)
        repeats[case] = max(repeats.get(case, 0), key.repeat + 1)
    cases = ((*case, evidence.clusters.get(case), evidence.questions.get(case, "")) for case in repeats)
    return _seeded_clusters(cases, seed, max(repeats.values(), default=1))


def _seeded_clusters(cases: Iterable[tuple[str, str, str | None, str]], seed: int, repeats: int) -> Order:
    """Join cases of one cluster or question, and order the clusters by a hash with the seed.

    cases: (evalset, id, cluster, hash of the question). repeats: answers to each case. Returns: clusters of questions.
    """
    listed = [
        ((evalset, cluster or case, cluster is None), (evalset, case), question_hash)
        for evalset, case, cluster, question_hash in sorted(cases, key=lambda case: case[:2])
    ]
    first = join((label, question_hash) for label, _, question_hash in listed)
    clusters: dict[tuple[str, str, bool], list[Question]] = {}
    for label, case, _ in listed:
        clusters.setdefault(first(label), []).extend((*case, repeat) for repeat in range(repeats))

    def random_rank(label: tuple[str, str, bool]) -> bytes:
        return sha256(f"{seed}\0{label[0]}\0{label[1]}\0{label[2]}".encode("utf-8", "surrogatepass")).digest()

    return tuple(tuple(clusters[label]) for label in sorted(clusters, key=random_rank))


def order_digest(order: Order) -> str:
    """Hash of the order, for stopping records."""
    return content_hash([list(map(list, cluster)) for cluster in order])


def planned_looks(order: Order, policy: Policy) -> tuple[int, ...]:
    """Number of questions at each look: one look falls on the first possible approval, the last has all questions."""
    ends = list(accumulate(map(len, order))) or [0]
    goal = first = _first_proof(order, policy)
    goals = list(range(first, LEAST_BETWEEN - 1, -LEAST_BETWEEN))  # a broken variant may be blocked before
    while goal < ends[-1]:
        goal = max(goal + LEAST_BETWEEN, ceil(goal * (1 + STEP)))
        goals.append(goal)
    return tuple(sorted({ends[min(bisect_left(ends, goal), len(ends) - 1)] for goal in (*goals, ends[-1])}))


def _first_proof(order: Order, policy: Policy) -> int:
    """Questions after which a variant without any loss proves the smallest critical margin, if all cases counted."""
    margins = [rule.max_drop for rule in policy.rules if rule.tier == "critical" and in_sequence(rule)]
    if not order or not margins:
        return LEAST_BETWEEN
    sizes, margin = np.array([len(cluster) for cluster in order]), min(filter(None, margins))
    path = capital(
        np.zeros(len(sizes)), margin, sizes=sizes, largest=sizes.max(), presumed=presumed_of(policy, margin, sizes)
    )
    return max(LEAST_BETWEEN, int(sizes[: np.searchsorted(path, -log(policy.alpha)) + 1].sum()))


def lay_out(
    policy: Policy, cases: Iterable[Case], repeats: int = 1
) -> tuple[EarlyStop, tuple[frozenset[Question], ...]]:
    """Plan the looks of a policy that stops early, before generation, and the questions that each adds."""
    assert policy.stop is not None, "a policy that stops early"
    order = seeded_order(cases, policy.stop.seed, repeats)
    stop = replace(policy.stop, looks=planned_looks(order, policy))
    return stop, stages(order, stop.looks)


def stages(order: Order, looks: Sequence[int]) -> tuple[frozenset[Question], ...]:
    """Questions that each look adds."""
    questions = [question for cluster in order for question in cluster]
    return tuple(frozenset(questions[start:end]) for start, end in zip((0, *looks), looks, strict=False))


# ----------------------------------------------------------------------------------------------------- the verdict


def decide_early(evidence: RunEvidence, policy: Policy, now: str = "") -> tuple[Verdict, ...]:
    """Decide like `decide_plain` for a run that may have stopped early: each variant at the look that stopped it.

    A variant that was never settled is judged on all its cases; if some are missing, its run is incomplete. A stopping
    record must agree with the same look today, else nothing is decided.
    """
    assert policy.stop is not None, "a policy that stops early"
    names = [arm.name for arm in evidence.variants]
    if len(set(names)) < len(names):
        return decide_plain(evidence, policy, now)
    order = order_of(evidence, policy.stop.seed)
    looks, total, digest = policy.stop.looks, sum(map(len, order)), order_digest(order)
    verdicts: dict[str, Verdict] = {}
    listed = {question for cluster in order for question in cluster}
    for arm in evidence.variants:
        stopped = arm.stopped
        if not _planned_alike(evidence, arm.name, listed):
            continue
        if stopped is None:
            last_look, number = look(evidence, policy, arm.name, order, now=now), len(looks)
            if last_look.seen < total:
                continue
        elif (stopped.policy, stopped.order) == (policy, digest) and stopped.seen in looks[:-1]:
            last_look, number = look(evidence, policy, arm.name, order, at=stopped.seen, now=now), stopped.look
            if looks.index(stopped.seen) + 1 != number or last_look.seen != stopped.seen:
                verdicts[arm.name] = _refused(last_look.verdict, "its stopping record is not what its answers are")
                continue
            if last_look.verdict.exit not in (Exit.INTEGRITY, Exit.INFRASTRUCTURE) and (
                not last_look.settled or last_look.verdict.word != stopped.word
            ):
                why = (
                    f"generation stopped at {counted(stopped.seen, 'case')} as {stopped.word}, and by today's scores "
                    "and tests "
                    f"the same cases say {last_look.verdict.word if last_look.settled else 'nothing yet'}: run again"
                )
                verdicts[arm.name] = _refused(last_look.verdict, why, Exit.UNDECIDED)
                continue
        else:
            continue
        seen = Seen(look=number, looks=len(looks), questions=last_look.seen, of=total, settled=last_look.settled)
        verdicts[arm.name] = replace(
            last_look.verdict, seen=seen, reasons=(*last_look.verdict.reasons, *_notes(seen, last_look.verdict))
        )
    # Variants without a look: incomplete, stopped by another policy, planned in part, or planned without any unit.
    without_look = replace(evidence, variants=tuple(arm for arm in evidence.variants if arm.name not in verdicts))
    planned = {key.arm for key in evidence.expected} - {evidence.baseline.name}
    if without_look.variants or planned - verdicts.keys() or not verdicts:
        without_look = replace(
            without_look, expected=tuple(key for key in without_look.expected if key.arm not in verdicts)
        )
        verdicts |= {verdict.variant: verdict for verdict in decide_plain(without_look, policy, now)}
    return tuple(verdicts[name] for name in (*names, *sorted(verdicts.keys() - set(names))))


def _refused(verdict: Verdict, why: str, code: Exit = Exit.INTEGRITY) -> Verdict:
    word = "undecided" if code == Exit.UNDECIDED else "invalid"
    return replace(verdict, word=word, exit=int(code), reasons=(f"{verdict.variant}: {why}", *verdict.reasons))


def _notes(progress: Seen, verdict: Verdict) -> tuple[str, ...]:
    """Say at which look the verdict was settled, or that it never was; nothing for an invalid one."""
    if verdict.word == "invalid":
        return ()
    if progress.questions < progress.of:
        return (
            f"stopped early: {progress.questions:,} of {counted(progress.of, 'case')} seen, settled at look "
            f"{progress.look} of {progress.looks} by tests that may be asked at any time",
        )
    how = "settled at the last" if progress.settled else "not settled after the last"
    return (
        f"all {counted(progress.of, 'case')} seen: {how} of {counted(progress.looks, 'look')}, by tests that may be "
        "asked at any time",
    )


def first_settled(
    evidence: RunEvidence, policy: Policy, variant: str, order: Order, numbers: Iterable[int], now: str = ""
) -> Stopped | None:
    """The stopping record of the first of these looks (from 1, in order) that settles the variant."""
    assert policy.stop is not None, "a policy that stops early"
    for number in numbers:
        size = policy.stop.looks[number - 1]
        this_look = look(evidence, policy, variant, order, at=size, now=now)
        if this_look.settled and this_look.seen == size:
            return Stopped(
                look=number, seen=size, word=this_look.verdict.word, order=order_digest(order), policy=policy
            )
    return None


def look(
    evidence: RunEvidence, policy: Policy, variant: str, order: Order, *, at: int | None = None, now: str = ""
) -> Look:
    """Judge the variant on the answers that are in, and say whether that is settled.

    order: from `seeded_order`, of exactly the closed list. at: look at no more than so many of its questions. now: see
    `decide.decide`. UsageError: an unknown variant, another list, a policy that does not fit the evalsets.
    """
    slices, quarantine, evidence = prepare(evidence, policy, now)
    variant_arm = next((arm for arm in evidence.variants if arm.name == variant), None)
    if variant_arm is None:
        raise UsageError(f"The run has no variant {variant!r}: {', '.join(arm.name for arm in evidence.variants)}.")
    listed = {question for cluster in order for question in cluster}
    if not _planned_alike(evidence, variant, listed):
        raise UsageError("The order of cases is not that of the run's closed list; make it anew from the plan.")
    answered = _answered(evidence.baseline) & _answered(variant_arm)
    places: dict[Question, int] = {}
    for position, cluster in enumerate(order):
        if not answered.issuperset(cluster) or (at is not None and len(places) + len(cluster) > at):
            break
        places.update((question, position) for question in cluster)
    unseen = listed - places.keys()
    partial = replace(
        evidence,
        expected=tuple(
            key
            for key in evidence.expected
            if key.arm in (variant, evidence.baseline.name) and _question(key) in places
        ),
        baseline=_without_questions(evidence.baseline, unseen),
        variants=(_without_questions(variant_arm, unseen),),
    )
    examined = without(
        next(examination for examination in examine(partial) if examination.variant == variant), quarantine
    )
    whole, terms = not unseen, terms_of(partial, policy)
    doubtful = (
        {} if whole else _perhaps_unfinished(examined.pairs, places, order, quarantine.cases, policy.max_unfinished)
    )
    unfinished = unfinished_sets(examined.pairs, policy.max_unfinished)

    def measured(slice_: Slice, pairs: dict[str, tuple[Pair, ...]]) -> Measured:
        """Measure a slice by its anytime test; without one, only once all cases are in."""
        if not in_sequence(slice_.rule):
            if whole:
                return measure(slice_, pairs, unfinished, policy.alpha, terms, examined.about)
            return unmeasured(slice_, 0, "is tested once every case is in")
        fixed = measure(slice_, pairs, unfinished, policy.alpha, terms)
        sizes = _cluster_sizes(slice_, order)
        result = measured_in_order(fixed, pairs_of(slice_, pairs), places, sizes, policy, sensitivity(policy))
        barred = [doubtful[name] for name in slice_.evalsets if name in doubtful]
        return replace(result, obstacle=f"{slice_.head}: {barred[0]}") if barred and not result.obstacle else result

    verdict = judge(examined, slices, policy, terms, measured)
    (verdict,) = name_causes([verdict], partial, policy.max_unfinished)
    open_rules = any(
        comparison.tier != "advisory" and comparison.status == "undecided" for comparison in verdict.comparisons
    )
    settled = verdict.word == "block" or (verdict.word in ("approve", "review") and not open_rules)
    return Look(verdict=verdict, seen=len(places), settled=settled)


def _planned_alike(evidence: RunEvidence, variant: str, listed: set[Question]) -> bool:
    """Whether both arms were planned to answer exactly the questions of the order."""
    arms = (evidence.baseline.name, variant)
    return {UnitKey(arm, *question) for question in listed for arm in arms} == {
        key for key in evidence.expected if key.arm in arms
    }


def in_sequence(rule: Rule) -> bool:
    """Whether the rule has a test for every look. The others have one for a single look."""
    return (
        METRICS[rule.metric].kind == "quality"
        and rule.metric not in BY_TRAJECTORY  # cases come one by one, and a trajectory counts whole
        and rule.max_drop is not None
        and rule.repeats == "mean"
    )


def _perhaps_unfinished(
    pairs: dict[str, tuple[Pair, ...]],
    seen: dict[Question, int],
    order: Order,
    quarantined: Collection[tuple[str, str]],
    most: float,
) -> dict[str, str]:
    """Evalset → line, for sets that may end with more than the share `most` of unfinished answers on a side.

    quarantined: cases that do not count. A set that would be barred in the end passes at some look in at most 5 % of
    orders. Only proofs are barred: a loss that is proven all the same is a fact.
    """
    sizes: dict[str, list[int]] = {name: [] for name in pairs}
    for cluster in order:
        for name, size in Counter(name for name, case, _ in cluster if (name, case) not in quarantined).items():
            if name in sizes:
                sizes[name].append(size)
    lines = {}
    for name, chosen in pairs.items():
        total = sum(sizes[name])
        bar = next(count for count in range(int(most * total), total + 2) if count > most * total)
        for side in ("variant", "baseline"):
            gaps: dict[int, int] = {}
            for position, unit in sorted(
                ((seen[_question(pair.baseline.key)], getattr(pair, side)) for pair in chosen), key=itemgetter(0)
            ):
                gaps[position] = gaps.get(position, 0) + bool(way_unfinished(unit))
            reached = p_reached(list(gaps.values()), bar, len(sizes[name]), largest=max(sizes[name], default=1))
            if reached > UNFINISHED_ALPHA:
                lines[name] = (
                    f"the {side} left {sum(gaps.values()):,} of {counted(len(chosen), 'answer')} of {name} unfinished "
                    f"so far; that it will be at most {most:.3g} of all {total:,} is not sure yet"
                )
    return lines


def _cluster_sizes(slice_: Slice, order: Order) -> list[int]:
    """Questions of the slice in each cluster that has any, of the whole list."""

    def in_slice(name: str, case: str) -> bool:
        return name in slice_.evalsets and (slice_.only is None or (name, case) in slice_.only)

    return [size for cluster in order if (size := sum(in_slice(name, case) for name, case, _ in cluster))]


def measured_in_order(
    fixed: Measured,
    pairs: Sequence[Pair],
    seen: dict[Question, int],
    sizes: Sequence[int],
    policy: Policy,
    chance: float,
) -> Measured:
    """The slice's numbers with the anytime-valid tests and bounds in place of the fixed ones.

    seen: each question's place in the order, equal within a cluster. sizes: cases of each cluster of the slice that the
    stakes rest on, the same at every look. chance: see `sensitivity`.
    """
    rule = fixed.slice.rule
    if fixed.comparison.difference is None or rule.max_drop is None:
        return fixed  # what could not be measured at all
    places = np.array([seen[_question(pair.baseline.key)] for pair in pairs])
    units, unit_of_pair, size = np.unique(places, return_inverse=True, return_counts=True)
    if len({pair.cluster for pair in pairs}) < len(units):
        return unmeasured(fixed.slice, len(pairs), "holds the same case more than once, which the order of cases took "
                          "for several: leave it out of all evalsets but one, or `stop: early` out")  # fmt: skip
    margin, sizing = rule.max_drop, {"largest": max(sizes), "typical": sum(sizes) / len(sizes)}

    def compared(side: Outcomes) -> SequentialResult:
        losses = np.bincount(unit_of_pair, side.baseline - side.variant)
        presumed = presumed_of(policy, margin, sizes)
        return compare_in_sequence(losses, margin, policy.alpha, size=size, presumed=presumed, **sizing)

    scores = taken(rule.metric, pairs)
    result = scores.each(compared)
    comparison = replace(
        fixed.comparison,
        lower=result.worst.lower,
        upper=result.best.upper,
        p_broken=result.best.p_beyond,
        needed=None,  # defined for a test of one look only
        method=result.shown.method,
    )
    weak = too_weak(fixed.slice, scores.best.baseline, places, chance)
    return replace(fixed, comparison=comparison, p_within=result.worst.p_within, obstacle=weak)


def sensitivity(policy: Policy) -> float:
    """The chance at one look that a baseline too weak to lose the margin passes.

    Each of the planned looks tests the baseline on a fixed number of cases, so each gets its share of the 5 %. A false
    approval needs a false proof as well, which stays below alpha.
    """
    return SENSITIVITY_ALPHA / max(1, len(policy.stop.looks) if policy.stop else 1)


def presumed_of(policy: Policy, margin: float, sizes: Sequence[int] | NDArray) -> Presumed:
    """Parameters of a slice's stakes. sizes: cases of each of its clusters, in the whole list."""
    return presume(margin, len(sizes), policy.alpha, sum(sizes) / len(sizes) / max(sizes))


def _answered(arm: ArmEvidence) -> set[Question]:
    return {_question(unit.key) for unit in arm.units if unit.status == "done"}


def _without_questions(arm: ArmEvidence, unseen: set[Question]) -> ArmEvidence:
    return replace(arm, units=tuple(unit for unit in arm.units if _question(unit.key) not in unseen), stopped=None)


def _question(key: UnitKey) -> Question:
    return key.evalset, key.case_id, key.repeat
