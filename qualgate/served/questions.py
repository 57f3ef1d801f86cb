"""Requests of a job to its server, with the case named if one is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from qualgate.errors import InfrastructureError
from qualgate.records import GREEDY, NOISE, Job, Prompt
from qualgate.served.answer import Answer
from qualgate.served.asked import reading_of, request_of
from qualgate.served.client import Client
from qualgate.served.faults import NotServed, RequestRefused
from qualgate.served.places import Place, places

CHECKED, FEWEST = 24, 5  # one case of so many is asked twice, by a stream and whole; of fewer cases none is

Of = TypeVar("Of")


async def together(work: Iterable[Coroutine[Any, Any, Of]]) -> list[Of]:
    """Run all concurrently, as far as the client allows; return the results in order. If one fails, cancel the rest."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answer_to(client: Client, job: Job, prompt: Prompt) -> Answer:
    """Return the answer to the prompt. NotServed if the server counts another number of prompt tokens than was sent."""
    odds = prompt.sampling.drawn or job.timed  # whether it draws; where times decide, what is a near tie
    request = request_of(prompt, job.arm, job.seed, odds=odds)
    if (answer := client.received.take(prompt.key.question, request)) is not None:
        return answer
    answer = await _asked(client.ask, prompt, request)
    if prompt.token_ids and answer.prompt_tokens not in (None, len(prompt.token_ids)):
        raise NotServed(
            f"{job.arm.name}: its server reads other tokens than it is sent: {len(prompt.token_ids):,} of "
            f"{prompt.key.evalset}/{prompt.key.case_id}, of which it counts {answer.prompt_tokens:,}. Its context is "
            "too short for the case, or it adds tokens of its own to a prompt of token ids."
        )
    if answer.token_ids is not None:
        client.received.keep(prompt.key.question, request, answer)
    return answer


async def check_streams(client: Client, job: Job, then: Callable[[Prompt], Awaitable[None]] | None = None) -> None:
    """Request some cases, drawn by the run's seed, by a stream and whole before the others: see `Forms.check`. Skipped
    if times are compared or answers are sampled. then: called with each case when both answers are there."""
    assert job.arm.served is not None, "asked of served arms alone"
    candidates = [prompt for prompt in job.prompts if prompt.sampling == GREEDY and prompt.key.repeat == 0]
    if job.timed or not job.arm.served.stream or len(candidates) < FEWEST:
        return
    generator = random.Random(f"{job.seed} {job.arm.name.removesuffix(NOISE)} {job.index} streams")
    checked = generator.sample(candidates, max(1, len(candidates) // CHECKED))

    async def check(prompt: Prompt) -> None:
        request = request_of(prompt, job.arm, job.seed)
        if client.received.has(prompt.key.question, request):
            return
        with suppress(InfrastructureError):  # it is asked again with the others, and fails there
            await _asked(client.check, prompt, request)
            if then is not None:
                await then(prompt)

    await together(map(check, checked))


async def read_by(
    client: Client, job: Job, prompt: Prompt, answer: Sequence[int], vocabulary: int | None
) -> tuple[list[Place], Answer]:
    """Return the server's list at each token of an answer, and its whole reply. NotServed if it lists nothing, or other
    tokens."""
    request = reading_of(prompt, answer, job.arm)
    known = client.received.take(prompt.key.question, request)
    reply = known or await _asked(client.ask, prompt, request)
    try:
        read = places(reply.read, len(prompt.token_ids), answer, vocabulary)
    except ValueError as error:
        raise NotServed(
            f"{job.arm.name}: what its server lists of {prompt.key.question} (`prompt_logprobs`) cannot be used: "
            f"{error}. Servers that list log-probs of a prompt's tokens do it as vLLM does; of others, leave "
            "`prompt_logprobs` and rules on drift out."
        ) from None
    if known is None:
        client.received.keep(prompt.key.question, request, reply)
    return read, reply


async def _asked(ask: Callable[..., Awaitable[Answer]], prompt: Prompt, request: tuple[str, dict[str, Any]]) -> Answer:
    try:
        return await ask(*request, of=prompt.key.question)
    except RequestRefused as refused:
        raise of_case(refused, prompt) from None


def of_case(refused: RequestRefused, prompt: Prompt) -> RequestRefused:
    """Return the refusal with its case and what to do."""
    return RequestRefused(
        f"{refused}. That is of {prompt.key.evalset}/{prompt.key.case_id}: where its prompt is too long, shorten "
        "or remove the case; where the server does not know a parameter, see `engine` and `extra_body`."
    )
