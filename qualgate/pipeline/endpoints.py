"""Ask two servers the same prompts at temperature 1, several times each, within a budget of tokens.

Each prompt is first asked once, which shows what a prompt costs and whether log-probs are given; these answers are not
tested. Then come stages: as many answers to each prompt of each server as surely fit. What is left of the budget makes
the next stage, so a stage's size depends on no answer of its own, and permutations within it are exact.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.pipeline.first_look import Address, resolved
from qualgate.records import Budget, Case, Served, Spent
from qualgate.served.answer import Answer
from qualgate.served.asked import asked_of
from qualgate.served.charging import Charges, prompt_most, prompt_took
from qualgate.served.client import Client
from qualgate.served.faults import BudgetSpent, RequestRefused
from qualgate.served.ledger import Ledger
from qualgate.served.questions import together

MOST = 32  # tokens of an answer: what tells two servers apart is in the first ones
REPEATS = 10  # answers to each prompt that a plan aims at
FEWEST, MOST_REPEATS = 2, 50  # answers to each prompt that a stage needs, and has
STAGES = 3
LONGEST = 8  # a prompt with more bytes than this part of the budget in tokens is not asked
BYTES, HEAD = 4, 16  # bytes a token, and tokens of a template, until the servers have counted
CONCURRENCY = 8
SIDES = ("A", "B")
FORMS = (
    "Write one sentence about {}.", "Tell me a fact about {}.", "Invent a name for {} and say why.",
    "Name five things near {}.", "Ask me a question about {}.", "Describe {} to a child.", "Give an opinion on {}.",
    "Begin a story about {}.",
)  # fmt: skip
THINGS = (
    "rain", "a bridge", "a kitchen", "a cat", "the sea", "a train", "an old clock", "a garden", "a lost letter",
    "winter", "a market", "a violin", "the moon", "a school", "bread", "a mountain",
)  # fmt: skip
Progress = Callable[[str, int, int], None]
Body = Mapping[str, Any]
Stage = tuple[list[list[Answer]], list[list[Answer]]]  # of each side, by prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked and answered. first: the untested answers, of each side by prompt. ended: why the budget did not
    last; "" if it did."""

    models: tuple[str, str]
    prompts: int
    most: int
    tokens: int
    first: tuple[list[Answer], list[Answer]]
    stages: list[Stage]
    spent: tuple[Spent, Spent] = (Spent(), Spent())
    ended: str = ""
    draw: str = ""

    @property
    def repeats(self) -> int:
        """Tested answers of each server to each prompt."""
        return sum(len(side_a[0]) for side_a, _ in self.stages)


@dataclass(slots=True)
class _Server:
    """One of the two while it is asked. draw: what the seeds of its requests are made of. read: tokens of each prompt,
    as its server counts them."""

    name: str
    model: str
    client: Client
    draw: str
    read: dict[str, int] = field(default_factory=dict)
    logprobs: bool = True

    def body(self, fields: Body, seed: int) -> dict[str, Any]:
        body = {"model": self.model, **fields, "temperature": 1.0, "top_p": 1.0, "seed": seed}
        return body | ({"logprobs": True if "messages" in fields else 1} if self.logprobs else {})

    async def ask(self, fields: Body, number: str) -> Answer:
        seed = int.from_bytes(sha256(f"{self.draw} {number}".encode()).digest()[:4], "big") >> 1
        path = "/chat/completions" if "messages" in fields else "/completions"
        try:
            return await self.client.ask(path, self.body(fields, seed))
        except RequestRefused:
            if not self.logprobs or self.read:
                raise
            self.logprobs = False
            return await self.ask(fields, number)


def chosen_prompts(sets: Sequence[str], folder: Path, tokens: int) -> list[Body]:
    """Return the prompts that suit a budget, as fields of requests, in an order drawn once: of the evalsets, or open
    requests without any. UsageError for a budget that is too small, and for sets without prompts."""
    if sets:
        cases = [case for ref in sets for case in evalsets.load(ref, folder).cases]
    else:
        texts = (form.format(thing) for form in FORMS for thing in THINGS)
        bodies = ({"messages": [{"role": "user", "content": text}], "max_new_tokens": MOST} for text in texts)
        cases = [Case(evalset="open", body=body) for body in bodies]
    prompts: list[Body] = [
        {**json.loads(asked_of(case, Served(), "")), "max_tokens": min(MOST, case.max_new_tokens)}
        for case in cases
        if "messages" in case.body or "prompt" in case.body
    ]
    if not prompts:
        raise UsageError("--evalset: no case of these sets is a prompt that a server can answer.")
    shortest = min(prompt_most(body) + body["max_tokens"] for body in prompts)
    prompts = [body for body in prompts if prompt_most(body) + body["max_tokens"] <= max(tokens / LONGEST, shortest)]
    random.Random(0).shuffle(prompts)
    cost = sum(prompt_most(body) / BYTES + HEAD + body["max_tokens"] for body in prompts) / len(prompts)
    least = max(round(2 * 2 * (1 + FEWEST) * cost), LONGEST * shortest)
    if tokens < least:
        raise UsageError(f"--tokens {tokens}: prompts and answers of both servers count; give {least} or more.")
    return prompts[: max(2, int(tokens / (2 * (1 + REPEATS) * cost)))]


def ask_endpoints(
    a: Address, b: Address, prompts: Sequence[Body], tokens: int, progress: Progress, draw: str = ""
) -> Asked:
    """Ask both servers. draw: another text draws other answers, where servers take seeds. Errors as of
    `first_look.resolved`, and as of `Client.ask`."""
    sides = [(name, address, *where) for name, address, where in zip(SIDES, (a, b), resolved(a, b), strict=True)]
    return asyncio.run(_ask_both(sides, prompts, tokens, progress, draw))


async def _ask_both(
    sides: Sequence[tuple[str, Address, str, str]], prompts: Sequence[Body], tokens: int, progress: Progress, draw: str
) -> Asked:
    with TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "spent.jsonl", Budget(max_tokens=tokens))
        servers = [_server(*side, ledger, progress, draw) for side in sides]
        async with servers[0].client, servers[1].client:
            first, stages, ended = await _answers(servers, prompts, ledger, tokens, progress)
        spent = ledger.spent()
    return Asked(
        models=(servers[0].model, servers[1].model), prompts=len(prompts), tokens=tokens, first=first, stages=stages,
        most=max(body["max_tokens"] for body in prompts), ended=ended, draw=draw,
        spent=(spent.get("A", Spent()), spent.get("B", Spent())),
    )  # fmt: skip


def _server(
    name: str, address: Address, url: str, model: str, ledger: Ledger, progress: Progress, draw: str
) -> _Server:
    served = Served(endpoint=url, api_key_env=address.key, stream=False, concurrency=CONCURRENCY)
    read: dict[str, int] = {}
    charges = Charges(ledger, name, served, lambda body: read.get(_key(body)) or prompt_most(body))
    client = Client(
        url, served, CONCURRENCY, charges=charges, notify=lambda _, line: progress(line, 0, 0) if line else None
    )
    return _Server(name, model, client, f"{draw} {name}", read)


def _key(body: Body) -> str:
    return json.dumps([body.get("messages"), body.get("prompt"), body.get("tools")])


async def _answers(
    servers: Sequence[_Server], prompts: Sequence[Body], ledger: Ledger, tokens: int, progress: Progress
) -> tuple[tuple[list[Answer], list[Answer]], list[Stage], str]:
    """Return the first answers, the stages, and why the budget did not last."""
    stages: list[Stage] = []
    first: tuple[list[Answer], list[Answer]] = ([], [])
    try:
        for server in servers:
            probe = await server.ask(prompts[0], "probe")  # alone: it shows whether log-probs are taken
            server.read[_key(prompts[0])] = prompt_took(prompts[0], probe.prompt_tokens)[0]
        side_a, side_b = await _stage(servers, prompts, 1, "first", progress)
        first = [answers[0] for answers in side_a], [answers[0] for answers in side_b]
        for server, answers in zip(servers, first, strict=True):
            took = (prompt_took(body, answer.prompt_tokens)[0] for body, answer in zip(prompts, answers, strict=True))
            server.read.update(zip(map(_key, prompts), took, strict=True))
        cost = sum(server.read[_key(body)] + body["max_tokens"] for server in servers for body in prompts)
        left = 0
        while len(stages) < STAGES:
            left = tokens - sum(spent.tokens for spent in ledger.spent().values())
            if (repeats := left // cost) < FEWEST:
                break
            stages.append(
                await _stage(servers, prompts, min(repeats, MOST_REPEATS), f"stage {len(stages) + 1}", progress)
            )
    except BudgetSpent:
        if not first[0]:
            return first, stages, f"its {tokens:,} tokens do not cover one answer to each prompt, as the servers count"
        return first, stages, "a server counted more tokens than for the same prompts before"
    needed = f"{FEWEST} answers to each prompt take {FEWEST * cost:,} tokens as the servers count, {left:,} are left"
    return first, stages, "" if stages else needed


async def _stage(
    servers: Sequence[_Server], prompts: Sequence[Body], repeats: int, name: str, progress: Progress
) -> Stage:
    work = [(side, row, repeat) for side in (0, 1) for row in range(len(prompts)) for repeat in range(repeats)]
    random.Random(name).shuffle(work)  # both servers are asked in turns
    progress(f"{name}: {len(prompts)} prompts, {repeats} answers to each of each server", 0, 0)
    done = 0

    async def ask(side: int, row: int, repeat: int) -> Answer:
        nonlocal done
        answer = await servers[side].ask(prompts[row], f"{name} {row} {repeat}")
        done += 1
        progress(servers[side].name, done, len(work))
        return answer

    answers = dict(zip(work, await together(ask(*item) for item in work), strict=True))
    side_a, side_b = (
        [[answers[side, row, repeat] for repeat in range(repeats)] for row in range(len(prompts))] for side in (0, 1)
    )
    return side_a, side_b
