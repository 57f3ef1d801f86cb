"""The questions of a job as its server is asked them, and whose case it is where one is refused."""

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
    """The results in their order, all under way as far as the client lets them; where one fails, none goes on."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def answer_to(client: Client, job: Job, prompt: Prompt) -> Answer:
    """What it says behind the prompt. NotServed where it counts other tokens of that than it was sent."""
    odds = prompt.sampling.drawn or job.timed  # whether it draws; of four arms, what is a near tie
    answer = await _asked(client.ask, prompt, request_of(prompt, job.arm, job.seed, odds=odds))
    if prompt.token_ids and answer.prompt_tokens not in (None, len(prompt.token_ids)):
        raise NotServed(
            f"{job.arm.name}: its server reads other tokens than it is sent: {len(prompt.token_ids):,} of "
            f"{prompt.key.evalset}/{prompt.key.case_id}, of which it counts {answer.prompt_tokens:,}. Its context is "
            "too short for the case, or it adds tokens of its own to a prompt of token ids."
        )
    return answer


async def check_streams(client: Client, job: Job, then: Callable[[Prompt], Awaitable[None]] | None = None) -> None:
    """Before the others some cases are asked by a stream and whole, drawn by the run's seed: see `Forms.check`. None
    where times are compared, or the answer is drawn. then: what is done with each as soon as both are there."""
    assert job.arm.served is not None, "asked of served arms alone"
    asked = [one for one in job.prompts if one.sampling == GREEDY and one.key.repeat == 0]
    if job.timed or not job.arm.served.stream or len(asked) < FEWEST:
        return
    drawn = random.Random(f"{job.seed} {job.arm.name.removesuffix(NOISE)} {job.index} streams")
    some = drawn.sample(asked, max(1, len(asked) // CHECKED))

    async def check(one: Prompt) -> None:
        with suppress(InfrastructureError):  # it is asked again with the others, and fails there
            await _asked(client.check, one, request_of(one, job.arm, job.seed))
            if then is not None:
                await then(one)

    await together(map(check, some))


async def read_by(
    client: Client, job: Job, prompt: Prompt, answer: Sequence[int], vocabulary: int | None
) -> tuple[list[Place], Answer]:
    """What it lists at each token of an answer, and the answer it gave beside that. NotServed where it lists nothing,
    or something else."""
    reply = await _asked(client.ask, prompt, reading_of(prompt, answer, job.arm))
    try:
        return places(reply.read, len(prompt.token_ids), answer, vocabulary), reply
    except ValueError as error:
        raise NotServed(
            f"{job.arm.name}: what its server lists of {prompt.key.question} (`prompt_logprobs`) cannot be used: "
            f"{error}. Servers that list log-probs of a prompt's tokens do it as vLLM does; of others, leave "
            "`prompt_logprobs` and rules on drift out."
        ) from None


async def _asked(ask: Callable[..., Awaitable[Answer]], prompt: Prompt, request: tuple[str, dict[str, Any]]) -> Answer:
    try:
        return await ask(*request, of=prompt.key.question)
    except RequestRefused as refused:
        raise of_case(refused, prompt) from None


def of_case(refused: RequestRefused, prompt: Prompt) -> RequestRefused:
    """The refusal, with the case that was asked and what to do."""
    return RequestRefused(
        f"{refused}. That is of {prompt.key.evalset}/{prompt.key.case_id}: where its prompt is too long, shorten "
        "or remove the case; where the server does not know a parameter, see `engine` and `extra_body`."
    )
