"""Likelihood requests: the log-likelihood of a continuation after a context, or of a whole text (see `windows`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING

import torch

from qualgate.engine.artifact import BaselineAnswers, Recorder, read_artifact, write_artifact
from qualgate.engine.choice import open_engine
from qualgate.engine.drift import weigh
from qualgate.engine.overflow import why_broken
from qualgate.engine.request import Engine, Event, Read, Request
from qualgate.errors import InfrastructureError
from qualgate.records import Completion, Drift, Job, JobResult, Prompt, Window
from qualgate_kernels import dispatch

if TYPE_CHECKING:
    from qualgate.engine.loaded import LoadedArm


@dataclass(slots=True)
class Weight:
    """The result of one window: one entry per token of its continuation."""

    logprobs: list[float] = field(default_factory=list)  # nats
    margins: list[float] = field(default_factory=list)  # logits by which the most likely token leads
    agrees: list[bool] = field(default_factory=list)  # the token is the most likely one
    seconds: float = 0.0  # from the start of the reading
    kl: list[float] = field(default_factory=list)  # variants: KL(baseline || variant), nats
    eta: float = 0.0  # variants: certifies `kl`, see records.Drift
    same_top: list[bool] = field(default_factory=list)  # variants: both have the same most likely token
    finite: bool = True  # no logit is NaN or infinite


def read_windows(
    engine: Engine,
    windows: Sequence[Window],
    *,
    recorder: Recorder | None = None,
    baseline: BaselineAnswers | None = None,
) -> list[Weight]:
    """Read every window and return its result. baseline: its windows, in the same order."""
    weights = [Weight() for _ in windows]
    if baseline is not None:
        for row, weight in enumerate(weights):
            weight.eta = baseline.eta(row)

    def take(event: Event) -> None:
        if not isinstance(event, Read):
            return
        if recorder is not None:
            recorder(event)
        _take(event, engine, weights, baseline)

    engine.run([Request(prompt=context, answer=answer) for context, answer in windows], None, take)
    return weights


def _take(event: Read, engine: Engine, weights: list[Weight], baseline: BaselineAnswers | None) -> None:
    """Append the results of one `Read` event to the weights of its windows. baseline: measures drift as well, if
    given."""
    if baseline is None:
        # As `weigh` has them: an identical variant's are the same to the bit.
        logprobs, kl, same_top = dispatch.kl(event.logits, event.logits, event.answer).logprobs, None, None
    else:
        weighed = weigh(event, engine.head, baseline)
        logprobs, kl, same_top = weighed.given, weighed.kl.tolist(), (weighed.top == weighed.likeliest).tolist()
    columns = zip(
        event.requests,
        logprobs.clamp(max=0.0).tolist(),
        event.predicted.margins.tolist(),
        (event.predicted.tokens == event.answer).tolist(),
        event.predicted.finite.tolist(),
        strict=True,
    )
    for index, (row, logprob, margin, agrees, finite) in enumerate(columns):
        weight = weights[row]
        weight.logprobs.append(logprob)
        weight.margins.append(margin)
        weight.agrees.append(agrees)
        weight.finite &= finite
        weight.seconds = event.seconds
        if kl is not None and same_top is not None:
            weight.kl.append(kl[index])
            weight.same_top.append(same_top[index])


def read_requests(arm: LoadedArm, job: Job) -> JobResult:
    """Answer every likelihood request of the job's prompts. The baseline leaves `job.artifact`, against which a
    variant's drift is measured at every token. A completion's text is JSON: [log-likelihood, whether greedy] for each
    request.

    Raises InfrastructureError when logits are NaN or infinite.
    """
    windows, began = [window for prompt in job.prompts for windows in prompt.requests for window in windows], time()
    with open_engine(arm.model, arm.choice, arm.stored) as engine:
        keeps = arm.spec.is_baseline and bool(job.artifact)
        recorder = Recorder(engine.head) if keeps else None
        baseline = read_artifact(job, engine.head.device) if job.artifact and not keeps else None
        weights = read_windows(engine, windows, recorder=recorder, baseline=baseline)
        broken = next((index for index, weight in enumerate(weights) if not weight.finite), None)
        if broken is None and recorder is not None:
            answers = [continuation for _, continuation in windows]
            write_artifact(job, arm.identity, getattr(torch, arm.spec.dtype), answers, recorder)
        overflow = engine.overflow
    if broken is not None:
        raise InfrastructureError(
            f"{arm.spec.name}: the model's logits are NaN or infinite on window {broken + 1} of {len(windows)}. "
            f"{why_broken(arm.choice.rounded, overflow)}; nothing can be said about these cases."
        )
    remaining_weights = iter(weights)
    by_prompt = [[[next(remaining_weights) for _ in windows] for windows in prompt.requests] for prompt in job.prompts]
    return JobResult(
        index=job.index,
        arm=arm.spec.name,
        identity=arm.identity,
        footprint=arm.footprint,
        completions=tuple(_completion(arm, *pair, began) for pair in zip(job.prompts, by_prompt, strict=True)),
        drifts=tuple(_drift(*pair) for pair in zip(job.prompts, by_prompt, strict=True))
        if baseline is not None
        else (),
        overflow=overflow,
    )


def weighed(windows: Sequence[Weight]) -> tuple[float, bool]:
    """Return (log-likelihood in nats, whether greedy decoding gives the continuation) for one request."""
    return sum(sum(weight.logprobs) for weight in windows), all(all(weight.agrees) for weight in windows)


def _completion(arm: LoadedArm, prompt: Prompt, requests: list[list[Weight]], began: float) -> Completion:
    """Return the completion of one prompt from its weights, a list of windows per request."""
    weights = [weight for windows in requests for weight in windows]
    agrees = [agrees for weight in weights for agrees in weight.agrees]
    return Completion(
        key=prompt.key,
        case_hash=prompt.case_hash,
        token_ids=tuple(token for windows in prompt.requests for _, continuation in windows for token in continuation),
        text=json.dumps([weighed(windows) for windows in requests]),
        finish_reason="stop",
        prompt_tokens=sum(len(context) for windows in prompt.requests for context, _ in windows),
        logprobs=tuple(logprob for weight in weights for logprob in weight.logprobs),
        margins=tuple(margin for weight in weights for margin in weight.margins),
        ttft=weights[0].seconds,
        e2e=max(weight.seconds for weight in weights),
        baseline_proposed=len(agrees),  # given to read: nothing was decoded, so its times say nothing of serving
        baseline_accepted=sum(agrees),
        began=began,
        kernel=arm.kernel,
    )


def _drift(prompt: Prompt, requests: list[list[Weight]]) -> Drift:
    """Return the drift of one prompt over the positions of all its windows, in order."""
    weights = [weight for windows in requests for weight in windows]
    same_top = [same_top for weight in weights for same_top in weight.same_top]
    return Drift(
        key=prompt.key,
        kl=tuple(kl for weight in weights for kl in weight.kl),
        top1_agreement=sum(same_top) / len(same_top),
        first_divergence=same_top.index(False) if False in same_top else None,
        length_ratio=1.0,
        kl_eta=max(weight.eta for weight in weights),
        top1_differs=tuple(position for position, agrees in enumerate(same_top) if not agrees),
    )
