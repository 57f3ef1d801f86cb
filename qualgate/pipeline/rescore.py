"""Score a stored run again without a model, by this version's scorers and the current metrics and references."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qualgate.config import GateFile
from qualgate.errors import Exit, IntegrityError, UsageError
from qualgate.formatting import counted
from qualgate.harness import tasks
from qualgate.metrics import LM_EVAL, METRICS, reference_keys
from qualgate.pipeline.evidence import with_readers
from qualgate.pipeline.judging import ask_judge, with_judgements
from qualgate.pipeline.plan import asked_by_rules, set_refs
from qualgate.pipeline.sets_today import sets_today
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
from qualgate.store import plain, queries, runs, scorings
from qualgate.store.address import artifacts_folder
from qualgate.store.database import Store, open_store
from qualgate.store.evidence import as_scored_again, nothing_read
from qualgate.store.rescored_sets import differs, scored_again, sets_of_json, sets_to_json

FAULTS_SHOWN = 5
PROGRESS_EVERY = 500  # answers

Progress = Callable[[str, int, int], None]  # the arm, answers done, answers in all
Scores = dict[UnitKey, dict[str, Score]]  # by unit and metric


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """One score that another version of its scorer changes."""

    key: UnitKey
    before: Score
    after: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    """A variant's verdicts by the old scores and by the new ones. before: None if there was none."""

    before: Verdict | None
    after: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """Changes made by scoring a run again."""

    run_id: str
    scorers: dict[str, tuple[str, str]]  # metric → version before and now, if they differ
    added: dict[str, tuple[str, ...]]  # evalset → new metrics
    removed: dict[str, tuple[str, ...]]  # evalset → metrics that it no longer has
    corrected: tuple[str, ...]  # "set/case" with another reference than the last scoring's
    answers: int  # number of answers scored again
    changes: tuple[ScoreChange, ...]  # in the order of the run's units
    verdicts: tuple[VerdictChange, ...]
    stored: bool
    exit: Exit  # by the new scores


@dataclass(frozen=True, slots=True)
class _Work:
    """The scoring to do. A metric that is not in `again` keeps its scores."""

    sets: tuple[Evalset, ...]
    wanted: dict[str, tuple[str, ...]]  # evalset → metrics of the new scoring
    again: dict[str, tuple[str, ...]]  # evalset → those of them that are scored anew
    scorers: dict[str, tuple[str, str]]  # as in `Rescored`
    text: str | None  # the changed sets as JSON, for the store
    other_sets: bool  # whether the sets differ from those of the last scoring

    @property
    def needed(self) -> bool:
        return self.other_sets or any(self.again.values())


def rescore(
    store_url: str,
    run_id: str | None,
    gate: GateFile | None,
    *,
    keep: bool = True,
    progress: Progress = lambda arm, done, total: None,
) -> Rescored:
    """Score a complete run's stored answers again, and decide by the new scores.

    gate: use the current metrics and references of its evalsets, whose questions must be the recorded ones. Old scores,
    verdicts and decisions stay. New scores are written in one transaction: an interrupted rescoring leaves nothing.
    keep=False: only report what would change.

    Raises IntegrityError for damaged evidence; UsageError for an incomplete run, for questions that differ from the
    recorded ones, and for cases that this version's scorers cannot score.
    """
    with open_store(store_url, create=False) as store:
        run = run_meant(store, run_id, gate)
        last = scorings.read(store, run)
        trial = runs.policy(store, run).trial is not None
        sets = sets_today(gate, run, last.recorded, trial=trial) if gate is not None else last.evalsets
        stands = standing(store, run, gate, sets if gate is not None else ())
        if stands.evidence.integrity:
            raise IntegrityError(f"run {run} cannot be scored again: {stands.evidence.integrity[0]}")
        was = stands.evidence
        old = _newest(last)
        work = _work(last, old, sets, asked_by_rules(gate, sets) if gate is not None else {})
        refs = set_refs(gate) if gate is not None else ()
        new = _scored(last, old, work, {ref.task: ref for ref in refs if isinstance(ref, LmEvalTask)}, progress)
        # A judge costs money, so it is asked last, after all checks.
        stands = _with_judge(store, stands, gate) if keep and gate is not None else stands
        now = plain.now()
        evidence = _evidence(store, stands.evidence, last, work, new, now) if work.needed else stands.evidence
        after = stands.decided(evidence)
        before = _before(store, stands, was, work)
        if keep:
            if work.needed:
                scored = {answer.unit_id: tuple(new[answer.key].values()) for answer in last.answers}
                scorings.add(store, run, last.number, scored, work.text, now)
            # Also without new scores: an earlier rescoring may have stopped just before this.
            runs.add_verdicts(store, run, after.verdicts, after.policy)
    return Rescored(
        run_id=run,
        scorers=work.scorers,
        added=_more(work.wanted, _metrics_by_set(old)),
        removed=_more(_metrics_by_set(old), work.wanted),
        corrected=_corrected(last.evalsets, sets),
        answers=sum(bool(work.again[key.evalset]) for key in old),
        changes=tuple(
            ScoreChange(key=key, before=old[key][metric], after=score)
            for key, scores in new.items()
            for metric, score in scores.items()
            if metric in old[key] and (score.value, score.verdict) != (old[key][metric].value, old[key][metric].verdict)
        ),
        verdicts=tuple(VerdictChange(before=before.get(verdict.variant), after=verdict) for verdict in after.verdicts),
        stored=keep and work.needed,
        exit=after.exit,
    )


def _before(store: Store, stands: Standing, was: RunEvidence, work: _Work) -> dict[str, Verdict]:
    """Return variant → verdict by the old scores; if the sets differ now, the last stored verdict."""
    if work.other_sets:
        return {line.verdict.variant: line.verdict for line in queries.run_summary(store, stands.run_id).verdicts}
    return {verdict.variant: verdict for verdict in stands.decided(was).verdicts}


def _more(metrics: Mapping[str, Iterable[str]], than: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Return evalset → metrics that are missing in `than`, without empty entries."""
    extra = {name: tuple(sorted(set(some) - set(than.get(name, ())))) for name, some in metrics.items()}
    return {name: some for name, some in extra.items() if some}


def _metrics_by_set(scores: Scores) -> dict[str, dict[str, None]]:
    metrics: dict[str, dict[str, None]] = {}
    for key, given in scores.items():
        metrics.setdefault(key.evalset, {}).update(dict.fromkeys(given))
    return metrics


def _corrected(before: Sequence[Evalset], now: Sequence[Evalset]) -> tuple[str, ...]:
    then = {(item.name, case.id): case for item in before for case in item.cases}
    return tuple(
        f"{item.name}/{case.id}"
        for item in now
        for case in item.cases
        if then[item.name, case.id].hash != case.hash  # tags are no part of it
    )


def _work(
    last: scorings.Scoring, old: Scores, sets: tuple[Evalset, ...], by_rules: Mapping[str, tuple[str, ...]]
) -> _Work:
    """Plan the scoring. by_rules: evalset → metrics that rules ask for; {}: no gate file, so the scored metrics."""
    had = _metrics_by_set(old)
    wanted = {item.name: tuple(had.get(item.name, ())) for item in sets}
    if by_rules:
        for item in sets:
            # Metrics of an lm-eval task belong to the task; the file cannot leave them out.
            still = (
                metric
                for metric in had.get(item.name, ())
                if metric.startswith(LM_EVAL) or (metric in METRICS and METRICS[metric].everywhere)
            )
            wanted[item.name] = tuple(dict.fromkeys((*item.metrics, *by_rules[item.name], *still)))
    then = {item.name: item for item in last.evalsets}
    scorers = _outdated(old, wanted)
    again = {}
    for item in sets:
        other = differs(then[item.name], item)
        again[item.name] = tuple(
            metric
            for metric in wanted[item.name]
            if (other and not metric.startswith(LM_EVAL)) or metric in scorers or metric not in had.get(item.name, ())
        )
    return _Work(
        sets=sets,
        wanted=wanted,
        again=again,
        scorers=scorers,
        text=sets_to_json(last.recorded, sets),
        other_sets=any(differs(then[item.name], item) for item in sets) or bool(_more(had, wanted)),
    )


def _with_judge(store: Store, stands: Standing, gate: GateFile) -> Standing:
    """Return the run with its judge's comparisons, asking for missing replies within the budget."""
    folder = artifacts_folder(gate.store_url, gate.path.parent) / stands.run_id
    with judging(gate, folder, store, stands.run_id) as ledger:
        ask_judge(store, stands.evidence, stands.policy, gate.labels, ledger=ledger)
    shutil.rmtree(folder, ignore_errors=True)
    return replace(stands, evidence=with_judgements(store, stands.evidence, stands.policy))


def _outdated(old: Scores, wanted: Mapping[str, Collection[str]]) -> dict[str, tuple[str, str]]:
    then: dict[str, set[str]] = {}
    for key, scores in old.items():
        for metric, given in scores.items():
            if metric in wanted[key.evalset]:
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
    last: scorings.Scoring, old: Scores, work: _Work, theirs: Mapping[str, LmEvalTask], progress: Progress
) -> Scores:
    """Return every unit's scores, new or retained. theirs: evalset → lm-eval task."""
    if not work.needed:
        return old
    sets = {item.name: item for item in work.sets}
    ours = {name: tuple(m for m in metrics if not m.startswith(LM_EVAL)) for name, metrics in work.again.items()}
    _refuse_unscorable(tuple(replace(sets[name], metrics=metrics) for name, metrics in ours.items()))
    by_theirs = {name for name, metrics in work.again.items() if len(ours[name]) < len(metrics)}
    _refuse_other_questions([sets[name] for name in sorted(by_theirs)], theirs)
    cases = {(item.name, case.id): case for item in work.sets for case in item.cases}
    new: Scores = {}
    for answer in last.answers:
        key = answer.key
        case, item = cases[key.evalset, key.case_id], sets[key.evalset]
        scores = score(
            case, replace(item, metrics=()), answer.text, answer.finish_reason, ours[item.name], answer.calls
        )
        if item.name in by_theirs:
            scores = (*scores, *tasks.score(case, theirs[item.name], answer.text))
        fresh = {scored.metric: scored for scored in scores if scored.metric in work.again[item.name]}
        retained = {metric: scored for metric, scored in old[key].items() if metric in work.wanted[item.name]}
        new[key] = retained | fresh
        if len(new) % PROGRESS_EVERY == 0 or len(new) == len(last.answers):
            progress(key.arm, len(new), len(last.answers))
    return new


def _refuse_unscorable(sets: tuple[Evalset, ...]) -> None:
    """Raise UsageError for cases that lack what a scorer needs, and for normalizers that are not installed."""
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
    """Raise UsageError unless lm-eval's tasks, read from the gate file, ask the recorded questions."""
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


def _evidence(
    store: Store, evidence: RunEvidence, last: scorings.Scoring, work: _Work, new: Scores, now: str
) -> RunEvidence:
    """Return the evidence as the store will return it after this scoring."""
    texts = {answer.key: answer.text for answer in last.answers}
    sets = sets_of_json(work.text)
    bodies = {(item.name, case.id): case.body for item in work.sets for case in item.cases}
    references = {(name, case): reference_keys(bodies[name, case]) for name in sets for case in sets[name].cases}
    recorded = {name: set(metrics) for name, metrics in _metrics_by_set(_newest(last)).items()}
    for name, (then, _) in (evidence.scored_again.metrics if evidence.scored_again else {}).items():
        recorded[name] = set(then)
    how = scored_again(now, recorded, _metrics_by_set(new), sets)
    return with_readers(store, as_scored_again(_by(evidence, new, texts), sets, references, how))


def _newest(last: scorings.Scoring) -> Scores:
    return {answer.key: {score.metric: score for score in answer.scores} for answer in last.answers}


def _by(evidence: RunEvidence, new: Scores, texts: Mapping[UnitKey, str]) -> RunEvidence:

    def rescored_unit(unit: UnitEvidence) -> UnitEvidence:
        scores = new[unit.key]
        measured = {name: value for name, value in unit.values.items() if name not in unit.scorers}
        values = {name: score.value for name, score in scores.items()} | measured
        return replace(
            unit,
            values=values,
            scorers={name: score.scorer for name, score in scores.items()},
            unsaid={
                name: score.error_type for name, score in scores.items() if score.value is None and score.error_type
            },
            raw=texts[unit.key] if nothing_read(values) else "",
            misread="",
        )

    def rescored_arm(arm: ArmEvidence) -> ArmEvidence:
        return replace(arm, units=tuple(map(rescored_unit, arm.units)))

    return replace(
        evidence, baseline=rescored_arm(evidence.baseline), variants=tuple(map(rescored_arm, evidence.variants))
    )
