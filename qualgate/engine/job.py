"""One job on one loaded arm: generate, and for a variant measure its drift from the baseline's answers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import cast

import torch

from qualgate.engine.answers import Answers
from qualgate.engine.artifact import BaselineAnswers, Recorder, read_artifact, write_artifact
from qualgate.engine.choice import open_engine
from qualgate.engine.constraint import GrammarMask, Vocabulary
from qualgate.engine.drift import weigh
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.loglikelihood import read_requests
from qualgate.engine.overflow import why_broken
from qualgate.engine.packed import PackedEngine
from qualgate.engine.proposers import open_proposers
from qualgate.engine.request import Engine, Read, Request, Spoken
from qualgate.engine.sampling import Draws, noise_cases
from qualgate.engine.siblings import leave_answers, sibling_answers
from qualgate.engine.speculation.known import Known, Sources
from qualgate.engine.speculation.steps import Drafts, Rests
from qualgate.engine.steering import Steering
from qualgate.engine.stopping import Stops
from qualgate.engine.thoughts import thought_tokens
from qualgate.errors import InfrastructureError
from qualgate.records import UNTOLD, Completion, DraftStep, Drift, FinishReason, Generation, Job, JobResult, Overflow

WARMING = 4  # tokens: a prompt read, and steps of one row
CHECKED = 4  # tokens of one answer per job that are generated again


def warm_up(arm: LoadedArm, job: Job) -> None:
    """Generate a few tokens after the job's first prompt and discard them, so that an arm's setup costs (unmapped
    pages, libraries, kernels) do not count in its first batch's time.

    A prompt that is only read is read. Raises what the model raises; the job itself reports logits that are not finite.
    """
    prompt, limit = job.prompts[0].token_ids, min(WARMING, job.prompts[0].max_new_tokens)
    if job.prompts[0].requests:
        (context, continuation), *_ = job.prompts[0].requests[0]
        prompt, limit = (*context, *continuation[:-1]), 1
    with open_engine(arm.model, arm.choice) as engine:
        engine.run([Request(prompt=prompt, max_new_tokens=limit)], None, lambda event: None)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The answers of a job's arm, before its drift from the baseline can be measured."""

    answers: Answers
    overflow: tuple[Overflow, ...] = ()  # during the run
    generation: Generation = UNTOLD
    steps: tuple[DraftStep, ...] = ()


def decode_first(arm: LoadedArm, job: Job) -> Decoded | None:
    """Decode a variant's answers before the baseline has left its artifact; None if the job needs it.

    Used if arms take turns: their times are then measured side by side, whichever comes first.
    """
    if job.drafted or job.prompts[0].requests:
        return None
    with open_engine(arm.model, arm.choice, arm.stored) as engine:
        runner = _JobRunner(arm, job, engine)
        answers = runner.decode()
        return Decoded(answers, engine.overflow, runner.generation(), tuple(runner.steps))


def run_job(arm: LoadedArm, job: Job, decoded: Decoded | None = None) -> JobResult:
    """Answer every prompt of `job`, or read its requests: a job has prompts of one kind and one sampling.

    The baseline leaves `job.artifact` (unless it is ""); a variant reads it, and either starts from the baseline's
    answers (`job.drafted`) or decodes every token. The completions are the same either way.
    decoded: what `decode_first` gave, which is then only weighed.
    Raises InfrastructureError when logits are NaN or infinite: such a case has no answer.
    """
    if job.prompts[0].requests:
        return read_requests(arm, job)
    proposed = accepted = [0] * len(job.prompts)
    drifts: tuple[Drift, ...] = ()
    with open_engine(arm.model, arm.choice, arm.stored) as engine:
        runner = _JobRunner(arm, job, engine)
        if arm.spec.is_baseline or not job.artifact:
            weighed = frozenset(row for row, prompt in enumerate(job.prompts) if prompt.weighed)
            recorder = Recorder(engine.head, weighed) if job.artifact else None
            answers = decoded.answers if decoded else runner.decode(recorder)
            _refuse_broken(arm, job, answers, engine.overflow)
            _refuse_unsayable(arm, job, answers)
            if recorder:
                write_artifact(job, arm.identity, getattr(torch, arm.spec.dtype), answers.tokens, recorder)
        else:
            baseline = read_artifact(job, engine.head.device)
            agreement = _Agreement(baseline, engine)
            if job.drafted:
                answers = runner.decode_from(baseline, agreement)
                leave_answers(job, answers.tokens)
            else:
                answers = decoded.answers if decoded else runner.decode()
                runner.read(baseline, agreement)
            _refuse_broken(arm, job, answers, engine.overflow)
            _refuse_unsayable(arm, job, answers)
            drifts = agreement.drifts(job, answers, ruled=runner.ruled)
            if job.drafted:
                proposed = [len(answer) for answer in baseline.answers]
                # What both agree on behind the variant's own end was never said.
                accepted = [
                    min(
                        agreement.accepted(row) if prompt.weighed else _shared(baseline.answers[row], tokens),
                        len(tokens),
                    )
                    for row, (prompt, tokens) in enumerate(zip(job.prompts, answers.tokens, strict=True))
                ]
        overflow = _together(decoded.overflow if decoded else (), engine.overflow)
        generation = (decoded.generation if decoded else UNTOLD) + runner.generation()
        if not job.timed:
            generation += runner.again(answers)
    return JobResult(
        index=job.index,
        arm=arm.spec.name,
        identity=arm.identity,
        footprint=arm.footprint,
        completions=_completions(arm, job, runner.stops, answers, proposed, accepted),
        drifts=drifts,
        overflow=overflow,
        generation=generation,
        draft_steps=(*(decoded.steps if decoded else ()), *runner.steps),
    )


class _JobRunner:
    """Run a job's prompts on its engine."""

    def __init__(self, arm: LoadedArm, job: Job, engine: Engine) -> None:
        """Prepare a job of a loaded arm: its stop texts, and the noise of its draws if its tokens are drawn."""
        self._arm, self._job, self._engine = arm, job, engine
        self.stops = Stops(arm.tokenizer, [prompt.until for prompt in job.prompts])
        self.steps: list[DraftStep] = []
        self._rests, self._broken = Rests(), 0
        self._words: Vocabulary | None = None
        self._draws = None
        if job.prompts[0].sampling.drawn:
            cases = noise_cases([prompt.key for prompt in job.prompts], torch.device("cpu"))
            self._draws = Draws(seed=job.seed, cases=cases, sampling=job.prompts[0].sampling)

    @property
    def ruled(self) -> bool:
        """Whether drafts influence what is drawn: no other pass over the same text draws the same."""
        draft = self._arm.draft
        return draft is not None and draft.spec.rule != "keyed" and self._draws is not None

    def decode(self, watch: Callable[[Spoken | Read], None] | None = None) -> Answers:
        """Decode every token, with drafts only from the arm's own proposers."""
        requests = [self._request(row) for row in range(len(self._job.prompts))]
        if self._arm.draft is None:
            return self._run(requests, None, watch)
        assert isinstance(self._engine, PackedEngine), "loading refuses others"
        stop_ids, tasks = frozenset(self._arm.stop_ids), [prompt.key.evalset for prompt in self._job.prompts]
        with open_proposers(self._arm, self._engine, requests, stop_ids, self._draws, tasks) as levels:
            answers = self._run(requests, levels[0], watch)
        self._rests, self._broken = levels[0].rests, sum(drafts.proposer.broken for drafts in levels)
        keys = [prompt.key for prompt in self._job.prompts]
        self.steps += [
            DraftStep(key=keys[step.row], level=level, **step.counts)
            for level, drafts in enumerate(levels, start=1)
            for step in drafts.steps or ()
        ]
        return answers

    def decode_from(self, baseline: BaselineAnswers, agreement: _Agreement) -> Answers:
        """Read the baseline's answers, and decode from the first differing token on. An answer that is not weighed is
        a draft like others, which is offered as long as it pays."""
        requests = [
            self._request(row, answer if self._job.prompts[row].weighed else ())
            for row, answer in enumerate(baseline.answers)
        ]
        siblings = sibling_answers(self._job)
        known = Known(
            Sources(prompt=request.prompt, baseline=answer, siblings=[sibling[row] for sibling in siblings])
            for row, (request, answer) in enumerate(zip(requests, baseline.answers, strict=True))
        )
        return self._run(requests, Drafts(known), agreement)

    def read(self, baseline: BaselineAnswers, agreement: _Agreement) -> None:
        """Read the baseline's answers that are weighed, and nothing else."""
        rows = [row for row, prompt in enumerate(self._job.prompts) if prompt.weighed]
        requests = [
            Request(prompt=self._job.prompts[row].token_ids, answer=baseline.answers[row], steering=self._steering(row))
            for row in rows
        ]

        def watch(event: Spoken | Read) -> None:
            agreement(replace(event, requests=[rows[request] for request in event.requests]))

        if rows:
            self._run(requests, None, watch, rows)

    def generation(self) -> Generation:
        """Return how this job's answers were generated."""
        tally = self._engine.tally
        return Generation(
            engine=self._engine.name,
            passes=tally.passes,
            tokens=tally.tokens,
            forked=tally.forked,
            rejoined=tally.rejoined,
            parted=tally.parted,
            drafting=self._rests.passes,
            rested=self._rests.rested,
            because=self._rests.because,
            broken_drafts=self._broken,
        )

    def again(self, answers: Answers) -> Generation:
        """Generate a few tokens of one answer again, without drafts and alone, and compare. The job's seed picks them,
        so another run picks the same. Padded batches and rules in which drafts influence the draws do not promise equal
        bits: not tried."""
        if self._engine.name != "packed" or self.ruled:
            return UNTOLD
        generator = random.Random(f"{self._job.seed} {self._job.arm.name} {self._job.index}")
        row = generator.randrange(len(answers.tokens))
        answer = answers.tokens[row]
        first = generator.randrange(max(1, len(answer) - CHECKED + 1))
        last = min(first + CHECKED, len(answer))
        prompt = self._job.prompts[row]
        steering = self._steering(row)
        request = Request(prompt=prompt.token_ids, begun=tuple(answer[:first]), max_new_tokens=last, steering=steering)
        draws = None if self._draws is None else replace(self._draws, cases=self._draws.cases[row : row + 1])
        replayed_answers = Answers(1)
        self._engine.run([request], None, replayed_answers, draws)
        replayed = zip(replayed_answers.tokens[0], replayed_answers.logprobs[0], strict=True)
        equal = sum(
            replay == original for replay, original in zip(replayed, _part(answers, row, first, last), strict=False)
        )
        return Generation(checked=last - first, otherwise=last - first - equal)

    def _request(self, row: int, answer: tuple[int, ...] = ()) -> Request:
        """Return the engine's request for one prompt. answer: tokens of a given answer to read first."""
        prompt = self._job.prompts[row]
        return Request(
            prompt=prompt.token_ids,
            max_new_tokens=prompt.max_new_tokens,
            answer=answer,
            stop_ids=frozenset(self._arm.stop_ids),
            stops=partial(self.stops.reached, row) if self.stops.watches(row) else None,
            steering=self._steering(row),
        )

    def _steering(self, row: int) -> Steering | None:
        """Return the steering of one run of the row's prompt; None if its logits stay as they are."""
        prompt = self._job.prompts[row]
        mask = None
        if prompt.constraint:
            self._words = self._words or Vocabulary(self._arm.tokenizer, self._arm.stop_ids)
            mask = GrammarMask(self._words, prompt.constraint)
        return Steering(prompt.token_ids, prompt.sampling, mask) if mask or prompt.sampling.penalties else None

    def _run(
        self,
        requests: list[Request],
        drafts: Drafts | None,
        watch: Callable[[Spoken | Read], None] | None,
        rows: Sequence[int] | None = None,
    ) -> Answers:
        """Run the requests on the engine, and return their answers. watch: receives every event as well; rows: of the
        job's prompts, if the requests are not of all."""
        answers, draws = Answers(len(requests), watch), self._draws
        if draws is not None and rows is not None:
            draws = replace(draws, cases=draws.cases[list(rows)])
        self._engine.run(requests, drafts, answers, draws)
        for row, request in enumerate(requests):
            if request.steering is not None:
                answers.masked[row] = request.steering.mean_masked(len(answers.tokens[row]))
        return answers


class _Agreement:
    """Collects, for each row, the divergence and where the variant agrees with the baseline's tokens."""

    def __init__(self, baseline: BaselineAnswers, engine: Engine) -> None:
        rows = len(baseline.answers)
        self._baseline, self._head = baseline, engine.head
        self._kl: list[list[float]] = [[] for _ in range(rows)]
        self._agrees: list[list[bool]] = [[] for _ in range(rows)]  # the variant's token equals the baseline's
        self._same_top: list[list[bool]] = [[] for _ in range(rows)]  # both have the same likeliest token

    def accepted(self, row: int) -> int:
        """Return the number of tokens of a weighed row before the first that differs from the baseline's."""
        agrees = self._agrees[row]
        return agrees.index(False) if False in agrees else len(agrees)

    def __call__(self, event: Spoken | Read) -> None:
        """Measure the drift at the positions of a `Read`."""
        if not isinstance(event, Read):
            return
        weighed = weigh(event, self._head, self._baseline)
        columns = zip(
            event.requests,
            weighed.kl.tolist(),
            (event.predicted.tokens == event.answer).tolist(),
            (weighed.likeliest == weighed.top).tolist(),
            strict=True,
        )
        for row, kl, agrees, same_top in columns:
            self._kl[row].append(kl)
            self._agrees[row].append(agrees)
            self._same_top[row].append(same_top)

    def drifts(self, job: Job, answers: Answers, *, ruled: bool = False) -> tuple[Drift, ...]:
        """Return the drift of every weighed prompt. ruled: see `_JobRunner`: what a row would have drawn at a place is
        unknown then, so the first divergence is where its answer differs from the baseline's."""
        return tuple(
            Drift(
                key=prompt.key,
                kl=tuple(self._kl[row]),
                top1_agreement=sum(self._same_top[row]) / len(self._same_top[row]),
                first_divergence=_parts_at(self._baseline.answers[row], answers.tokens[row])
                if ruled
                else next((position for position, agrees in enumerate(self._agrees[row]) if not agrees), None),
                length_ratio=len(answers.tokens[row]) / len(self._baseline.answers[row]),
                kl_eta=self._baseline.eta(row),
                top1_differs=tuple(position for position, is_same in enumerate(self._same_top[row]) if not is_same),
            )
            for row, prompt in enumerate(job.prompts)
            if prompt.weighed
        )


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens with which both answers begin."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def _parts_at(first: Sequence[int], second: Sequence[int]) -> int | None:
    """Return the first place at which two answers differ or one ends; None if they are equal."""
    shared = _shared(first, second)
    return None if shared == len(first) == len(second) else shared


def _refuse_unsayable(arm: LoadedArm, job: Job, answers: Answers) -> None:
    """InfrastructureError naming the cases whose constraint left not one token to begin with."""
    mute = [
        f"{prompt.key.evalset}/{prompt.key.case_id}"
        for prompt, tokens in zip(job.prompts, answers.tokens, strict=True)
        if not tokens
    ]
    if mute:
        raise InfrastructureError(
            f"{arm.spec.name}: the constraint of {', '.join(mute[:5])} admits no token of the model's to begin with."
        )


def _part(answers: Answers, row: int, first: int, last: int) -> list[tuple[int, float]]:
    """Return the tokens first to last - 1 of one answer, each with its log-prob."""
    return list(zip(answers.tokens[row][first:last], answers.logprobs[row][first:last], strict=True))


def _together(*overflows: tuple[Overflow, ...]) -> tuple[Overflow, ...]:
    """Merge the counts into one entry per module, in the order of the forward pass."""
    counts = Counter[tuple[int, str]]()
    for place, name, count in chain(*overflows):
        counts[place, name] += count
    return tuple((place, name, count) for (place, name), count in sorted(counts.items()))


def _refuse_broken(arm: LoadedArm, job: Job, answers: Answers, overflow: tuple[Overflow, ...]) -> None:
    """InfrastructureError naming the cases whose logits were not finite, and where a server's dtype was too small."""
    broken = [job.prompts[row].key for row in answers.broken]
    if not broken:
        return
    cases = ", ".join(f"{key.evalset}/{key.case_id}" for key in broken[:5])
    remainder = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
    raise InfrastructureError(
        f"{arm.spec.name}: the model's logits are NaN or infinite on {cases}{remainder}. "
        f"{why_broken(arm.choice.rounded, overflow)}; nothing can be said about these cases."
    )


def _completions(
    arm: LoadedArm, job: Job, stops: Stops, answers: Answers, proposed: list[int], accepted: list[int]
) -> tuple[Completion, ...]:
    """Return the job's completions in the order of its prompts.

    proposed and accepted count, per row, tokens that were drafted from the baseline's answer. The text leaves out a
    final end-of-turn token.
    """
    completions = []
    for row, prompt in enumerate(job.prompts):
        tokens, reason = answers.tokens[row], answers.reasons[row]
        answer_tokens = tokens[:-1] if reason == "eos" else tokens
        completions.append(
            Completion(
                key=prompt.key,
                case_hash=prompt.case_hash,
                token_ids=tuple(tokens),
                text=stops.text(row, answer_tokens),
                finish_reason=cast("FinishReason", reason),
                prompt_tokens=len(prompt.token_ids),
                logprobs=tuple(answers.logprobs[row]),
                margins=tuple(answers.margins[row]),
                ttft=answers.first[row],
                e2e=answers.last[row],
                baseline_proposed=proposed[row],
                baseline_accepted=accepted[row],
                began=answers.began,
                kernel=arm.kernel,
                max_gap=answers.max_gap[row],
                masked=answers.masked[row],
                thought=thought_tokens(answer_tokens, prompt.reasoning, partial(stops.text, row)),
            )
        )
    return tuple(completions)
