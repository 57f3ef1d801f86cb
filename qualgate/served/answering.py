"""All answers of a job, and of a variant's its drift from the baseline's, each read by its own server.

Where an answer is greedy, the baseline's is the draft of the variant's: what its server would have said itself stands
in what it lists, up to the first token that it would have said otherwise, and only from there on is it asked. That is
exact where a server's reading and its saying are one arithmetic, which is not taken on trust: of each job one answer is
asked plainly as well. Where it is another, and comes so again, all of the job's are asked plainly.
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
    """In the order of the job's prompts; proposed, accepted: tokens of the baseline's answer, see `Completion`."""

    answers: Sequence[Answer]
    proposed: Sequence[int]
    accepted: Sequence[int]
    drifts: tuple[Drift, ...] = ()
    generation: Generation = UNTOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """An answer that begins as the baseline's. said: tokens that its server generated for it."""

    answer: Answer
    accepted: int
    said: int
    forked: bool


async def answer_all(client: Client, job: Job, folder: ModelFolder | None) -> Answered:
    """folder: of the arm's tokenizer. The baseline leaves `job.artifact`, unless it is ""; a variant reads it."""
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
        leave(job, [Left(tokens=said, finish=answer.finish, places=read) for answer, said, (read, _) in every])
        return plain
    left = read_left(job)
    reads = await _reads(client, job, [one.tokens for one in left], folder)
    read = [places for places, _ in reads]
    answered = await (_drafted(client, job, left, read, folder) if job.drafted else _plainly(client, job))
    thrown = sum(reply.completion_tokens or 0 for _, reply in reads)
    generation = replace(answered.generation, tokens=answered.generation.tokens + thrown)
    return replace(answered, drifts=_drifts(job, left, read, answered.answers, folder), generation=generation)


async def _plainly(client: Client, job: Job) -> Answered:
    return plain_answers(await together(answer_to(client, job, prompt) for prompt in job.prompts))


def plain_answers(answers: Sequence[Answer]) -> Answered:
    """Return answers that no draft had a part in."""
    none = [0] * len(answers)
    said = sum(answer.completion_tokens or 0 for answer in answers)
    return Answered(answers=answers, proposed=none, accepted=none, generation=Generation(tokens=said))


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
    job: Job, left: Sequence[Left], read: Sequence[Sequence[Place]], answers: Sequence[Answer], folder: ModelFolder
) -> tuple[Drift, ...]:
    """Of each answer of the baseline's that has a token."""
    return tuple(
        replace(
            drift(prompt.key, one.tokens, one.places, mine, folder.vocabulary),
            length_ratio=len(_tokens(job, answer)) / len(one.tokens),
        )
        for prompt, one, mine, answer in zip(job.prompts, left, read, answers, strict=True)
        if one.tokens
    )


# ----------------------------------------------------------------------------------------------- the baseline's draft


async def _drafted(
    client: Client, job: Job, left: Sequence[Left], read: Sequence[Sequence[Place]], folder: ModelFolder
) -> Answered:
    """Each answer from where it leaves the baseline's; plainly where that would not be the same, or proves not to."""
    stop_ids, steered = frozenset(folder.stop_ids), _penalizes(folder)

    async def of(row: int) -> Drafted:
        prompt, one = job.prompts[row], left[row]
        if steered or not _may_draft(job, prompt) or not _ends_alike(prompt, one, stop_ids):
            answer = await answer_to(client, job, prompt)
            return Drafted(answer=answer, accepted=0, said=answer.completion_tokens or 0, forked=False)
        return await _from_fork(client, job, prompt, one, read[row], stop_ids)

    found = await together(of(row) for row in range(len(left)))
    rows = [row for row, one in enumerate(found) if one.accepted or one.forked]
    said, checked, because = sum(one.said for one in found), 0, ""
    if rows:
        row = random.Random(f"{job.seed} {job.arm.name} {job.index}").choice(rows)
        plain, again, because = await _check(client, job, row, found[row].answer, read[row])
        checked = len(plain.token_ids or ())
        said += checked + again
        if because:
            asked = await together(answer_to(client, job, job.prompts[row]) for row in rows)
            said += sum(answer.completion_tokens or 0 for answer in asked)
            for row, answer in zip(rows, asked, strict=True):
                found[row] = Drafted(answer=answer, accepted=0, said=0, forked=False)
            rows = []
    return Answered(
        answers=[one.answer for one in found],
        proposed=[len(left[row].tokens) if row in rows else 0 for row in range(len(left))],
        accepted=[one.accepted for one in found],
        generation=Generation(tokens=said, forked=sum(one.forked for one in found), checked=checked, because=because),
    )


def _may_draft(job: Job, prompt: Prompt) -> bool:
    """Whether the likeliest tokens are what the server says: nothing is drawn, steered or stopped by a text."""
    assert job.arm.served is not None, "asked of served arms alone"
    plain = prompt.sampling == GREEDY and not prompt.constraint and not prompt.asked
    return plain and not prompt.until and not job.arm.served.extra_body


def _penalizes(folder: ModelFolder) -> bool:
    """Whether servers of this folder penalize tokens that were said though nobody asks for it (vLLM's default): then
    they do not say the likeliest token of what they list."""
    return folder.files.json("generation_config.json").get("repetition_penalty") not in (None, 1)


def _ends_alike(prompt: Prompt, left: Left, stop_ids: frozenset[int]) -> bool:
    """Whether what ended the baseline's answer would end another arm's at the same token: its last, and no other, is
    one to stop at, or it is as long as was asked for. Its own context, say, ends no other server's."""
    if any(token in stop_ids for token in left.tokens[:-1]):
        return False
    if left.finish == "length":
        return len(left.tokens) == prompt.max_new_tokens
    return left.finish == "stop" and left.tokens[-1:] != () and left.tokens[-1] in stop_ids


async def _from_fork(
    client: Client, job: Job, prompt: Prompt, left: Left, read: Sequence[Place], stop_ids: frozenset[int]
) -> Drafted:
    kept = common(left.tokens, read)
    logprobs = [place.given for place in read[:kept]]
    if kept == len(left.tokens):
        return Drafted(answer=_answer(prompt, left.tokens, logprobs, left.finish), accepted=kept, said=0, forked=False)
    own = read[kept]
    tokens, logprobs = (*left.tokens[:kept], own.top), [*logprobs, own.logprob(own.top) or 0.0]
    if own.top in stop_ids or len(tokens) == prompt.max_new_tokens:
        finish = "stop" if own.top in stop_ids else "length"
        return Drafted(answer=_answer(prompt, tokens, logprobs, finish), accepted=kept, said=0, forked=True)
    rest = await answer_to(
        client,
        job,
        replace(
            prompt,
            token_ids=(*prompt.token_ids, *tokens),
            max_new_tokens=prompt.max_new_tokens - len(tokens),
        ),
    )
    behind = _tokens(job, rest)
    told = [*logprobs, *rest.logprobs] if len(rest.logprobs) == len(behind) else []
    answer = _answer(prompt, (*tokens, *behind), told, rest.finish)
    return Drafted(answer=answer, accepted=kept, said=len(behind), forked=True)


def _answer(prompt: Prompt, tokens: Sequence[int], logprobs: Sequence[float], finish: FinishReason) -> Answer:
    """One that was put together here: nobody saw it being said, so it has no times."""
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
    """The plain answer, tokens that were said to tell noise from a defect, and why drafts are refused ("": they are
    not). A server that answers the same question twice otherwise is no more otherwise by reading."""
    prompt = job.prompts[row]
    plain = await answer_to(client, job, prompt)
    said, mine = _tokens(job, plain), _tokens(job, drafted)
    if (said, plain.finish) == (mine, drafted.finish):
        return plain, 0, ""
    again = await answer_to(client, job, prompt)
    if (again.token_ids, again.finish) != (said, plain.finish):
        return plain, len(_tokens(job, again)), ""
    at = next(
        (at for at, pair in enumerate(zip(said, mine, strict=False)) if pair[0] != pair[1]), min(len(said), len(mine))
    )
    return (
        plain,
        len(said),
        (
            f"answers were asked plainly, without the baseline's as a draft: {prompt.key.question}, asked so twice, is "
            f"another than what its server reads from token {at + 1} on ({_distance(said, at, read)})"
        ),
    )


def _distance(said: Sequence[int], at: int, read: Sequence[Place]) -> str:
    if at >= min(len(said), len(read)):
        return "of which nothing is listed"
    best, own = read[at].logprob(read[at].top), read[at].logprob(said[at])
    if best is None or own is None:
        return "no near tie: what it says is not among the likeliest that it lists"
    return f"{'a near tie' if best - own <= NEAR_TIE else 'no near tie'}: {best - own:.3g} nats apart"
