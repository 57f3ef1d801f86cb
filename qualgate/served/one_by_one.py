"""Request a job's cases one by one: hand on each answer as it comes, and each case without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from qualgate.errors import InfrastructureError
from qualgate.records import Prompt
from qualgate.served.answer import Answer
from qualgate.served.faults import BudgetSpent, LimitLasts, NotServed, RequestRefused
from qualgate.served.questions import together

ROUNDS = 2  # of failures, each as many as are asked at once: with no answer between, the server is down
FEWEST = 3  # failures that end a batch

Fault = NotServed | InfrastructureError


async def ask_each(
    prompts: Sequence[Prompt],
    at_once: int,
    ask: Callable[[Prompt], Awaitable[Answer]],
    answered: Callable[[int, Answer], Awaitable[None]],
    failed: Callable[[int, Fault], Awaitable[None]],
) -> None:
    """Ask all prompts, `at_once` at a time. answered, failed: called once for each, with its row.

    A failure that affects every other case too (the budget, a lasting limit, `ROUNDS` of failures) is raised, after
    requests under way have ended, because an answer that is on its way may be paid for.
    """
    turns, fruitless, any_answer, last = asyncio.Semaphore(at_once), 0, False, None

    async def ask_one(row: int) -> None:
        """Ask for one row and hand on its answer or failure; set `last` to a failure that ends the batch."""
        nonlocal fruitless, any_answer, last
        async with turns:
            if last is not None:
                return
            try:
                answer = await ask(prompts[row])
            except (BudgetSpent, LimitLasts) as error:
                last = error
            except (NotServed, InfrastructureError) as error:
                await failed(row, error)
                if any_answer and isinstance(error, RequestRefused):
                    return  # the case's own: the server answers others
                fruitless += 1
                if fruitless >= max(FEWEST, ROUNDS * at_once):
                    last = error
            else:
                fruitless, any_answer = 0, True
                await answered(row, answer)

    await together(ask_one(row) for row in range(len(prompts)))
    if last is not None:
        raise last
