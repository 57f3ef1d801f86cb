"""Answer one case of a stored run again with both of its arms, and compare. The store is only read.

The new answers come from the engine, the workers and the servers that `run` uses, by the stored arms, the stored case
and the sampling of the stored gate file. Before that, everything that the run recorded about an arm (weights,
tokenizer, template, config, …) is compared with what is here now. If anything but the engine's version differs, nothing
is generated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate.config.stored import stored_gate_file
from qualgate.engine.prompts import load_tokenizer
from qualgate.errors import Exit, InfrastructureError, UsageError, close_names
from qualgate.pipeline.drift_places import Spelled, speller
from qualgate.pipeline.generating import job_runner
from qualgate.pipeline.locks import interrupted, stop_requested
from qualgate.pipeline.parting import AnswerPieces, Parting, part
from qualgate.pipeline.plan import PlanSoFar, read_arm_folders
from qualgate.pipeline.plan_jobs import jobs_of_plan
from qualgate.pipeline.run_key import identify_arms
from qualgate.pipeline.served_arms import with_weights
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import (
    ArmIdentity,
    Case,
    Completion,
    Evalset,
    Job,
    JobFailure,
    JobResult,
    LmEvalTask,
    Plan,
    Prompt,
)
from qualgate.records.metrics import LM_EVAL
from qualgate.records.served import OMIT
from qualgate.store import queries
from qualgate.store.database import Store, open_store
from qualgate.store.evidence import check_evidence
from qualgate.store.plain import storable

HARMLESS = ("engine",)  # fields of an identity that may differ: another version may give the same answers


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedCase:
    """The case to answer again. variant: None: the run's first. evalset: None: the only one that has the case.
    repeat: which of several answers, from 0."""

    run_id: str
    case_id: str
    variant: str | None = None
    evalset: str | None = None
    repeat: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmChange:
    """Something of an arm that is not what the run recorded. what: a field of `ArmIdentity`; where: the arm's folder,
    or its server's name for the model."""

    arm: str
    what: str
    where: str
    stored: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerAgain:
    """One arm's stored answer and its new one. parting: of the stored answer and the new one; doubts: why equal
    answers are not expected, () if they are."""

    arm: str
    stored: str
    now: str
    parting: Parting
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Result of answering a case again. answers: the baseline's first, () if an arm changed; parting: of the new
    answers of baseline and variant; scores: metric → the stored values of both; reasons: metric → why one is wrong."""

    run_id: str
    evalset: str
    case_id: str
    repeat: int
    variant: str
    scores: Mapping[str, tuple[float | None, float | None]]
    reasons: Mapping[str, str]
    changes: tuple[ArmChange, ...] = ()
    answers: tuple[AnswerAgain, ...] = ()
    parting: Parting | None = None

    @property
    def exit(self) -> Exit:
        """0: both new answers are the stored ones. 12: an arm changed, or an answer for which there are doubts
        differs. 14: an answer differs without a known reason."""
        other = [answer for answer in self.answers if not answer.parting.same]
        if any(not answer.doubts for answer in other):
            return Exit.INTEGRITY
        return Exit.UNDECIDED if other or self.changes else Exit.APPROVE


def answer_again(
    store_url: str,
    wanted: WantedCase,
    planning: Callable[[str], None] = lambda line: None,
    warn: Callable[[str], None] = lambda line: None,
) -> Again:
    """Answer a case again, and compare. planning, warn: receive lines on the work, and notes.

    Raises UsageError for a run, variant or case that the store does not have, for a case id of several evalsets, and
    for a missing folder; IntegrityError for damaged evidence; InfrastructureError if an arm gives no answer.
    """
    with open_store(store_url, create=False) as store:
        run = queries.run_summary(store, wanted.run_id)
        variant = _variant(run, wanted.variant)
        check_evidence(store, run.run_id)
        key = _case_key(store, run, variant, wanted)
        detail = queries.case_detail(store, run.run_id, variant, key.evalset, key.case_id, key.repeat)
        [compared] = queries.compared(store, run.run_id, [key])
    arms = (run.arms[0], next(arm for arm in run.arms if arm.name == variant))
    so_far = _prepared(run, arms, store_url, planning)
    identities = identify_arms(so_far.gate, so_far.folders, planning)
    again = Again(
        run_id=run.run_id,
        evalset=key.evalset,
        case_id=key.case_id,
        repeat=key.repeat,
        variant=variant,
        scores=compared.scores,
        reasons=compared.reasons,
        changes=tuple(change for arm in arms for change in _changes(arm, identities[arm.name])),
    )
    if again.changes:
        return again
    planning("answering the case again with both arms")
    results, prompts = _results(so_far, identities, _evalset(run, detail), key.repeat, warn)
    answers, pieces = [], []
    for arm, stored in zip(arms, (detail.baseline, detail.variant), strict=True):
        result, spelled = results[arm.name], _spelled(so_far.folders.get(arm.spec.reads))
        old, new = (_pieces(answer, detail, spelled) for answer in (stored, result.completions[0]))
        doubts = tuple(_doubts(arm, identities[arm.name], result, prompts[arm.name]))
        answers.append(AnswerAgain(arm=arm.name, stored=old.text, now=new.text, parting=part(old, new), doubts=doubts))
        pieces.append(new)
    same_tokenizer = len({identities[arm.name].tokenizer for arm in arms}) == 1
    return replace(again, answers=tuple(answers), parting=part(*pieces, same_tokenizer=same_tokenizer))


def _pieces(answer: queries.Answer | Completion, detail: queries.CaseDetail, spelled: Spelled | None) -> AnswerPieces:
    """Return an answer as it is compared. Tokens that were only read are the same in every answer: left out."""
    return AnswerPieces(
        text=storable(answer.text),
        token_ids=() if "requests" in detail.body else answer.token_ids,
        finish_reason=answer.finish_reason or "",
        spelled=spelled,
    )


# ------------------------------------------------------------------------------------------------------- what is meant


def _variant(run: queries.RunSummary, name: str | None) -> str:
    names = [arm.name for arm in run.arms if not arm.spec.is_baseline]
    if name is not None and name not in names:
        raise UsageError(f"run {run.run_id} has no variant {name!r:.80}. It has: {', '.join(names)}.")
    return name or names[0]


def _case_key(store: Store, run: queries.RunSummary, variant: str, wanted: WantedCase) -> queries.CaseKey:
    """Return the wanted case. UsageError if the run has no or several such cases, or one that is not answered."""
    case_filter = queries.CaseFilter(evalset=wanted.evalset, case_id=wanted.case_id)
    keys = queries.case_keys(store, run.run_id, variant, case_filter)
    sets = list(dict.fromkeys(key.evalset for key in keys))
    if not sets:
        everywhere = queries.case_keys(store, run.run_id, variant)
        others = sorted({key.evalset for key in everywhere if key.case_id == wanted.case_id})
        close = close_names(wanted.case_id, {key.case_id for key in everywhere})
        where = "" if wanted.evalset is None else f" in evalset {wanted.evalset!r:.80}"
        hint = f"; it is in {', '.join(others)}." if others else f"; did you mean {close[0]!r:.80}?" if close else "."
        raise UsageError(f"run {run.run_id} has no case {wanted.case_id!r:.80}{where} that both arms answered{hint}")
    if len(sets) > 1:
        raise UsageError(
            f"run {run.run_id} has a case {wanted.case_id!r:.80} in several evalsets: {', '.join(sets)}. Name one: "
            f"--evalset {sets[0]}"
        )
    if (key := next((key for key in keys if key.repeat == wanted.repeat), None)) is None:
        repeats = ", ".join(str(key.repeat) for key in keys)
        raise UsageError(
            f"run {run.run_id} has no answer {wanted.repeat} to case {wanted.case_id!r:.80}. Its answers: {repeats}."
        )
    return key


def _evalset(run: queries.RunSummary, detail: queries.CaseDetail) -> Evalset:
    """Return the stored evalset with the one case."""
    line = next(item for item in run.evalsets if item.name == detail.evalset)
    return Evalset(
        name=line.name,
        version=line.version,
        sha256=line.sha256,
        metrics=line.metrics,
        cases=(Case(evalset=line.name, body=detail.body),),
        lm_eval=LmEvalTask(task=line.name) if _of_lm_eval(line) else None,
    )


def _of_lm_eval(line: queries.EvalsetLine) -> bool:
    return any(metric.startswith(LM_EVAL) for metric in line.metrics)


# --------------------------------------------------------------------------------------------------- what is here now


def _prepared(
    run: queries.RunSummary, arms: Sequence[queries.ArmLine], store_url: str, planning: Callable[[str], None]
) -> PlanSoFar:
    """Return the stored gate file with these two arms, and their folders as they are now."""
    gate = stored_gate_file(
        Path.cwd() / (run.gate_name or "gate.yaml"),
        run.gate_file,
        [arm.spec for arm in arms],
        [LmEvalTask(task=line.name) if _of_lm_eval(line) else line.name for line in run.evalsets],
        run.policy,
        store_url,
    )
    return read_arm_folders(PlanSoFar(gate=with_weights(gate), planning=planning, tell=planning))


def _changes(arm: queries.ArmLine, now: ArmIdentity) -> Iterator[ArmChange]:
    """Yield what of an arm's identity is not what the run recorded, except what is HARMLESS."""
    for what, stored in arm.planned.content.items():
        if what not in HARMLESS and (today := getattr(now, what)) != stored:
            yield ArmChange(arm=arm.name, what=what, where=arm.spec.reads or arm.spec.model, stored=stored, now=today)


def _spelled(folder: ModelFolder | None) -> Spelled | None:
    return None if folder is None else speller(load_tokenizer(folder.files))


def _doubts(arm: queries.ArmLine, identity: ArmIdentity, result: JobResult, prompt: Prompt) -> Iterator[str]:
    """Yield the known reasons why an arm's new answer may differ from its stored one."""
    spec, drawn, [completion] = arm.spec, prompt.sampling.drawn, result.completions
    if identity.engine != arm.planned.engine:
        yield f"the run's engine was {arm.planned.engine!r}, and now it is {identity.engine!r}"
    if arm.kernels and completion.kernel and completion.kernel not in arm.kernels:
        yield f"its weights were multiplied by {', '.join(arm.kernels)}, and now by {completion.kernel}"
    if spec.served is None:
        if result.generation.engine == "padded":
            yield "it runs in padded batches, in which an answer depends on the others of its batch"
        if drawn and spec.speculation is not None and spec.speculation.rule != "keyed":
            yield f"its tokens are drawn by {spec.speculation.rule}, where drafts influence the draws"
        return
    yield from (
        f"the probe of {probe.name} failed: {probe.fault}"
        for probe in result.footprint.probes
        if probe.fault and probe.name in ("temperature", "seed")
    )
    if drawn and ("seed", OMIT) in spec.served.parameters:
        yield "its server draws tokens, and its requests leave `seed` out"
    elif drawn:
        yield "its server draws tokens; it gets the same seed, and need not draw the same"
    if not arm.invariant_mode:
        yield "a server's answer may depend on the requests that it answers at the same time"


# ------------------------------------------------------------------------------------------------------- the answers


def _results(
    so_far: PlanSoFar,
    identities: Mapping[str, ArmIdentity],
    item: Evalset,
    repeat: int,
    warn: Callable[[str], None],
) -> tuple[dict[str, JobResult], dict[str, Prompt]]:
    """Return each arm's result and prompt for the one answer. item: the evalset with the one case."""
    gate = so_far.gate
    with tempfile.TemporaryDirectory(prefix="qualgate-again-") as artifacts, stop_requested() as stop:
        jobs = [
            _only(job, repeat)
            for job in jobs_of_plan(gate, [item], so_far.folders, identities, (), Path(artifacts))
            if any(prompt.key.repeat == repeat for prompt in job.prompts)
        ]
        plan = Plan(
            key="",
            gate_file=gate.text,
            policy=gate.policy,
            arms=so_far.arms,
            identities=dict(identities),
            evalsets=(item,),
            jobs=tuple(jobs),
            artifacts=artifacts,
            models=so_far.facts,
        )
        results: dict[str, JobResult] = {}
        for outcome in job_runner(gate, plan, lambda: stop() is not None, warn)(jobs):
            if isinstance(outcome, JobFailure):
                raise InfrastructureError(f"{outcome.arm} gave no answer: {outcome.error}")
            results[outcome.arm] = results[outcome.arm].joined(outcome) if outcome.arm in results else outcome
        if (received := stop()) is not None:
            raise interrupted(received, "stopped before both arms had answered")
    return results, {job.arm.name: job.prompts[0] for job in jobs}


def _only(job: Job, repeat: int) -> Job:
    """Return the job with the prompts of one repeat."""
    return job.without({prompt.key for prompt in job.prompts if prompt.key.repeat != repeat})
