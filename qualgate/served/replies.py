"""What an OpenAI-compatible server sends back, as types: whatever else it sends is left out, nothing is converted.

A whole answer and a piece of a stream are one type: `message` or `text` stands in the one, `delta` or `text` in the
other. Sizes are bounded by who reads the bytes (`client`).
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Token = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**31)]


class Reply(BaseModel):
    """Base: strict, frozen; keys that are not known are no concern of ours."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class Usage(Reply):
    """Tokens, as the server counts them."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class Function(Reply):
    """A call's name, and its arguments as JSON's text; of a stream, a part of either."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(Reply):
    """A call that the server's parser read, or a part of one; `index` tells a stream's calls apart."""

    index: Annotated[int, Field(ge=0, lt=1000)] | None = None
    function: Function = Function()


class Message(Reply):
    """What an assistant says; of a stream, the next part of it."""

    content: str | None = None
    reasoning: str | None = None  # the thought, where the server's parser took it off; older ones call it as below
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None


class Logprobs(Reply):
    """Of a completion: nats of each token."""

    token_logprobs: list[float | None] | None = None


class Choice(Reply):
    """An answer. finish_reason: null in a stream until its end. token_ids: where they were asked for and are told."""

    index: int = 0
    finish_reason: str | None = None
    text: str | None = None
    message: Message | None = None
    delta: Message | None = None
    token_ids: list[Token] | None = None
    logprobs: Logprobs | None = None


class Completed(Reply):
    """A whole answer, or a piece of one. error: of servers that report one under the status 200."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None


class Model(Reply):
    """An entry of a server's list. root: the folder or the name that it was loaded from, where the server tells."""

    id: str
    root: str | None = None


class Models(Reply):
    """What `/models` says."""

    data: list[Model]


class Version(Reply):
    """What `/version` says, where a server has it."""

    version: Annotated[str, Field(max_length=200)]
    engine: Annotated[str, Field(max_length=60)] | None = None
