"""Planted faults change what they are said to change, and the sound server changes nothing."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.verification.served import faulty


async def sound(asked: dict[str, Any]) -> dict[str, Any]:
    text = f"{asked['messages'][-1]['content']} {asked['temperature']} {asked.get('stop')}"
    return {"choices": [{"index": 0, "message": {"content": text}}]}


def asked(text: str, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0.5, **more}


def said(fault: faulty.Fault, *texts: str, **more: Any) -> list[str]:
    async def together() -> list[dict[str, Any]]:
        return await asyncio.gather(*(fault(asked(text, **more), sound) for text in texts))

    return [one["choices"][0]["message"]["content"] for one in asyncio.run(together())]


QUESTIONS = tuple(f"question of ours, number {number}" for number in range(8))


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        (faulty.none, False), (faulty.Noisy(0.0, random.Random(0)), False), (faulty.draws_never, True),
        (faulty.draws_always, True), (faulty.stops_never, True), (faulty.Cut(9), True), (faulty.Cached(), True),
        (faulty.Crossed(), True), (faulty.Noisy(60.0, random.Random(0)), True),
    ],
)  # fmt: skip
def test_a_fault_changes_answers_and_the_sound_server_does_not(fault, changes):
    async def twice(one: dict[str, Any], answer: faulty.Answer) -> dict[str, Any]:
        await fault(one, answer)
        return await fault(one, answer)

    whole = said(faulty.none, *QUESTIONS, stop=["x"])
    assert (said(twice if isinstance(fault, faulty.Cached) else fault, *QUESTIONS, stop=["x"]) != whole) is changes


def test_crossed_answers_are_all_someones():
    whole, crossed = said(faulty.none, *QUESTIONS), said(faulty.Crossed(share=1.0), *QUESTIONS)
    assert sorted(crossed) == sorted(whole)
    assert all(one != other for one, other in zip(crossed, whole, strict=True))
