"""All answers of a job, and a variant's drift from the baseline's, each read by its own server.

If an answer is greedy, the baseline's is the draft of the variant's: the log-probs that the variant's server lists for
it show what it would have generated, up to the first different token, and only the rest is requested. That is exact if
a server computes reading and generating alike, which is checked: one answer of each job is also requested plainly. If
that one differs, and does so again, all of the job's are requested plainly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from qualgate.quant.model_folder import ModelFolder
from qualgate.records import GREEDY, UNTOLD, Drift, FinishReason, Generation, Job, Prompt
from qualgate.served.answer import Answer
from qualgate.served.client import Client
from qualgate.served.faults import NotServed
from qualgate.served.places import Place, common, drift
from qualgate.served.questions import answer_to, check_streams, read_by, together

if TYPE_CHECKING:
    from qualgate.served.left import Left

NEAR_TIE = 0.05  # nats between two tokens, within which another kernel's rounding may choose the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """Answers in the order of the job's prompts. proposed, accepted: tokens of the baseline's answer (`Completion`)."""

    answers: Sequence[Answer]
    proposed: Sequence[int]
    accepted: Sequence[int]
    drifts: tuple[Drift, ...] = ()
    generation: Generation = UNTOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """An answer that begins as the baseline's. generated: tokens that its server generated for it."""

    answer: Answer
    accepted: int
    generated: int
    forked: bool


async def answer_all(client: Client, job: Job, folder: ModelFolder | None) -> Answered:
    """Answer a job. folder: of its tokenizer. The baseline writes `job.artifact` (unless ""); variants read it."""
    if not job.artifact or folder is None:
        await check_streams(client, job)
        return await _plainly(client, job)
    from qualgate.served.left import Left, leave, read_left  # with torch and transformers, which take seconds

    if job.arm.is_baseline:
        await check_streams(client, job)
        plain = await _plainly(client, job)
        tokens = [_tokens(job, answer) for answer in plain.answers]
        reads = await _reads(client, job, tokens, folder)
        every = zip(plain.answers, tokens, reads, strict=True)
        leave(job, [Left(tokens=ids, finish=answer.finish, places=read) for answer, ids, (read, _) in every])
        return plain
    baseline = read_left(job)
    reads = await _reads(client, job, [draft.tokens for draft in baseline], folder)
    read = [places for places, _ in reads]
    answered = await (_drafted(client, job, baseline, read, folder) if job.drafted else _plainly(client, job))
    thrown = sum(reply.completion_tokens or 0 for _, reply in reads)
    generation = replace(answered.generation, tokens=answered.generation.tokens + thrown)
    return replace(answered, drifts=_drifts(job, baseline, read, answered.answers, folder), generation=generation)


async def _plainly(client: Client, job: Job) -> Answered:
    return plain_answers(await together(answer_to(client, job, prompt) for prompt in job.prompts))


def plain_answers(answers: Sequence[Answer]) -> Answered:
    """Return answers that no draft had a part in."""
    none = [0] * len(answers)
    generated = sum(answer.completion_tokens or 0 for answer in answers)
    return Answered(answers=answers, proposed=none, accepted=none, generation=Generation(tokens=generated))


async def _reads(
    client: Client, job: Job, answers: Sequence[Sequence[int]], folder: ModelFolder
) -> list[tuple[list[Place], Answer]]:
    pairs = zip(job.prompts, answers, strict=True)
    return await together(read_by(client, job, prompt, answer, folder.vocabulary) for prompt, answer in pairs)


def _tokens(job: Job, answer: Answer) -> tuple[int, ...]:
    if answer.token_ids is None:
        raise NotServed(
            f"{job.arm.name}: its server does not tell the tokens of its answers (`return_token_ids`), and drift is "
            "read token by token. Leave `prompt_logprobs` and rules on drift out."
        )
    return answer.token_ids


def _drifts(
    job: Job, baseline: Sequence[Left], read: Sequence[Sequence[Place]], answers: Sequence[Answer], folder: ModelFolder
) -> tuple[Drift, ...]:
    """Return the drift of each of the baseline's answers that has a token.

    read: the places of each, as this arm reads it.
    """
    return tuple(
        replace(
            drift(prompt.key, draft.tokens, draft.places, places, folder.vocabulary),
            length_ratio=len(_tokens(job, answer)) / len(draft.tokens),
        )
        for prompt, draft, places, answer in zip(job.prompts, baseline, read, answers, strict=True)
        if draft.tokens
    )


# ----------------------------------------------------------------------------------------------- the baseline's draft


async def _drafted(
    client: Client, job: Job, baseline: Sequence[Left], read: Sequence[Sequence[Place]], folder: ModelFolder
) -> Answered:
    """Request each answer from where it leaves the baseline's; plainly if that would differ, or proves to.

    read: the places of each of the baseline's answers, as this arm reads it. One answer, drawn by the run's seed, is
    requested plainly too: if it shows a defect, all drafted answers are.
    """
    stop_ids, steered = frozenset(folder.stop_ids), _penalizes(folder)

    async def of(row: int) -> Drafted:
        prompt, draft = job.prompts[row], baseline[row]
        if steered or not _may_draft(job, prompt) or not _ends_alike(prompt, draft, stop_ids):
            answer = await answer_to(client, job, prompt)
            return Drafted(answer=answer, accepted=0, generated=answer.completion_tokens or 0, forked=False)
        return await _from_fork(client, job, prompt, draft, read[row], stop_ids)

    outcomes = await together(of(row) for row in range(len(baseline)))
    rows = [row for row, outcome in enumerate(outcomes) if outcome.accepted or outcome.forked]
    generated, checked, because = sum(outcome.generated for outcome in outcomes), 0, ""
    if rows:
        row = random.Random(f"{job.seed} {job.arm.name} {job.index}").choice(rows)
        plain, check_tokens, because = await _check(client, job, row, outcomes[row].answer, read[row])
        checked = len(plain.token_ids or ())
        generated += checked + check_tokens
        if because:
            replacements = await together(answer_to(client, job, job.prompts[row]) for row in rows)
            generated += sum(answer.completion_tokens or 0 for answer in replacements)
            for row, answer in zip(rows, replacements, strict=True):
                outcomes[row] = Drafted(answer=answer, accepted=0, generated=0, forked=False)
            rows = []
    return Answered(
        answers=[outcome.answer for outcome in outcomes],
        proposed=[len(baseline[row].tokens) if row in rows else 0 for row in range(len(baseline))],
        accepted=[outcome.accepted for outcome in outcomes],
        generation=Generation(
            tokens=generated, forked=sum(outcome.forked for outcome in outcomes), checked=checked, because=because
        ),
    )


def _may_draft(job: Job, prompt: Prompt) -> bool:
    """Return whether the server generates the likeliest tokens: nothing is sampled, steered or stopped by a text."""
    assert job.arm.served is not None, "asked of served arms alone"
    plain = prompt.sampling == GREEDY and not prompt.constraint and not prompt.asked
    return plain and not prompt.until and not job.arm.served.extra_body


def _penalizes(folder: ModelFolder) -> bool:
    """Return whether servers of this folder penalize repeated tokens by default (vLLM): then they do not generate the
    likeliest token that they list."""
    return folder.files.json("generation_config.json").get("repetition_penalty") not in (None, 1)


def _ends_alike(prompt: Prompt, draft: Left, stop_ids: frozenset[int]) -> bool:
    """Return whether another arm's answer would end at the same token: only its last token is a stop token, or it has
    the requested length. The end of the server's own context, say, ends no other arm's answer."""
    if any(token in stop_ids for token in draft.tokens[:-1]):
        return False
    if draft.finish == "length":
        return len(draft.tokens) == prompt.max_new_tokens
    return draft.finish == "stop" and draft.tokens[-1:] != () and draft.tokens[-1] in stop_ids


async def _from_fork(
    client: Client, job: Job, prompt: Prompt, draft: Left, read: Sequence[Place], stop_ids: frozenset[int]
) -> Drafted:
    """Return an answer that begins as the draft does, and from the first place where this arm differs is its own.

    That token is known from reading; what follows is requested. stop_ids: the tokens that end an answer.
    """
    agreed = common(draft.tokens, read)
    logprobs = [place.given for place in read[:agreed]]
    if agreed == len(draft.tokens):
        return Drafted(
            answer=_answer(prompt, draft.tokens, logprobs, draft.finish), accepted=agreed, generated=0, forked=False
        )
    fork = read[agreed]
    tokens, logprobs = (*draft.tokens[:agreed], fork.top), [*logprobs, fork.logprob(fork.top) or 0.0]
    if fork.top in stop_ids or len(tokens) == prompt.max_new_tokens:
        finish = "stop" if fork.top in stop_ids else "length"
        return Drafted(answer=_answer(prompt, tokens, logprobs, finish), accepted=agreed, generated=0, forked=True)
    continuation = await answer_to(
        client,
        job,
        replace(
            prompt,
            token_ids=(*prompt.token_ids, *tokens),
            max_new_tokens=prompt.max_new_tokens - len(tokens),
        ),
    )
    new_tokens = _tokens(job, continuation)
    merged = [*logprobs, *continuation.logprobs] if len(continuation.logprobs) == len(new_tokens) else []
    answer = _answer(prompt, (*tokens, *new_tokens), merged, continuation.finish)
    return Drafted(answer=answer, accepted=agreed, generated=len(new_tokens), forked=True)


def _answer(prompt: Prompt, tokens: Sequence[int], logprobs: Sequence[float], finish: FinishReason) -> Answer:
    """Return an answer that was put together here: it was not streamed, so it has no times."""
    return Answer(
        text="",
        thought="",
        calls=(),
        finish=finish,
        token_ids=tuple(tokens),
        logprobs=tuple(logprobs),
        prompt_tokens=len(prompt.token_ids),
        completion_tokens=len(tokens),
        first=0.0,
        last=0.0,
        max_gap=None,
    )


async def _check(client: Client, job: Job, row: int, drafted: Answer, read: Sequence[Place]) -> tuple[Answer, int, str]:
    """Request one answer plainly, and compare it with the drafted one.

    Returns the plain answer, the tokens spent on telling noise from a defect, and why drafts are refused; "" if they
    are not. A server that answers one question differently twice proves nothing against reading.
    """
    prompt = job.prompts[row]
    plain = await answer_to(client, job, prompt)
    plain_tokens, drafted_tokens = _tokens(job, plain), _tokens(job, drafted)
    if (plain_tokens, plain.finish) == (drafted_tokens, drafted.finish):
        return plain, 0, ""
    second = await answer_to(client, job, prompt)
    if (second.token_ids, second.finish) != (plain_tokens, plain.finish):
        return plain, len(_tokens(job, second)), ""
    fork = next(
        (index for index, pair in enumerate(zip(plain_tokens, drafted_tokens, strict=False)) if pair[0] != pair[1]),
        min(len(plain_tokens), len(drafted_tokens)),
    )
    return (
        plain,
        len(plain_tokens),
        (
            f"answers were asked plainly, without the baseline's as a draft: {prompt.key.question}, asked so twice, is "
            f"another than what its server reads from token {fork + 1} on ({_distance(plain_tokens, fork, read)})"
        ),
    )


def _distance(tokens: Sequence[int], index: int, read: Sequence[Place]) -> str:
    if index >= min(len(tokens), len(read)):
        return "of which nothing is listed"
    best, logprob = read[index].logprob(read[index].top), read[index].logprob(tokens[index])
    if best is None or logprob is None:
        return "no near tie: what it says is not among the likeliest that it lists"
    return f"{'a near tie' if best - logprob <= NEAR_TIE else 'no near tie'}: {best - logprob:.3g} nats apart"
