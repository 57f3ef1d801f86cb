"""The routes of the tests' own server: models, completions, chats, health and version."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from secrets import token_hex
from time import time
from typing import Any

import uvicorn
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from qualgate.records.identity import own_version
from tests.served.server.answering import Answering, Asking, Token
from tests.served.server.asked import Asked, Refused, question_of
from tests.served.server.read import spelled
from tests.served.server.said import Said, event


def app_of(answering: Answering, name: str) -> Starlette:
    """What answers for one model. name: under which it is listed."""
    arm = answering.arm

    async def models(_: Request) -> Response:
        entry = {"id": name, "object": "model", "created": 0, "owned_by": "qualgate", "root": arm.spec.model}
        return JSONResponse({"object": "list", "data": [entry]})

    async def version(_: Request) -> Response:
        return JSONResponse({"version": own_version(), "engine": "qualgate"})

    async def health(_: Request) -> Response:
        return Response()

    async def answer(request: Request) -> Response:
        try:
            asked = Asked.model_validate_json(await request.body())
            if (asked.messages is not None) != request.url.path.endswith("/chat/completions"):
                raise Refused("chats have `messages`, completions a `prompt`")
            if asked.model != name:
                return _error(404, f"The model {asked.model!r:.80} does not exist.")
            question = await asyncio.to_thread(question_of, asked, arm)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _error(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        except Refused as error:
            return _error(400, str(error))
        asking, said = answering.ask(question), Said(arm, asked, question)
        head = {"id": f"cmpl-{token_hex(8)}", "created": int(time()), "model": name}
        if asked.stream:
            head["object"] = "chat.completion.chunk" if asked.messages is not None else "text_completion"
            return StreamingResponse(_streamed(asking, said, head), media_type="text/event-stream")
        head["object"] = "chat.completion" if asked.messages is not None else "text_completion"
        return await _whole(request, asking, said, head)

    return Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/version", version),
            Route("/health", health),
            Route("/v1/completions", answer, methods=["POST"]),
            Route("/v1/chat/completions", answer, methods=["POST"]),
        ]
    )


def server(answering: Answering, name: str) -> uvicorn.Server:
    """Return what serves the routes; `should_exit` ends it from another thread."""
    return uvicorn.Server(uvicorn.Config(app_of(answering, name), log_level="warning", timeout_graceful_shutdown=2))


async def _streamed(asking: Asking, said: Said, head: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    """Ended with the client: an answer that nobody waits for is said no further."""
    try:
        while isinstance(told := await asking.told.get(), Token):
            text, tokens = said.piece(told)
            yield event({**head, "choices": [said.choice(text, tokens, None, whole=False)]})
        if isinstance(told, Exception) or told == "broken":
            yield event({"error": {"message": f"the model failed: {told}", "type": "server_error"}})
            return
        yield event({**head, "choices": [said.choice(said.rest(told), [], told, whole=False)]})
        yield event({**head, "choices": [], "usage": said.usage})
        yield b"data: [DONE]\n\n"
    finally:
        asking.cancelled.set()


async def _whole(request: Request, asking: Asking, said: Said, head: dict[str, Any]) -> Response:
    async def gone() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(gone())
    try:
        while True:
            hearing = asyncio.create_task(asking.told.get())
            await asyncio.wait([hearing, watching], return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                hearing.cancel()
                return Response(status_code=499)
            if not isinstance(told := hearing.result(), Token):
                break
            said.tokens.append(told)
    finally:
        asking.cancelled.set()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    if isinstance(told, Exception) or told == "broken":
        return _error(500, f"the model failed: {told}")
    choice = said.choice(said.whole(told), said.tokens, told, whole=True)
    if asking.question.read is not None:
        choice["prompt_logprobs"] = [None, *(spelled(entries, said.arm) for entries in asking.read)]
    return JSONResponse({**head, "choices": [choice], "usage": said.usage})


def _error(status: int, message: str) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status_code=status)
