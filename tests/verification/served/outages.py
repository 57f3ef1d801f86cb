"""Faults of servers, gateways and what stands before them: data.

PASSING may be over when asked again; each is (what is done, words that name it where it lasts). LASTING is never over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.verification.served.forms import Event
from tests.verification.served.misbehaviours import LOTS, answers, half, sends
from tests.verification.served.striking import STREAM, Act, Struck, chunk, event, head

PAGE = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head></html>"
LIMIT = {
    "error": {
        "message": "Rate limit reached for m on requests per min (RPM): Limit 3. Please try again in 20ms.",
        "type": "requests",
        "code": "rate_limit_exceeded",
    }
}
STATUSES: dict[int, Any] = {
    408: b"stream timeout",
    409: {"error": {"message": "conflict"}},
    425: b"Too Early",
    499: b"",
    500: {"error": {"message": "list index out of range", "type": "InternalServerError"}},
    502: PAGE,
    503: {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}},
    504: PAGE,
    520: PAGE,
    521: PAGE,
    522: b"error code: 522",
    523: b"error code: 523",
    524: b"error code: 524",
    529: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    530: b"error code: 1033",
}
LIMITS: dict[str, tuple[str, ...]] = {
    "no time": (),
    "Retry-After: 0": ("Retry-After: 0",),
    "Retry-After in words, twice": ("Retry-After: 1 second", "Retry-After: 1"),
    "Retry-After as a float": ("Retry-After: 0.5",),
    "Retry-After as a date past": ("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT",),
    "Retry-After of nonsense": ("Retry-After: soon",),
    "retry-after-ms": ("retry-after-ms: 20",),
    "x-ratelimit-reset in ms": ("x-ratelimit-reset-requests: 20ms", "x-ratelimit-remaining-requests: 0"),
    "x-ratelimit-reset in s": (
        "x-ratelimit-reset-requests: 1s",
        "x-ratelimit-reset-tokens: 6m0s",
        "x-ratelimit-remaining-tokens: 90",
    ),
    "RateLimit of two policies": ('RateLimit: "burst";r=0;t=1, "daily";r=9;t=3600',),
    "ratelimit-reset": ("ratelimit-reset: 1",),
}


def begins_then(*behind: Any, done: bool = False, cut: str = "") -> Act:
    """Two events of the right answer, then these; whole: the same under the status 200."""

    async def act(to: Struck) -> None:
        if not to.streams:
            return await to.answer(behind[0] if behind else b"")
        await to.send(STREAM)
        for one in (*to.events[:2], *behind, *([b"data: [DONE]\n\n"] if done else [])):
            await to.send(chunk(one if isinstance(one, bytes) else event(one)))
        if cut == "reset":
            return await to.reset()
        if cut == "close":
            return to.writer.close()
        await to.send(b"0\r\n\r\n")

    return act


def _told(text: str) -> Any:
    return {"error": {"message": text, "type": "invalid_request_error", "code": None}}


def _end(word: Any) -> Event:
    return {"choices": [{"index": 0, "delta": {}, "text": "", "finish_reason": word}]}


def _named(text: str) -> bytes:
    return f"event: error\ndata: {text}\n\n".encode()


PASSING: dict[str, tuple[Act, str]] = {
    **{f"status {status}": (answers(said, status), str(status)) for status, said in STATUSES.items()},
    **{f"429, {name}": (answers(LIMIT, 429, *headers), "429") for name, headers in LIMITS.items()},
    "429 as a page": (answers(PAGE, 429), "429"),
    "429 without a word": (answers(b"", 429), "429"),
    "503 with a time": (answers({"message": "model is loading", "estimated_time": 1.0}, 503, "Retry-After: 1"), "503"),
    "cut behind its head": (sends(STREAM), "."),
    "reset behind its head": (sends(STREAM, "reset"), "."),
    "reset before its head": (Struck.reset, "."),
    "reset in the midst": (half("reset"), "."),
    "half a status line": (sends(b"HTTP/1.1 2"), "."),
    "a length that is longer": (sends(head(200, "Content-Length: 900") + b'{"choices": ['), "."),
    "a page under 200": (answers(PAGE), "web page"),
    "a page in a stream": (sends(STREAM + chunk(PAGE) + b"0\r\n\r\n"), "web page|not this API|DOCTYPE"),
    "blanks under 200": (answers(b" \n\n"), "."),
    "a stream of nothing": (sends(STREAM + b"0\r\n\r\n"), "no answer|not this API"),
    "a stream of [DONE] alone": (sends(STREAM + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"), "no answer|not this API"),
    "an error under 200": (answers(_told("CUDA out of memory")), "CUDA out of memory"),
    "an error under 200, its text alone": (answers({"error": "CUDA out of memory"}), "CUDA out of memory"),
    "an error under 200, flat": (
        answers({"object": "error", "message": "CUDA out of memory", "code": 500}),
        "CUDA out of",
    ),
    "an error under 200, detail": (answers({"detail": "CUDA out of memory"}), "CUDA out of memory"),
    "an error under 200, a list of details": (
        answers({"detail": [{"msg": "CUDA out of memory"}]}),
        "CUDA out of memory",
    ),
    "an error under 200, msg": (answers({"code": 500, "msg": "CUDA out of memory"}), "CUDA out of memory"),
    "an error under 200, error_msg": (
        answers({"error_code": 336100, "error_msg": "CUDA out of memory"}),
        "CUDA out of",
    ),
    "an error under 200, errors": (answers({"success": False, "errors": [{"message": "CUDA out of"}]}), "CUDA out of"),
    "an error under 200, base_resp": (
        answers({"choices": None, "base_resp": {"status_msg": "CUDA out of"}}),
        "CUDA out of",
    ),
    "an error under 200, with a choice": (
        answers({**_end("stop"), **_told("CUDA out of memory")}),
        "CUDA out of memory",
    ),
    "an error under 200, with usage": (
        answers({"detail": "CUDA out of", "usage": {"completion_tokens": 0}}),
        "CUDA out of|no answer",
    ),
    "an error in the midst": (begins_then(_told("worker died"), done=True), "worker died"),
    "an error in the midst, its text alone": (begins_then({"error": "worker died"}), "worker died"),
    "an error in the midst, flat": (
        begins_then({"object": "error", "message": "worker died", "code": 500}),
        "worker died",
    ),
    "an error in the midst, detail": (begins_then({"detail": "worker died"}, done=True), "worker died"),
    "an error in the midst, msg": (begins_then({"code": 500, "msg": "worker died"}, done=True), "worker died"),
    "an error in the midst, named": (begins_then(_named('{"message": "worker died"}')), "worker died"),
    "an error in the midst, named, no JSON": (begins_then(_named("worker died")), "worker died"),
    "an error in the midst, a line alone": (begins_then(b"\nInternal Server Error\n\n"), "."),
    "an error in the midst, beside an end": (begins_then({**_end("error"), **_told("worker died")}), "worker died"),
    "ended by error": (begins_then(_end("error")), "error"),
    "ended by null, then [DONE]": (begins_then(_end(None), done=True), "broke off|no answer|end"),
    "cut without its end": (begins_then(), "."),
    "closed in the midst": (begins_then(cut="close"), "."),
    "reset in a stream": (begins_then(cut="reset"), "."),
    "cut within an event": (begins_then(b'data: {"choices": [{"ind'), "."),
    "cut within a character": (begins_then(b'data: {"choices": [{"delta": {"content": "\xf0\x9f'), "."),
}


def streamed(act: Act, otherwise: Act = Struck.right) -> Act:
    """For streams; an answer that comes at once is right, or as `otherwise` has it."""

    async def of(to: Struck) -> None:
        await (act if to.streams else otherwise)(to)

    return of


def _whole(**message: Any) -> Callable[[str | None], Event]:
    return lambda finish: {
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 5},
    }


def always(finish: str | None = "stop", **message: Any) -> Act:
    """This message, streamed as one piece."""
    whole = _whole(**message)(finish)
    piece = {"choices": [{"index": 0, "finish_reason": None, "delta": message}]}
    end = {"choices": [{"index": 0, "finish_reason": finish, "delta": {}}], "usage": whole["usage"]}

    async def act(to: Struck) -> None:
        await (to.pieces([piece, end]) if to.streams else to.answer(whole))

    return act


# Name → what is done, whose fault it is, and words that the message has.
LASTING: dict[str, tuple[Act, str, str]] = {
    "a page under 200": (answers(PAGE), "machinery", "web page"),
    "no choice": (answers({"choices": [], "usage": {"completion_tokens": 0}}), "machinery", "no answer"),
    "an image": (answers(b"\x89PNG\r\n\x1a\n" + bytes(100)), "machinery", "not this API"),
    "blanks for ever": (
        sends(head(200, "Transfer-Encoding: chunked") + chunk(LOTS) * 5 + b"0\r\n\r\n"),
        "machinery",
        "more than|not this",
    ),
    "a model's list": (answers({"object": "list", "data": [{"id": "m"}]}), "machinery", "no answer"),
    "Ollama's own API": (answers({"model": "m", "message": {"content": "hi"}, "done": True}), "machinery", "hi"),
    "TGI's own API": (answers([{"generated_text": "hi"}]), "machinery", "not this API"),
    "Anthropic's own API": (
        answers({"type": "message", "content": [{"type": "text", "text": "hi"}]}),
        "machinery",
        "no answer",
    ),
    "never an end": (always(None, content="x"), "machinery", "end"),
    "an unknown end": (always("tired", content="x"), "machinery", "tired"),
    "an end by error": (always("error", content="x"), "machinery", "error"),
    "a stream that has no end, whole right": (streamed(begins_then()), "machinery", "stream: false"),
    "a stream in JSON lines, whole right": (
        streamed(
            sends(
                head(200, "Content-Type: application/x-ndjson", "Content-Length: 30")
                + b'{"a": 1}\n{"b": 2}\n{"c": 3}\n  \n'
            )
        ),
        "machinery",
        "stream: false",
    ),
    "a stream of pages, whole right": (streamed(answers(PAGE)), "machinery", "stream: false"),
    "a stream of errors, whole right": (streamed(begins_then(_told("stream broke"))), "machinery", "stream broke"),
    "a stream refused": (
        streamed(answers(_told("Streaming is not supported for this model: 'stream' must be false"), 400)),
        "user",
        "stream: false",
    ),
    "a whole answer refused": (
        streamed(Struck.right, answers(_told("This model only support stream mode"), 400)),
        "user",
        "only support stream mode",
    ),
    "max_tokens refused": (
        answers(
            _told("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'."),
            400,
        ),
        "user",
        "parameters: {max_tokens: max_completion_tokens",
    ),
    "temperature refused": (
        answers(
            _told("Unsupported value: 'temperature' does not support 0 with this model. Only the default is."),
            400,
        ),
        "user",
        "parameters: {temperature: omit",
    ),
    "stream_options refused": (
        answers({"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]}, 422),
        "user",
        "parameters: {stream_options: omit",
    ),
    "max_tokens refused, in other words": (
        answers(_told("Unrecognized request argument supplied: max_tokens"), 400),
        "user",
        "parameters: {max_tokens:",
    ),
    "tools refused": (answers(_told("m does not support tools"), 400), "user", "does not support tools"),
    "too long a prompt": (
        answers(_told("This model's maximum context length is 8 tokens"), 400),
        "user",
        "context length",
    ),
    "400 without a word": (answers(b"", 400), "user", "400"),
    "204": (answers(b"", 204), "user", "204"),
    "401": (answers(_told("Incorrect API key provided"), 401), "user", "401.*Incorrect API key"),
    "402": (answers(_told("Insufficient credits"), 402), "user", "402.*Insufficient credits"),
    "403 as a page": (answers(PAGE, 403), "user", "403"),
    "404 of the model": (answers(_told("The model `m` does not exist"), 404), "user", "404.*does not exist"),
    "405": (answers({"detail": "Method Not Allowed"}, 405), "user", "405"),
    "410": (answers(_told("The model `m` has been deprecated"), 410), "user", "410.*deprecated"),
    "413 as a page": (answers(PAGE, 413), "user", "413"),
    "415": (answers({"detail": "Unsupported Media Type"}, 415), "user", "415"),
    "418": (answers(b"teapot", 418), "user", "418"),
    "421": (answers(b"Misdirected Request", 421), "user", "421"),
    "422": (
        answers({"detail": [{"loc": ["body", "seed"], "msg": "Input should be less than 9"}]}, 422),
        "user",
        "422.*seed",
    ),
    "451": (answers(_told("unsupported_country_region_territory"), 451), "user", "451"),
    "501": (answers(_told("not implemented"), 501), "user", "501"),
    "a redirect to a page": (answers(b"", 302, "Location: https://login.example/"), "user", "login.example"),
    "a redirect for ever": (answers(b"", 307, "Location: /v1/chat/completions"), "user", "307"),
}


# What a model may have said and a server did not read: kept as it came, for the scorer to judge, never mended.
KEPT: dict[str, tuple[Act, str]] = {
    "nothing but a thought": (always(content=None, reasoning_content="hm"), ""),
    "nothing at all": (always(content=""), ""),
    "content null": (always(content=None), ""),
    "calls as text": (always(content='<tool_call>{"name": "look", "arguments": {}}</tool_call>'), "<tool_call>"),
    "calls of Mistral as text": (always(content='[TOOL_CALLS][{"name": "look", "arguments": {}}]'), "[TOOL_CALLS]"),
    "cut for its length": (always("length", content="answer"), "answer"),
}
