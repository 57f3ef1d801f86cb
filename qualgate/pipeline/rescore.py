"""A stored run scored again by this version's scorers: without a model, beside the old scores, naming what changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from qualgate.config import GateFile
from qualgate.errors import Exit, IntegrityError, UsageError
from qualgate.formatting import counted
from qualgate.harness import tasks
from qualgate.metrics import LM_EVAL
from qualgate.pipeline.evidence import with_readers
from qualgate.pipeline.judging import ask_judge, with_judgements
from qualgate.pipeline.plan import set_refs
from qualgate.pipeline.spending import judging
from qualgate.pipeline.staleness import of_today
from qualgate.pipeline.stored import Standing, run_meant, standing
from qualgate.records import (
    ArmEvidence,
    Evalset,
    LmEvalTask,
    RunEvidence,
    Score,
    UnitEvidence,
    UnitKey,
    Verdict,
)
from qualgate.scoring import answer_format, score, scorer_versions
from qualgate.scoring.registry import scorers_of
from qualgate.scoring.text import known
from qualgate.store import runs, scorings
from qualgate.store.address import artifacts_folder
from qualgate.store.database import Store, open_store
from qualgate.store.evidence import nothing_read

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
    """What scoring a run again changes."""

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
        stands = standing(store, found, gate)
        if stands.evidence.integrity:
            raise IntegrityError(f"run {found} cannot be scored again: {stands.evidence.integrity[0]}")
        was = stands.evidence
        last = scorings.read(store, found)  # refused where it cannot be, before a judge is paid for it
        stands = _with_judge(store, stands, gate) if keep and gate is not None else stands
        old = {answer.key: {one.metric: one for one in answer.scores} for answer in last.answers}
        scorers = _outdated(old)
        refs = set_refs(gate) if gate is not None else ()
        new = _scored(last, old, scorers, {ref.task: ref for ref in refs if isinstance(ref, LmEvalTask)}, progress)
        texts = {answer.key: answer.text for answer in last.answers}
        evidence = with_readers(store, _by(stands.evidence, new, texts)) if scorers else stands.evidence
        before, after = (stands.decided(one) for one in (was, evidence))
        if keep:
            if scorers:
                scored = {answer.unit_id: tuple(new[answer.key].values()) for answer in last.answers}
                scorings.add(store, found, last.number, scored)
            # Also when an earlier rescoring was stopped just before.
            runs.add_verdicts(store, found, after.verdicts, after.policy)
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
        verdicts=tuple(
            VerdictChange(before=was, after=now) for was, now in zip(before.verdicts, after.verdicts, strict=True)
        ),
        stored=keep and bool(scorers),
        exit=after.exit,
    )


def _with_judge(store: Store, stands: Standing, gate: GateFile) -> Standing:
    """The run with what the gate file's judge says of it, who is asked where a reply is missing, within the budget."""
    folder = artifacts_folder(gate.store_url, gate.path.parent) / stands.run_id
    with judging(gate, folder, store, stands.run_id) as ledger:
        ask_judge(store, stands.evidence, stands.policy, gate.labels, ledger=ledger)
    shutil.rmtree(folder, ignore_errors=True)
    return replace(stands, evidence=with_judgements(store, stands.evidence, stands.policy))


def _outdated(old: Scores) -> dict[str, tuple[str, str]]:
    then: dict[str, set[str]] = {}
    for scores in old.values():
        for metric, given in scores.items():
            then.setdefault(metric, set()).add(given.scorer)
    now = scorer_versions()
    today = {metric: {of_today(metric, scorer, now) for scorer in scorers} for metric, scorers in then.items()}
    if gone := sorted(metric for metric, scorers in today.items() if "" in scorers):
        raise UsageError(f"this version has no scorer of {', '.join(gone)}, which the run was scored by: run again.")
    return {
        metric: (", ".join(sorted(versions)), ", ".join(sorted(today[metric])))
        for metric, versions in sorted(then.items())
        if versions != today[metric]
    }


def _scored(
    last: scorings.Scoring,
    old: Scores,
    scorers: Mapping[str, object],
    theirs: Mapping[str, LmEvalTask],
    progress: Progress,
) -> Scores:
    """Every unit's scores: new ones of `scorers`, the old ones of the others. theirs: evalset → lm-eval's task."""
    if not scorers:
        return old
    sets = {item.name: item for item in last.evalsets}
    asked: dict[str, dict[str, None]] = {name: {} for name in sets}  # a rule may ask for more than the set declares
    for key, scores in old.items():
        asked[key.evalset] |= dict.fromkeys(metric for metric in scores if metric in scorers)
    ours = {name: tuple(m for m in metrics if not m.startswith(LM_EVAL)) for name, metrics in asked.items()}
    _refuse_unscorable(tuple(replace(sets[name], metrics=metrics) for name, metrics in ours.items()))
    by_theirs = {name for name, metrics in asked.items() if len(ours[name]) < len(metrics)}
    _refuse_other_questions([sets[name] for name in sorted(by_theirs)], theirs)
    cases = {(item.name, case.id): case for item in last.evalsets for case in item.cases}
    new: Scores = {}
    for answer in last.answers:
        key = answer.key
        case, item = cases[key.evalset, key.case_id], sets[key.evalset]
        said = score(case, replace(item, metrics=()), answer.text, answer.finish_reason, ours[item.name])
        if item.name in by_theirs:
            said = (*said, *tasks.score(case, theirs[item.name], answer.text))
        new[key] = old[key] | {one.metric: one for one in said if one.metric in old[key]}
        if len(new) % PROGRESS_EVERY == 0 or len(new) == len(last.answers):
            progress(key.arm, len(new), len(last.answers))
    return new


def _refuse_unscorable(sets: tuple[Evalset, ...]) -> None:
    """A case that an earlier version took may lack what this one needs."""
    for item in sets:
        if "exact_match" in item.metrics and (gone := [name for name in item.normalizers if name not in known()]):
            raise UsageError(
                f"{item.name} was scored with the normalizer {', '.join(gone)}, which no installed package offers; "
                "install the package that the run had"
            )
    faults = [
        f"{item.name}/{case.id}: {fault}"
        for item in sets
        for scorer in scorers_of(tuple(metric for metric in item.metrics if metric not in answer_format.METRICS))
        for case in item.cases
        for fault in scorer.unscorable(case.body, item)
    ]
    if faults:
        more = f"\nand {len(faults) - FAULTS_SHOWN:,} more" if len(faults) > FAULTS_SHOWN else ""
        raise UsageError("this version cannot score cases of the run:\n" + "\n".join(faults[:FAULTS_SHOWN]) + more)


def _refuse_other_questions(sets: list[Evalset], theirs: Mapping[str, LmEvalTask]) -> None:
    """What lm-eval is to score again it must ask as it did: its task is found by the gate file, not in the store."""
    for item in sets:
        if item.name not in theirs:
            raise UsageError(
                f"{item.name} was scored by another version of lm-eval; to score it again, give the gate file that "
                "names its task: qualgate rescore GATE.yaml"
            )
        today = {case.id: case.hash for case in tasks.load(theirs[item.name]).cases}
        if other := [case.id for case in item.cases if today.get(case.id) != case.hash]:
            raise UsageError(
                f"{tasks.library()} asks otherwise in {len(other):,} of {counted(len(item.cases), 'document')} of "
                f"{item.name} than the run did, first in {other[0]}: run again"
            )


def _by(evidence: RunEvidence, new: Scores, texts: Mapping[UnitKey, str]) -> RunEvidence:
    """The same evidence with these scores, in every arm."""

    def unit(one: UnitEvidence) -> UnitEvidence:
        scores = new[one.key]
        values = one.values | {name: score.value for name, score in scores.items()}
        return replace(
            one,
            values=values,
            scorers={name: score.scorer for name, score in scores.items()},
            raw=texts[one.key] if nothing_read(values) else "",
            misread="",
        )

    def arm(one: ArmEvidence) -> ArmEvidence:
        return replace(one, units=tuple(map(unit, one.units)))

    return replace(evidence, baseline=arm(evidence.baseline), variants=tuple(map(arm, evidence.variants)))
