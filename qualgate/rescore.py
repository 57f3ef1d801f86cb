"""A stored run scored again by this version's scorers: without a model, beside the old scores, naming what changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from qualgate.config import GateFile
from qualgate.errors import Exit, IntegrityError, UsageError
from qualgate.gate.peers.nel_policy import decide_as_asked
from qualgate.gate.verdict import overall_exit
from qualgate.records import ArmEvidence, Evalset, RunEvidence, Score, UnitEvidence, UnitKey, Verdict
from qualgate.run import grounds, known, labels_today, run_meant
from qualgate.scoring import score, scorer_versions
from qualgate.scoring.registry import scorers_of
from qualgate.store import plain, runs, scorings
from qualgate.store.database import open_store

FAULTS_SHOWN = 5
PROGRESS_EVERY = 500  # answers

Progress = Callable[[str, int, int], None]  # the arm, answers done, answers in all
Scores = dict[UnitKey, dict[str, Score]]  # by unit and metric


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """One answer that another version of its scorer judges otherwise."""

    key: UnitKey
    before: Score
    after: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    """What one policy says of a variant by the old scores and by the new ones."""

    before: Verdict
    after: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    run_id: str
    scorers: dict[str, tuple[str, str]]  # metric → version before and now, where they differ; empty: nothing to do
    answers: int  # that were scored again
    changes: tuple[ScoreChange, ...]  # in the order of the run's units
    verdicts: tuple[VerdictChange, ...]
    stored: bool
    exit: Exit  # by the new scores


def rescore(
    store_url: str,
    run_id: str | None,
    gate: GateFile | None,
    *,
    keep: bool = True,
    progress: Progress = lambda arm, done, total: None,
) -> Rescored:
    """Score a complete run's stored answers again, against the cases as they were stored, and decide by the new scores.

    Old scores, verdicts and decisions stay. New scores are written whole or not at all: an interrupted rescoring leaves
    nothing and is begun again. keep=False: only say what would change. Policy and staleness are `qualgate gate`'s.

    IntegrityError for evidence that is not what was recorded; UsageError for a run that is not complete, or that the
    scorers of this version cannot score.
    """
    with open_store(store_url, create=False) as store:
        found = run_meant(store, run_id, gate)
        evidence = known(store, found)
        if evidence.integrity:
            raise IntegrityError(f"run {found} cannot be scored again: {evidence.integrity[0]}")
        policy, stale = grounds(store, found, gate)
        labels = labels_today(gate, policy) if gate is not None and not stale else None
        evidence = replace(evidence, labels=labels, stale=stale)
        last = scorings.read(store, found)
        old = {answer.key: {one.metric: one for one in answer.scores} for answer in last.answers}
        scorers = _outdated(old)
        new = _scored(last, old, scorers, progress)
        (before, _, _), (after, policy, _) = (
            decide_as_asked(one, policy, plain.now()) for one in (evidence, _by(evidence, new))
        )
        if keep:
            if scorers:
                scored = {answer.unit_id: tuple(new[answer.key].values()) for answer in last.answers}
                scorings.add(store, found, last.number, scored)
            runs.add_verdicts(store, found, after, policy)  # also when an earlier rescoring was stopped just before
    return Rescored(
        run_id=found,
        scorers=scorers,
        answers=sum(any(metric in scorers for metric in scores) for scores in old.values()),
        changes=tuple(
            ScoreChange(key=key, before=old[key][metric], after=score)
            for key, scores in new.items()
            for metric, score in scores.items()
            if (score.value, score.verdict) != (old[key][metric].value, old[key][metric].verdict)
        ),
        verdicts=tuple(VerdictChange(before=was, after=now) for was, now in zip(before, after, strict=True)),
        stored=keep and bool(scorers),
        exit=overall_exit(after),
    )


def _outdated(old: Scores) -> dict[str, tuple[str, str]]:
    then: dict[str, set[str]] = {}
    for scores in old.values():
        for metric, given in scores.items():
            then.setdefault(metric, set()).add(given.scorer)
    now = scorer_versions()
    if gone := sorted(then.keys() - now.keys()):
        raise UsageError(f"this version has no scorer of {', '.join(gone)}, which the run was scored by: run again.")
    return {
        metric: (", ".join(sorted(versions)), now[metric])
        for metric, versions in sorted(then.items())
        if versions != {now[metric]}
    }


def _scored(last: scorings.Scoring, old: Scores, scorers: Mapping[str, object], progress: Progress) -> Scores:
    """Every unit's scores: new ones of `scorers`, the old ones of the others."""
    if not scorers:
        return old
    asked = {item.name: replace(item, metrics=tuple(m for m in item.metrics if m in scorers)) for item in last.evalsets}
    _refuse_unscorable(tuple(asked.values()))
    cases = {(item.name, case.id): case for item in last.evalsets for case in item.cases}
    new: Scores = {}
    for answer in last.answers:
        key = answer.key
        said = score(cases[key.evalset, key.case_id], asked[key.evalset], answer.text, answer.finish_reason)
        new[key] = old[key] | {one.metric: one for one in said}
        if len(new) % PROGRESS_EVERY == 0 or len(new) == len(last.answers):
            progress(key.arm, len(new), len(last.answers))
    return new


def _refuse_unscorable(sets: tuple[Evalset, ...]) -> None:
    """A case that an earlier version took may lack what this one needs."""
    faults = [
        f"{item.name}/{case.id}: {fault}"
        for item in sets
        for scorer in scorers_of(item.metrics)
        for case in item.cases
        for fault in scorer.unscorable(case.body, item)
    ]
    if faults:
        more = f"\nand {len(faults) - FAULTS_SHOWN:,} more" if len(faults) > FAULTS_SHOWN else ""
        raise UsageError("this version cannot score cases of the run:\n" + "\n".join(faults[:FAULTS_SHOWN]) + more)


def _by(evidence: RunEvidence, new: Scores) -> RunEvidence:
    """The same evidence with these scores, in every arm."""

    def unit(one: UnitEvidence) -> UnitEvidence:
        scores = new[one.key]
        return replace(
            one,
            values=one.values | {name: score.value for name, score in scores.items()},
            scorers={name: score.scorer for name, score in scores.items()},
        )

    def arm(one: ArmEvidence) -> ArmEvidence:
        return replace(one, units=tuple(map(unit, one.units)))

    return replace(evidence, baseline=arm(evidence.baseline), variants=tuple(map(arm, evidence.variants)))
