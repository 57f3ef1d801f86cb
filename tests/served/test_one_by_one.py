"""Cases that are asked one by one: who fails alone, and when nobody else is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from qualgate.errors import InfrastructureError
from qualgate.records import Prompt, UnitKey
from qualgate.served.faults import BudgetSpent, RequestRefused
from qualgate.served.one_by_one import ROUNDS, ask_each

AT_ONCE = 2
PROMPTS = [Prompt(key=UnitKey("v", "s", str(row)), case_hash="h", token_ids=(), max_new_tokens=1) for row in range(12)]


def asked(faults: Callable[[int], Exception | None]) -> tuple[list[int], list[int], list[int], Exception | None]:
    """Rows that were asked, answered and failed, and what was raised."""
    rows, answered, failed = [], [], []

    async def ask(prompt: Prompt) -> str:
        row = int(prompt.key.case_id)
        rows.append(row)
        await asyncio.sleep(0)
        if (fault := faults(row)) is not None:
            raise fault
        return "x"

    async def note(rows: list[int], row: int) -> None:
        rows.append(row)

    try:
        asyncio.run(
            ask_each(PROMPTS, AT_ONCE, ask, lambda row, _: note(answered, row), lambda row, _: note(failed, row))
        )
    except Exception as error:
        return rows, answered, failed, error
    return rows, answered, failed, None


@pytest.mark.parametrize("fault", [RequestRefused("too long"), InfrastructureError("no answer")])
def test_a_case_that_fails_is_told_and_all_others_are_answered(fault):
    rows, answered, failed, error = asked(lambda row: fault if row % 4 == 1 else None)
    assert (len(rows), failed, error) == (12, [1, 5, 9], None)
    assert sorted(answered + failed) == rows


def test_where_nothing_is_answered_any_more_the_rest_is_not_asked():
    down = InfrastructureError("down")
    rows, answered, failed, error = asked(lambda row: down if row > 2 else None)
    assert (answered, error) == ([0, 1, 2], down)
    assert ROUNDS * AT_ONCE <= len(failed) <= len(rows) - 3 < ROUNDS * AT_ONCE + AT_ONCE


def test_cases_that_are_refused_one_behind_the_other_are_their_own_fault_once_another_was_answered():
    _, answered, failed, error = asked(lambda row: None if row in (0, 11) else RequestRefused("filtered"))
    assert (answered, failed, error) == ([0, 11], list(range(1, 11)), None)
    _, answered, _, error = asked(lambda row: RequestRefused("all"))
    assert (answered, isinstance(error, RequestRefused)) == ([], True)


def test_what_would_fail_the_others_too_ends_the_job_and_what_is_under_way_is_answered():
    fault = BudgetSpent("spent")
    rows, answered, failed, error = asked(lambda row: fault if row == 4 else None)
    assert (failed, error) == ([], fault)
    assert answered == [row for row in rows if row != 4]
    assert len(rows) < 12
