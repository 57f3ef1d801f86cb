"""Our own server with a fault planted between it and whoever asks: each a function of what is asked and of what the
sound server would answer. They know nothing of gates, probes or rules."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from qualgate.engine.load import load_arm
from qualgate.records import ArmSpec
from tests.served.server.answering import Answering
from tests.served.server.app import app_of

Asked = dict[str, Any]
Answer = Callable[[Asked], Awaitable[Asked]]
Fault = Callable[[Asked, Answer], Awaitable[Asked]]


async def none(asked: Asked, answer: Answer) -> Asked:
    return await answer(asked)


async def another_template(asked: Asked, answer: Answer) -> Asked:
    if "messages" not in asked:
        return await answer(asked)
    said = {"role": "system", "content": "You are a helpful assistant."}
    return await answer({**asked, "messages": [said, *asked["messages"]]})


async def parser_off(asked: Asked, answer: Answer) -> Asked:
    found = await answer(asked)
    message = found["choices"][0].get("message", {})
    if calls := message.pop("tool_calls", None):
        function = calls[0]["function"]
        message["content"] = json.dumps({"name": function["name"], "arguments": json.loads(function["arguments"])})
        found["choices"][0]["finish_reason"] = "stop"
    return found


async def draws_always(asked: Asked, answer: Answer) -> Asked:
    return await answer({**asked, "temperature": 1.0, "seed": random.getrandbits(31)})


async def draws_never(asked: Asked, answer: Answer) -> Asked:
    return await answer({**asked, "temperature": 0.0})


async def stops_never(asked: Asked, answer: Answer) -> Asked:
    return await answer({**asked, "stop": None})


@dataclass
class Cut:
    """Reads the last characters alone."""

    most: int = 24

    async def __call__(self, asked: Asked, answer: Answer) -> Asked:
        if "messages" not in asked:
            return await answer({**asked, "prompt": asked["prompt"][-self.most :]})
        last = asked["messages"][-1]
        return await answer({**asked, "messages": [{**last, "content": last["content"][-self.most :]}]})


@dataclass
class Cached:
    """Takes what begins alike for the same question."""

    characters: int = 12
    known: dict[str, Asked] = field(default_factory=dict)

    async def __call__(self, asked: Asked, answer: Answer) -> Asked:
        key = json.dumps([text_of(asked)[: self.characters], asked.get("tools"), asked["temperature"]])
        if key not in self.known:
            self.known[key] = await answer(asked)
        return json.loads(json.dumps(self.known[key]))


@dataclass
class Crossed:
    """Of two that are answered at the same time each gets the other's, now and then."""

    share: float = 0.5
    drawn: random.Random = field(default_factory=lambda: random.Random(3))
    waiting: list[tuple[Asked, asyncio.Future[Asked]]] = field(default_factory=list)

    async def __call__(self, asked: Asked, answer: Answer) -> Asked:
        own = await answer(asked)
        if self.waiting:
            theirs, hears = self.waiting.pop()
            if not hears.done():
                hears.set_result(own)
                return theirs
        if self.drawn.random() >= self.share:
            return own
        hears = asyncio.get_running_loop().create_future()
        self.waiting.append((own, hears))
        try:
            return await asyncio.wait_for(hears, 0.05)
        except TimeoutError:
            self.waiting = [one for one in self.waiting if one[1] is not hears]
            return own


@dataclass
class Misdrafted:
    """Keeps a token that its target would not have said, in so many answers of a hundred."""

    share: int = 20

    async def __call__(self, asked: Asked, answer: Answer) -> Asked:
        found = await answer(asked)
        tokens = found["choices"][0].get("token_ids") or []
        if len(tokens) > 2 and sum(asked["prompt"]) % 100 < self.share:
            tokens[1] = (tokens[1] + 1) % 200
        return found


@dataclass
class Noisy:
    """Says now and then something else, as a server whose batches change its rounding: of so many answers in a hundred
    the last character is another."""

    share: float
    drawn: random.Random

    async def __call__(self, asked: Asked, answer: Answer) -> Asked:
        found = await answer(asked)
        message = found["choices"][0].get("message")
        if message and message.get("content") and self.drawn.random() < self.share / 100:
            message["content"] = message["content"][:-1] + "~"
        return found


def text_of(asked: Asked) -> str:
    return str(asked["messages"][-1]["content"] if "messages" in asked else asked["prompt"])


async def _calling(asked: Asked, answer: Answer) -> Asked:
    """The model is too small to call tools: it calls the first one always, and its parser reads that."""
    found = await answer({**asked, "tools": None})
    if asked.get("tools") and "messages" in asked:
        tool = asked["tools"][0]["function"]["name"]
        call = {"name": tool, "arguments": json.dumps({"order": text_of(asked)[-6:]})}
        called = [{"index": 0, "id": "call_0", "type": "function", "function": call}]
        found["choices"][0] |= {"message": {"role": "assistant", "content": None, "tool_calls": called},
                                "finish_reason": "tool_calls"}  # fmt: skip
    return found


def faulty(app: Any, fault: Fault, root: str) -> Any:
    """The app (ASGI) behind a fault. root: the folder that it says its model was loaded from."""
    sound = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://sound", timeout=None)

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        path = request.url.path

        async def inner(asked: Asked) -> Asked:
            return (await sound.post(path, json=asked)).raise_for_status().json()

        try:
            if request.method == "GET":
                found = (await sound.get(path)).raise_for_status().json()
                if path == "/v1/models":
                    found["data"][0]["root"] = root
            else:
                found = await fault(await request.json(), lambda asked: _calling(asked, inner))
            response: Response = JSONResponse(found)
        except httpx2.HTTPStatusError as refused:
            reply = refused.response
            response = Response(reply.content, reply.status_code, media_type="application/json")
        await response(scope, receive, send)

    return serve


@contextmanager
def answering(spec: ArmSpec, cache: Path) -> Iterator[Answering]:
    """Our own engine with this arm, for any number of servers before it."""
    with Answering(load_arm(spec, cache, {}, device="cpu")) as found:
        yield found


@contextmanager
def serving(behind: Answering, fault: Fault, root: str) -> Iterator[str]:
    """The address, with /v1, of a server of the model `m` that has this fault."""
    app = faulty(app_of(behind, "m"), fault, root)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        running = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            running.should_exit = True
            thread.join()
