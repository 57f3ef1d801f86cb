"""Score a stored run again without a model, by this version's scorers and the current metrics and references."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qualgate.config import GateFile
from qualgate.errors import Exit, IntegrityError, UsageError
from qualgate.harness import tasks
from qualgate.pipeline.evidence import with_readers
from qualgate.pipeline.judging import ask_judge, with_judgements
from qualgate.pipeline.named_sets import asked_by_rules, set_refs
from qualgate.pipeline.scorable import refuse_other_questions, refuse_unscorable
from qualgate.pipeline.score_sample import of_today
from qualgate.pipeline.sets_today import sets_today
from qualgate.pipeline.spending import judging
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
from qualgate.records.metrics import LM_EVAL, METRICS, reference_keys
from qualgate.scoring import score, scorer_versions
from qualgate.store import plain, queries, runs, scorings
from qualgate.store.address import artifacts_folder
from qualgate.store.database import Store, open_store
from qualgate.store.evidence import as_scored_again, nothing_read
from qualgate.store.rescored_sets import RescoredSet, differs, rescored_sets, scored_again

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
    new_sets: dict[str, RescoredSet]  # the sets that differ from the recorded ones
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
        scoring = scorings.read(store, run)
        partial = bool(runs.policy(store, run).decides_nothing)
        sets = sets_today(gate, run, scoring.recorded, partial=partial) if gate is not None else scoring.evalsets
        stands = standing(store, run, gate, sets if gate is not None else ())
        if stands.evidence.integrity:
            raise IntegrityError(f"run {run} cannot be scored again: {stands.evidence.integrity[0]}")
        evidence_before = stands.evidence
        old = _newest(scoring)  # scores
        work = _work(scoring, old, sets, asked_by_rules(gate, sets) if gate is not None else {})
        refs = set_refs(gate) if gate is not None else ()
        new = _scored(scoring, old, work, {ref.task: ref for ref in refs if isinstance(ref, LmEvalTask)}, progress)
        # A judge costs money, so it is asked last, after all checks.
        stands = _with_judge(store, stands, gate) if keep and gate is not None else stands
        time = plain.now()
        evidence = _evidence(store, stands.evidence, scoring, work, new, time) if work.needed else stands.evidence
        after = stands.decided(evidence)
        before = _before(store, stands, evidence_before, work)
        if keep:
            if work.needed:
                scored = {answer.unit_id: tuple(new[answer.key].values()) for answer in scoring.answers}
                scorings.add(store, run, scoring.number, scored, work.new_sets, time)
            # Also without new scores: an earlier rescoring may have stopped just before this.
            runs.add_verdicts(store, run, after.verdicts, after.policy)
    return Rescored(
        run_id=run,
        scorers=work.scorers,
        added=_extra_metrics(work.wanted, _metrics_by_set(old)),
        removed=_extra_metrics(_metrics_by_set(old), work.wanted),
        corrected=_corrected(scoring.evalsets, sets),
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


def _extra_metrics(
    metrics: Mapping[str, Iterable[str]], than: Mapping[str, Iterable[str]]
) -> dict[str, tuple[str, ...]]:
    """Return evalset → metrics that are missing in `than`, without empty entries."""
    extra = {name: tuple(sorted(set(names) - set(than.get(name, ())))) for name, names in metrics.items()}
    return {name: some for name, some in extra.items() if some}


def _metrics_by_set(scores: Scores) -> dict[str, dict[str, None]]:
    metrics: dict[str, dict[str, None]] = {}
    for key, by_metric in scores.items():
        metrics.setdefault(key.evalset, {}).update(dict.fromkeys(by_metric))
    return metrics


def _corrected(recorded: Sequence[Evalset], current: Sequence[Evalset]) -> tuple[str, ...]:
    """Return "set/case" of each case whose references differ between the recorded and the current sets. Tags are no
    part of a case's hash, so changed tags do not count."""
    cases_before = {(item.name, case.id): case for item in recorded for case in item.cases}
    return tuple(
        f"{item.name}/{case.id}"
        for item in current
        for case in item.cases
        if cases_before[item.name, case.id].hash != case.hash  # tags are no part of it
    )


def _work(
    scoring: scorings.Scoring, old_scores: Scores, sets: tuple[Evalset, ...], by_rules: Mapping[str, tuple[str, ...]]
) -> _Work:
    """Plan the scoring. by_rules: evalset → metrics that rules ask for; {}: no gate file, so the scored metrics."""
    scored_metrics = _metrics_by_set(old_scores)
    metrics = {item.name: tuple(scored_metrics.get(item.name, ())) for item in sets}
    if by_rules:
        for item in sets:
            # Metrics of an lm-eval task belong to the task; the file cannot leave them out.
            undeclared = (
                metric
                for metric in scored_metrics.get(item.name, ())
                if metric.startswith(LM_EVAL) or (metric in METRICS and METRICS[metric].everywhere)
            )
            metrics[item.name] = tuple(dict.fromkeys((*item.metrics, *by_rules[item.name], *undeclared)))
    recorded_sets = {item.name: item for item in scoring.evalsets}
    scorers = _outdated(old_scores, metrics)
    rescored = {}
    for item in sets:
        changed = differs(recorded_sets[item.name], item)
        rescored[item.name] = tuple(
            metric
            for metric in metrics[item.name]
            if (changed and not metric.startswith(LM_EVAL))
            or metric in scorers
            or metric not in scored_metrics.get(item.name, ())
        )
    return _Work(
        sets=sets,
        wanted=metrics,
        again=rescored,
        scorers=scorers,
        new_sets=rescored_sets(scoring.recorded, sets),
        other_sets=any(differs(recorded_sets[item.name], item) for item in sets)
        or bool(_extra_metrics(scored_metrics, metrics)),
    )


def _with_judge(store: Store, stands: Standing, gate: GateFile) -> Standing:
    """Return the run with its judge's comparisons, asking for missing replies as far as they are paid for."""
    folder = artifacts_folder(gate.store_url, gate.path.parent) / stands.run_id
    with judging(gate, folder, store, stands.run_id) as ledger:
        ask_judge(store, stands.evidence, stands.policy, gate.labels, ledger=ledger)
    shutil.rmtree(folder, ignore_errors=True)
    return replace(stands, evidence=with_judgements(store, stands.evidence, stands.policy))


def _outdated(old_scores: Scores, metrics_of_sets: Mapping[str, Collection[str]]) -> dict[str, tuple[str, str]]:
    """Return metric → its stored and its current scorer versions, for metrics of the new scoring whose versions
    differ. metrics_of_sets: evalset → metrics of the new scoring. Raises UsageError for a metric that no scorer of
    this version has."""
    stored_scorers: dict[str, set[str]] = {}
    for key, scores in old_scores.items():
        for metric, old_score in scores.items():
            if metric in metrics_of_sets[key.evalset]:
                stored_scorers.setdefault(metric, set()).add(old_score.scorer)
    current = scorer_versions()
    today = {
        metric: {of_today(metric, scorer, current) for scorer in scorers} for metric, scorers in stored_scorers.items()
    }
    if missing := sorted(metric for metric, scorers in today.items() if "" in scorers):
        raise UsageError(f"this version has no scorer of {', '.join(missing)}, which the run was scored by: run again.")
    return {
        metric: (", ".join(sorted(versions)), ", ".join(sorted(today[metric])))
        for metric, versions in sorted(stored_scorers.items())
        if versions != today[metric]
    }


def _scored(
    scoring: scorings.Scoring,
    old_scores: Scores,
    work: _Work,
    lm_eval_tasks: Mapping[str, LmEvalTask],
    progress: Progress,
) -> Scores:
    """Return every unit's scores, new or retained. lm_eval_tasks: evalset → lm-eval task."""
    if not work.needed:
        return old_scores
    sets = {item.name: item for item in work.sets}
    own_metrics = {name: tuple(m for m in metrics if not m.startswith(LM_EVAL)) for name, metrics in work.again.items()}
    refuse_unscorable(tuple(replace(sets[name], metrics=metrics) for name, metrics in own_metrics.items()))
    by_lm_eval = {name for name, metrics in work.again.items() if len(own_metrics[name]) < len(metrics)}
    refuse_other_questions([sets[name] for name in sorted(by_lm_eval)], lm_eval_tasks)
    cases = {(item.name, case.id): case for item in work.sets for case in item.cases}
    new: Scores = {}
    for answer in scoring.answers:
        key = answer.key
        case, item = cases[key.evalset, key.case_id], sets[key.evalset]
        scores = score(
            case, replace(item, metrics=()), answer.text, answer.finish_reason, own_metrics[item.name], answer.calls
        )
        if item.name in by_lm_eval:
            scores = (*scores, *tasks.score(case, lm_eval_tasks[item.name], answer.text))
        fresh = {scored.metric: scored for scored in scores if scored.metric in work.again[item.name]}
        retained = {metric: scored for metric, scored in old_scores[key].items() if metric in work.wanted[item.name]}
        new[key] = retained | fresh
        if len(new) % PROGRESS_EVERY == 0 or len(new) == len(scoring.answers):
            progress(key.arm, len(new), len(scoring.answers))
    return new


def _evidence(
    store: Store, evidence: RunEvidence, scoring: scorings.Scoring, work: _Work, new: Scores, time: str
) -> RunEvidence:
    """Return the evidence as the store will return it after this scoring."""
    texts = {answer.key: answer.text for answer in scoring.answers}
    sets = work.new_sets
    bodies = {(item.name, case.id): case.body for item in work.sets for case in item.cases}
    references = {(name, case): reference_keys(bodies[name, case]) for name in sets for case in sets[name].cases}
    recorded = {name: set(metrics) for name, metrics in _metrics_by_set(_newest(scoring)).items()}
    for name, (before, _) in (evidence.scored_again.metrics if evidence.scored_again else {}).items():
        recorded[name] = set(before)
    how = scored_again(time, recorded, _metrics_by_set(new), sets)
    return with_readers(store, as_scored_again(_with_scores(evidence, new, texts), sets, references, how))


def _newest(scoring: scorings.Scoring) -> Scores:
    return {answer.key: {score.metric: score for score in answer.scores} for answer in scoring.answers}


def _with_scores(evidence: RunEvidence, new: Scores, texts: Mapping[UnitKey, str]) -> RunEvidence:
    """Return the evidence with each unit's new scores in place of the old ones; measurements such as times stay.
    texts: the answers, kept where nothing could be read from them."""

    def rescored_unit(unit: UnitEvidence) -> UnitEvidence:
        """Return the unit with its new scores and its own measurements."""
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
