"""Tokens of a request to a server: the most it may take, and what it took, by the server's own count if possible.

A token of text has at least one byte, so a prompt has no more tokens than bytes sent, and an answer no more than
`max_tokens`. If a server counts nothing, or fewer tokens than possible, these bounds count instead: a budget is then
spent too early rather than too late. A higher count of the server's is believed, because it charges what it counts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil
from typing import Any

from qualgate.records import Prompt, Served
from qualgate.served.faults import BudgetSpent, NotServed, WireFault
from qualgate.served.ledger import Ledger
from qualgate.served.replies import Completed

LONGEST = 128  # characters of the longest tokens that vocabularies of today hold: runs of blanks
ASKED = ("prompt", "messages", "tools", "response_format")  # what of a body a model may read


def prompt_most(body: Mapping[str, Any]) -> int:
    """Return the tokens of a request's prompt: exact for token ids, else an upper bound."""
    tokens = _tokens(body)
    if tokens is not None:
        return len(tokens)
    return len(
        json.dumps({name: body[name] for name in ASKED if name in body}, ensure_ascii=False).encode("utf-8", "replace")
    )


def _tokens(body: Mapping[str, Any]) -> list[int] | None:
    prompt = body.get("input_ids", body.get("prompt"))  # SGLang's own name, where its own way is asked
    return prompt if isinstance(prompt, list) else None


def answer_most(body: Mapping[str, Any]) -> int:
    """Return the most tokens that a request's answer may have."""
    return int(body.get("max_tokens", 0))


def batch_most(prompts: tuple[Prompt, ...]) -> tuple[int, int]:
    """Return the most tokens that are read and generated if each prompt is sent once."""
    read = sum(len(prompt.token_ids) or prompt_most(json.loads(prompt.asked or "{}")) for prompt in prompts)
    return read, sum(prompt.max_new_tokens for prompt in prompts)


@dataclass(slots=True)
class Meter:
    """Counts of one request's reply so far. `take` every piece of it."""

    told_prompt: int | None = None
    told_answer: int | None = None
    ids: int = 0  # token ids received
    characters: int = 0

    def take(self, piece: Completed) -> None:
        """Count the next piece, or a whole answer."""
        if piece.usage is not None:
            self.told_prompt, self.told_answer = piece.usage.prompt_tokens, piece.usage.completion_tokens
        for choice in piece.choices or ():
            message = choice.message or choice.delta
            calls = message.calls if message else ()
            texts = [
                choice.text,
                *((message.content, message.reasoning or message.reasoning_content) if message else ()),
            ]
            texts += [text for call in calls for text in (call.function.name, call.function.arguments)]
            self.characters += sum(len(text) for text in texts if text)
            self.ids += len(choice.token_ids or ())

    def took(self, body: Mapping[str, Any]) -> tuple[int, int, int]:
        """Return tokens of prompt and answer, and how many of them are estimates for lack of a credible count."""
        most_said, exact = answer_most(body), _tokens(body) is not None
        prompt, guessed = prompt_took(body, self.told_prompt)
        answer, guessed_too = _credible(self.told_answer, max(self.ids, ceil(self.characters / LONGEST)), most_said)
        return prompt, answer, (0 if exact else guessed) + (0 if self.ids == answer else guessed_too)


def prompt_took(body: Mapping[str, Any], told: int | None) -> tuple[int, int]:
    """Return the tokens of a prompt of which the server counts `told`, and how many of them are estimated."""
    most = prompt_most(body)
    return _credible(told, most if _tokens(body) is not None else ceil(most / LONGEST), most)


def _credible(count: int | None, least: int, most: int) -> tuple[int, int]:
    """Return a count, and how much of it is estimated: `count`, unless it is below `least`; then the most."""
    if count is not None and count >= least:
        return count, 0
    most = max(most, least)
    return most, most


class Charges:
    """Requests of one arm, each claimed before it is sent and settled when it ends. read: the most tokens of a
    request's prompt."""

    def __init__(
        self, ledger: Ledger, arm: str, served: Served, read: Callable[[Mapping[str, Any]], int] = prompt_most
    ) -> None:
        self._ledger, self._arm, self._price, self._read = ledger, arm, served.price, read
        self._under_way, self._ended = 0, asyncio.Event()

    @asynccontextmanager
    async def charged(self, body: Mapping[str, Any]) -> AsyncIterator[Meter]:
        """Claim one request for the length of the block. BudgetSpent if it does not fit the budget once those under way
        have ended. A broken request stays claimed, unless it surely had no answer."""
        name = await self._claim(self._read(body), answer_most(body))
        meter, self._under_way = Meter(), self._under_way + 1
        try:
            yield meter
        except (WireFault, NotServed) as fault:
            if isinstance(fault, NotServed) or fault.unanswered:
                self._settle(name, 0, 0, 0)
            raise
        else:
            self._settle(name, *meter.took(body))
        finally:
            self._under_way -= 1
            self._ended.set()

    async def _claim(self, prompt: int, answer: int) -> str:
        """Claim tokens in the ledger; return the claim's name.

        BudgetSpent if no request is under way that could free some.
        """
        while True:
            self._ended.clear()
            try:
                return self._ledger.claim(self._arm, self._price, prompt, answer)
            except BudgetSpent:
                if not self._under_way:
                    raise
            await self._ended.wait()

    def _settle(self, name: str, prompt: int, answer: int, estimated: int) -> None:
        self._ledger.settle(name, self._arm, self._price, prompt, answer, estimated)
