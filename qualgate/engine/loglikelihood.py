"""Likelihood requests: what a model thinks of texts that it is given to read.

A request is one number: the log-likelihood of a continuation after a context, or of a whole text (see `windows`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter, time
from typing import TYPE_CHECKING

import torch

from qualgate.engine.artifact import BaselineAnswers, Recorder, read_artifact, write_artifact
from qualgate.engine.drift import Weighed, weigh
from qualgate.engine.forward import Decoder, Step, open_decoder
from qualgate.engine.likelihood import Reading, read_answers
from qualgate.engine.sampling import Said, greedy
from qualgate.errors import InfrastructureError
from qualgate.records import Completion, Drift, Job, JobResult, Prompt, Window

if TYPE_CHECKING:
    from qualgate.engine.load import LoadedArm


@dataclass(slots=True)
class Read:
    """What came of one window: one entry a token of its continuation."""

    logprobs: list[float]  # nats
    margins: list[float]  # logits by which the most likely token leads
    agrees: list[bool]  # the token is the most likely one
    seconds: float  # from the start of the reading
    kl: list[float] = field(default_factory=list)  # variants: KL(baseline || variant), nats
    eta: float = 0.0  # variants: certifies `kl`, see records.Drift
    same_top: list[bool] = field(default_factory=list)  # variants: both have the same most likely token


def read_windows(
    decoder: Decoder,
    windows: Sequence[Window],
    *,
    recorder: Recorder | None = None,
    baseline: BaselineAnswers | None = None,
) -> list[Read | None]:
    """Read every window; None for one whose logits are NaN or infinite. baseline: its windows, in the same order."""
    found: list[Read | None] = [None] * len(windows)
    started = perf_counter()
    contexts, answers = [window[0] for window in windows], [window[1] for window in windows]
    for reading in read_answers(decoder, contexts, answers, keep_cache=False, lean=baseline is not None):
        if recorder is not None and reading.logits is not None:
            recorder.keep(reading.rows, Step(reading.logits, reading.hidden), reading.offered)
        weighed = None if baseline is None else weigh(reading, decoder, baseline)
        for index, (row, length) in enumerate(zip(reading.rows.tolist(), reading.offered.tolist(), strict=True)):
            found[row] = read = _read(reading, index, length, started, weighed)
            if read is not None and baseline is not None:
                read.eta = baseline.eta(row)
    return found


def _read(reading: Reading, index: int, length: int, started: float, weighed: Weighed | None) -> Read | None:
    here = index, slice(0, length)
    answer = reading.answer[here]
    if weighed is None:
        assert reading.logits is not None
        logits = reading.logits[here]
        said, given = greedy(logits), logits.double().log_softmax(-1).gather(-1, answer[:, None])[:, 0]
    else:
        said, given = Said(*(column[here] for column in weighed.said)), weighed.given[here]
    if not said.finite.all():
        return None
    read = Read(
        logprobs=given.clamp(max=0.0).tolist(),
        margins=said.margins.tolist(),
        agrees=(said.tokens == answer).tolist(),
        seconds=perf_counter() - started,
    )
    if weighed is not None:
        read.kl = weighed.kl[here].tolist()
        read.same_top = (weighed.top[here] == said.tokens).tolist()
    return read


def read_requests(arm: LoadedArm, job: Job) -> JobResult:
    """Weigh every request of the job's prompts. The baseline leaves `job.artifact`, from which a variant's drift is
    measured at every token read. A completion's text is JSON: [log-likelihood, said greedily] for each request.

    Raises InfrastructureError when logits are NaN or infinite.
    """
    windows, began = [window for prompt in job.prompts for windows in prompt.requests for window in windows], time()
    with open_decoder(arm.model, arm.stored) as decoder:
        keeps = arm.spec.is_baseline and bool(job.artifact)
        recorder = Recorder(decoder) if keeps else None
        baseline = read_artifact(job, decoder.device) if job.artifact and not keeps else None
        read = read_windows(decoder, windows, recorder=recorder, baseline=baseline)
        broken = read.index(None) if None in read else None
        if broken is None and recorder is not None:
            answers = [continuation for _, continuation in windows]
            write_artifact(job, arm.identity, getattr(torch, arm.spec.dtype), answers, recorder)
    if broken is not None:
        raise InfrastructureError(
            f"{arm.spec.name}: the model's logits are NaN or infinite on window {broken + 1} of {len(windows)}. Its "
            "weights are damaged or overflow; nothing can be said about these cases."
        )
    whole = iter([one for one in read if one is not None])
    mine = [[[next(whole) for _ in windows] for windows in prompt.requests] for prompt in job.prompts]
    return JobResult(
        index=job.index,
        arm=arm.spec.name,
        identity=arm.identity,
        footprint=arm.footprint,
        completions=tuple(_completion(arm, *pair, began) for pair in zip(job.prompts, mine, strict=True)),
        drifts=tuple(_drift(*pair) for pair in zip(job.prompts, mine, strict=True)) if baseline is not None else (),
        overflow=decoder.overflows.found if decoder.overflows else (),
    )


def weighed(windows: Sequence[Read]) -> tuple[float, bool]:
    """(log-likelihood in nats, whether greedy decoding would say it) of one request."""
    return sum(sum(read.logprobs) for read in windows), all(all(read.agrees) for read in windows)


def _completion(arm: LoadedArm, prompt: Prompt, requests: list[list[Read]], began: float) -> Completion:
    reads = [read for windows in requests for read in windows]
    agrees = [agrees for read in reads for agrees in read.agrees]
    return Completion(
        key=prompt.key,
        case_hash=prompt.case_hash,
        token_ids=tuple(token for windows in prompt.requests for _, read in windows for token in read),
        text=json.dumps([weighed(windows) for windows in requests]),
        finish_reason="stop",
        prompt_tokens=sum(len(context) for windows in prompt.requests for context, _ in windows),
        logprobs=tuple(logprob for read in reads for logprob in read.logprobs),
        margins=tuple(margin for read in reads for margin in read.margins),
        ttft=reads[0].seconds,
        e2e=max(read.seconds for read in reads),
        baseline_proposed=len(agrees),  # given to read: nothing was decoded, so its times say nothing of serving
        baseline_accepted=sum(agrees),
        began=began,
        kernel=arm.kernel,
    )


def _drift(prompt: Prompt, requests: list[list[Read]]) -> Drift:
    reads = [read for windows in requests for read in windows]
    same = [same for read in reads for same in read.same_top]
    return Drift(
        key=prompt.key,
        kl=tuple(kl for read in reads for kl in read.kl),
        top1_agreement=sum(same) / len(same),
        first_divergence=same.index(False) if False in same else None,
        length_ratio=1.0,
        kl_eta=max(read.eta for read in reads),
        top1_differs=tuple(place for place, agrees in enumerate(same) if not agrees),
    )
