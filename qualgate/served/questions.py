"""The questions of a job as its server is asked them, and whose case it is where one is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from qualgate.records import Job, Prompt
from qualgate.served.answer import Answer
from qualgate.served.asked import reading_of, request_of
from qualgate.served.client import Client
from qualgate.served.faults import NotServed, RequestRefused
from qualgate.served.places import Place, places

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
    answer = await _asked(client, prompt, request_of(prompt, job.arm, job.seed, odds=odds))
    if prompt.token_ids and answer.prompt_tokens not in (None, len(prompt.token_ids)):
        raise NotServed(
            f"{job.arm.name}: its server reads other tokens than it is sent: {len(prompt.token_ids):,} of "
            f"{prompt.key.evalset}/{prompt.key.case_id}, of which it counts {answer.prompt_tokens:,}. Its context is "
            "too short for the case, or it adds tokens of its own to a prompt of token ids."
        )
    return answer


async def read_by(
    client: Client, job: Job, prompt: Prompt, answer: Sequence[int], vocabulary: int | None
) -> tuple[list[Place], Answer]:
    """What it lists at each token of an answer, and the answer it gave beside that. NotServed where it lists nothing,
    or something else."""
    reply = await _asked(client, prompt, reading_of(prompt, answer, job.arm))
    try:
        return places(reply.read, len(prompt.token_ids), answer, vocabulary), reply
    except ValueError as error:
        raise NotServed(
            f"{job.arm.name}: what its server lists of {prompt.key.question} (`prompt_logprobs`) cannot be used: "
            f"{error}. Servers that list log-probs of a prompt's tokens do it as vLLM does; of others, leave "
            "`prompt_logprobs` and rules on drift out."
        ) from None


async def _asked(client: Client, prompt: Prompt, request: tuple[str, dict[str, Any]]) -> Answer:
    try:
        return await client.ask(*request, of=prompt.key.question)
    except RequestRefused as refused:
        raise of_case(refused, prompt) from None


def of_case(refused: RequestRefused, prompt: Prompt) -> RequestRefused:
    """The refusal, with the case that was asked and what to do."""
    return RequestRefused(
        f"{refused}. That is of {prompt.key.evalset}/{prompt.key.case_id}: where its prompt is too long, shorten "
        "or remove the case; where the server does not know a parameter, see `engine` and `extra_body`."
    )
