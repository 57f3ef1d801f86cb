"""One job on one loaded arm: generate, and for a variant measure its drift from the baseline's answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain

import torch
from transformers import PreTrainedConfig

from qualgate.engine.artifact import BaselineAnswers, Recorder, read_artifact, write_artifact
from qualgate.engine.cache import CachedRow, compacted
from qualgate.engine.drift import Weighed, weigh
from qualgate.engine.forward import open_decoder
from qualgate.engine.generate import Pending, decode, generate
from qualgate.engine.likelihood import Reading, read_answers
from qualgate.engine.load import LoadedArm
from qualgate.engine.loglikelihood import read_requests
from qualgate.engine.sampling import Draws, Said, noise_cases
from qualgate.engine.stopping import Stops
from qualgate.engine.transcript import Transcript
from qualgate.errors import InfrastructureError
from qualgate.records import Completion, Drift, Job, JobResult, Overflow

WARMING = 4  # tokens: a prompt read, and steps of one row


def warm_up(arm: LoadedArm, job: Job) -> None:
    """Say a few tokens after the job's first prompt, and forget them: what an arm's first use costs (pages not mapped
    yet, libraries and kernels set up when they are called) is no part of its first batch's time.

    A prompt that is only read is read. Raises what the model raises; logits that are not finite are the job's to tell.
    """
    prompt, limit = job.prompts[0].token_ids, min(WARMING, job.prompts[0].max_new_tokens)
    if job.prompts[0].requests:
        (context, continuation), *_ = job.prompts[0].requests[0]
        prompt, limit = (*context, *continuation[:-1]), 1
    with open_decoder(arm.model) as decoder:
        generate(decoder, [prompt], Transcript([limit], (), decoder.device))


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a job's arm says, before its drift from the baseline can be measured."""

    transcript: Transcript
    stops: Stops
    overflow: tuple[Overflow, ...] = ()  # on the way


def decode_first(arm: LoadedArm, job: Job) -> Decoded | None:
    """Decode a variant's answers before the baseline has left its artifact; None where that is needed for them.

    Where arms take turns, their times are to be taken side by side, whichever comes first.
    """
    if job.drafted or job.prompts[0].requests:
        return None
    with open_decoder(arm.model, arm.stored) as decoder:
        decoded = _begun(arm, job, decoder.device)
        generate(decoder, [prompt.token_ids for prompt in job.prompts], decoded.transcript)
    return replace(decoded, overflow=decoder.overflows.found if decoder.overflows else ())


def run_job(arm: LoadedArm, job: Job, decoded: Decoded | None = None) -> JobResult:
    """Answer every prompt of `job`, or read its requests: a job has prompts of one kind and one sampling.

    The baseline leaves `job.artifact` (unless it is ""); a variant reads it, and either starts from the baseline's
    answers (`job.drafted`) or decodes every token. The completions are the same either way, up to near ties.
    decoded: what `decode_first` gave, which is then only weighed.
    Raises InfrastructureError when logits are NaN or infinite: such a case has no answer.
    """
    if job.prompts[0].requests:
        return read_requests(arm, job)
    prompts = [prompt.token_ids for prompt in job.prompts]
    proposed = accepted = [0] * len(prompts)
    drifts: tuple[Drift, ...] = ()
    with open_decoder(arm.model, arm.stored) as decoder:
        said = decoded or _begun(arm, job, decoder.device)
        transcript, stops, draws = said.transcript, said.stops, said.transcript.draws
        if arm.spec.is_baseline or not job.artifact:
            recorder = Recorder(decoder) if job.artifact else None
            generate(decoder, prompts, transcript, recorder)
            answers = _answers(arm, job, transcript)
            if recorder:
                write_artifact(job, arm.identity, getattr(torch, arm.spec.dtype), answers, recorder)
        else:
            baseline = read_artifact(job, decoder.device)
            if not job.drafted and decoded is None:
                generate(decoder, prompts, transcript)
            agreement = _Agreement(len(prompts))
            pending: list[Pending] = []
            for reading in read_answers(decoder, prompts, baseline.answers, keep_cache=job.drafted, lean=True):
                weighed = weigh(reading, decoder, baseline, draws)
                agreement.measure(reading, weighed, greedy=draws is None)
                if job.drafted:
                    pending += _offer(reading, weighed.said, transcript, decoder.config)
            decode(decoder, pending, transcript)
            answers = _answers(arm, job, transcript)
            drifts = agreement.drifts(job, baseline, answers)
            if job.drafted:
                proposed = [len(answer) for answer in baseline.answers]
                # What both agree on behind the variant's own end was never said.
                accepted = [min(pair) for pair in zip(agreement.accepted, map(len, answers), strict=True)]
    return JobResult(
        index=job.index,
        arm=arm.spec.name,
        identity=arm.identity,
        footprint=arm.footprint,
        completions=_completions(arm, job, transcript, stops, answers, proposed, accepted),
        drifts=drifts,
        overflow=_together(said.overflow, decoder.overflows.found if decoder.overflows else ()),
    )


def _together(*found: tuple[Overflow, ...]) -> tuple[Overflow, ...]:
    """One entry a module, in the order of the forward pass."""
    counts = Counter[tuple[int, str]]()
    for place, name, count in chain(*found):
        counts[place, name] += count
    return tuple((place, name, count) for (place, name), count in sorted(counts.items()))


def _begun(arm: LoadedArm, job: Job, device: torch.device) -> Decoded:
    """Nothing said yet; the clock runs from here."""
    stops = Stops(arm.tokenizer, [prompt.until for prompt in job.prompts])
    limits, draws = [prompt.max_new_tokens for prompt in job.prompts], _draws(job, device)
    return Decoded(Transcript(limits, arm.stop_ids, device, stops if stops.any else None, draws), stops)


def _draws(job: Job, device: torch.device) -> Draws | None:
    sampling = job.prompts[0].sampling
    if not sampling.drawn:
        return None
    return Draws(seed=job.seed, cases=noise_cases([prompt.key for prompt in job.prompts], device), sampling=sampling)


def _offer(reading: Reading, would: Said, transcript: Transcript, config: PreTrainedConfig) -> list[Pending]:
    """Offer the baseline's answers as drafts; returns the rows that disagreed and go on by themselves.

    Each keeps the slots of its prompt and of all it said but the last token, which the next step reads; the rest of
    the draft is left behind.
    """
    assert reading.cache is not None
    open_ = transcript.accept(reading.rows, would, reading.answer, reading.offered)
    rows = reading.rows[open_].tolist()
    lengths = transcript.length[reading.rows]
    said = transcript.tokens[rows, transcript.length[rows] - 1].tolist()
    cached = [
        CachedRow(reading.cache, index, start, reading.stop + length - 1)
        for index, (start, length, goes_on) in enumerate(
            zip(reading.start.tolist(), lengths.tolist(), open_.tolist(), strict=True)
        )
        if goes_on
    ]
    return [Pending(*row) for row in zip(rows, said, compacted(cached, config), strict=True)]


class _Agreement:
    """Collects, for each row, the divergence and where the variant agrees with the baseline's tokens."""

    def __init__(self, rows: int) -> None:
        self.kl: list[tuple[float, ...]] = [()] * rows
        self.agrees: list[list[bool]] = [[]] * rows  # says what the baseline said
        self.same_top: list[list[bool]] = [[]] * rows  # finds likeliest what the baseline finds likeliest

    @property
    def accepted(self) -> list[int]:
        return [agrees.index(False) if False in agrees else len(agrees) for agrees in self.agrees]

    def measure(self, reading: Reading, weighed: Weighed, *, greedy: bool) -> None:
        """greedy: what the baseline said is what it finds likeliest."""
        agrees, kl = (weighed.said.tokens == reading.answer).tolist(), weighed.kl.tolist()
        same_top = agrees if greedy else (weighed.likeliest == weighed.top).tolist()
        for index, (row, length) in enumerate(zip(reading.rows.tolist(), reading.offered.tolist(), strict=True)):
            self.kl[row] = tuple(kl[index][:length])
            self.agrees[row] = agrees[index][:length]
            self.same_top[row] = same_top[index][:length]

    def drifts(self, job: Job, baseline: BaselineAnswers, answers: list[tuple[int, ...]]) -> tuple[Drift, ...]:
        return tuple(
            Drift(
                key=prompt.key,
                kl=kl,
                top1_agreement=sum(same_top) / len(same_top),
                first_divergence=agrees.index(False) if False in agrees else None,
                length_ratio=len(answer) / len(reference),
                kl_eta=baseline.eta(row),
                top1_differs=tuple(place for place, same in enumerate(same_top) if not same),
            )
            for row, (prompt, kl, agrees, same_top, answer, reference) in enumerate(
                zip(job.prompts, self.kl, self.agrees, self.same_top, answers, baseline.answers, strict=True)
            )
        )


def _answers(arm: LoadedArm, job: Job, transcript: Transcript) -> list[tuple[int, ...]]:
    """The token ids of every row. Raises InfrastructureError naming the cases whose logits were not finite."""
    broken = [prompt.key for prompt, ok in zip(job.prompts, transcript.finite.tolist(), strict=True) if not ok]
    if broken:
        cases = ", ".join(f"{key.evalset}/{key.case_id}" for key in broken[:5])
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        raise InfrastructureError(
            f"{arm.spec.name}: the model's logits are NaN or infinite on {cases}{more}. Its weights are damaged or "
            "overflow; nothing can be said about these cases."
        )
    return [
        tuple(tokens[:length])
        for tokens, length in zip(transcript.tokens.tolist(), transcript.length.tolist(), strict=True)
    ]


def _completions(
    arm: LoadedArm,
    job: Job,
    transcript: Transcript,
    stops: Stops,
    answers: list[tuple[int, ...]],
    proposed: list[int],
    accepted: list[int],
) -> tuple[Completion, ...]:
    logprobs, margins = transcript.logprobs.tolist(), transcript.margins.tolist()
    first, last, ended = transcript.first.tolist(), transcript.last.tolist(), transcript.ended.tolist()
    texts = [stops.text(row, answer[:-1] if ended[row] else answer) for row, answer in enumerate(answers)]
    return tuple(
        Completion(
            key=prompt.key,
            case_hash=prompt.case_hash,
            token_ids=answer,
            text=texts[row],
            finish_reason=transcript.finish_reason(row),
            prompt_tokens=len(prompt.token_ids),
            logprobs=tuple(logprobs[row][: len(answer)]),
            margins=tuple(margins[row][: len(answer)]),
            ttft=first[row],
            e2e=last[row],
            baseline_proposed=proposed[row],
            baseline_accepted=accepted[row],
            began=transcript.began,
            kernel=arm.kernel,
        )
        for row, (prompt, answer) in enumerate(zip(job.prompts, answers, strict=True))
    )
