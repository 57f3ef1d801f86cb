"""Score a stored run again, without a model: by this version's scorers and today's metrics and references."""

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
    """One answer that another version of its scorer judges otherwise."""

    key: UnitKey
    before: Score
    after: Score


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    """What is said of a variant by the old scores and by the new ones. before: None where nothing was said yet."""

    before: Verdict | None
    after: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescored:
    """What scoring a run again changes."""

    run_id: str
    scorers: dict[str, tuple[str, str]]  # metric → version before and now, where they differ
    added: dict[str, tuple[str, ...]]  # evalset → metrics that its answers had no score of
    removed: dict[str, tuple[str, ...]]  # evalset → metrics that it no longer has
    corrected: tuple[str, ...]  # "set/case" with another reference than the last scoring's
    answers: int  # that were scored again
    changes: tuple[ScoreChange, ...]  # in the order of the run's units
    verdicts: tuple[VerdictChange, ...]
    stored: bool
    exit: Exit  # by the new scores


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be scored. A metric of a set that is not in `again` keeps its scores."""

    sets: tuple[Evalset, ...]
    wanted: dict[str, tuple[str, ...]]  # evalset → metrics of the new scoring
    again: dict[str, tuple[str, ...]]  # evalset → those of them that are scored anew
    scorers: dict[str, tuple[str, str]]  # as in `Rescored`
    text: str | None  # of the sets, for the store
    other_sets: bool  # than those of the last scoring

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

    gate: also by the metrics and references that its evalsets have now, where their questions are the recorded ones;
    every arm alike. Old scores, verdicts and decisions stay. New scores are written whole or not at all: an interrupted
    rescoring leaves nothing and is begun again. keep=False: only say what would change.

    IntegrityError for evidence that is not what was recorded; UsageError for a run that is not complete, for questions
    that are not the recorded ones, and for cases that the scorers of this version cannot score.
    """
    with open_store(store_url, create=False) as store:
        found = run_meant(store, run_id, gate)
        last = scorings.read(store, found)
        trial = runs.policy(store, found).trial is not None
        sets = sets_today(gate, found, last.recorded, trial=trial) if gate is not None else last.evalsets
        stands = standing(store, found, gate, sets if gate is not None else ())
        if stands.evidence.integrity:
            raise IntegrityError(f"run {found} cannot be scored again: {stands.evidence.integrity[0]}")
        was = stands.evidence
        old = _newest(last)
        work = _work(last, old, sets, asked_by_rules(gate, sets) if gate is not None else {})
        refs = set_refs(gate) if gate is not None else ()
        new = _scored(last, old, work, {ref.task: ref for ref in refs if isinstance(ref, LmEvalTask)}, progress)
        # A judge is paid: it is asked last, when nothing is left that would be refused.
        stands = _with_judge(store, stands, gate) if keep and gate is not None else stands
        now = plain.now()
        evidence = _evidence(store, stands.evidence, last, work, new, now) if work.needed else stands.evidence
        after = stands.decided(evidence)
        before = _before(store, stands, was, work)
        if keep:
            if work.needed:
                scored = {answer.unit_id: tuple(new[answer.key].values()) for answer in last.answers}
                scorings.add(store, found, last.number, scored, work.text, now)
            # Also when an earlier rescoring was stopped just before.
            runs.add_verdicts(store, found, after.verdicts, after.policy)
    return Rescored(
        run_id=found,
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
        verdicts=tuple(VerdictChange(before=before.get(one.variant), after=one) for one in after.verdicts),
        stored=keep and work.needed,
        exit=after.exit,
    )


def _before(store: Store, stands: Standing, was: RunEvidence, work: _Work) -> dict[str, Verdict]:
    """Variant → what the old scores say; of sets that are others now, what was said last."""
    if work.other_sets:
        return {one.verdict.variant: one.verdict for one in queries.run_summary(store, stands.run_id).verdicts}
    return {one.variant: one for one in stands.decided(was).verdicts}


def _more(metrics: Mapping[str, Iterable[str]], than: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    """Evalset → those of its metrics that the other has not, where there are any."""
    found = {name: tuple(sorted(set(some) - set(than.get(name, ())))) for name, some in metrics.items()}
    return {name: some for name, some in found.items() if some}


def _metrics_by_set(scores: Scores) -> dict[str, dict[str, None]]:
    found: dict[str, dict[str, None]] = {}
    for key, given in scores.items():
        found.setdefault(key.evalset, {}).update(dict.fromkeys(given))
    return found


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
    """by_rules: evalset → metrics that a gate file's rules ask for; {}: no gate file, so those that were scored."""
    had = _metrics_by_set(old)
    wanted = {item.name: tuple(had.get(item.name, ())) for item in sets}
    if by_rules:
        for item in sets:
            # What a task of lm-eval's gives is its own, and not the file's to leave out.
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
    """The run with what the gate file's judge says of it, who is asked where a reply is missing, within the budget."""
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
    """Every unit's scores, new or kept. theirs: evalset → lm-eval's task."""
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
        said = score(case, replace(item, metrics=()), answer.text, answer.finish_reason, ours[item.name], answer.calls)
        if item.name in by_theirs:
            said = (*said, *tasks.score(case, theirs[item.name], answer.text))
        fresh = {one.metric: one for one in said if one.metric in work.again[item.name]}
        kept = {metric: one for metric, one in old[key].items() if metric in work.wanted[item.name]}
        new[key] = kept | fresh
        if len(new) % PROGRESS_EVERY == 0 or len(new) == len(last.answers):
            progress(key.arm, len(new), len(last.answers))
    return new


def _refuse_unscorable(sets: tuple[Evalset, ...]) -> None:
    """Cases that lack what a scorer needs, and normalizers that are not installed."""
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


def _evidence(
    store: Store, evidence: RunEvidence, last: scorings.Scoring, work: _Work, new: Scores, now: str
) -> RunEvidence:
    """What the store will give back once this scoring is in it."""
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
    return {answer.key: {one.metric: one for one in answer.scores} for answer in last.answers}


def _by(evidence: RunEvidence, new: Scores, texts: Mapping[UnitKey, str]) -> RunEvidence:
    """The same evidence with these scores, in every arm."""

    def unit(one: UnitEvidence) -> UnitEvidence:
        scores = new[one.key]
        measured = {name: value for name, value in one.values.items() if name not in one.scorers}
        values = {name: score.value for name, score in scores.items()} | measured
        return replace(
            one,
            values=values,
            scorers={name: score.scorer for name, score in scores.items()},
            unsaid={
                name: score.error_type for name, score in scores.items() if score.value is None and score.error_type
            },
            raw=texts[one.key] if nothing_read(values) else "",
            misread="",
        )

    def arm(one: ArmEvidence) -> ArmEvidence:
        return replace(one, units=tuple(map(unit, one.units)))

    return replace(evidence, baseline=arm(evidence.baseline), variants=tuple(map(arm, evidence.variants)))
