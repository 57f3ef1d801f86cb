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


class Details(Reply):
    """Of the answer's tokens those of its thought."""

    reasoning_tokens: Count | None = None


class Usage(Reply):
    """Tokens, as the server counts them."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    completion_tokens_details: Details | None = None
    reasoning_tokens: Count | None = None  # of servers that tell it here

    @property
    def thought(self) -> int | None:
        """Tokens of the thought; None where this does not say it."""
        details = self.completion_tokens_details
        return (
            self.reasoning_tokens if details is None or details.reasoning_tokens is None else details.reasoning_tokens
        )


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
    """Of a completion: nats of each token, and of the likeliest at each place, by their spelling."""

    token_logprobs: list[float | None] | None = None
    top_logprobs: Any = None


class Ranked(Reply):
    """What a server tells of one token at one place: nats, and how many tokens are likelier, plus one."""

    logprob: float
    rank: Annotated[int, Field(ge=1, lt=2**31)]


class Choice(Reply):
    """An answer. finish_reason: null in a stream until its end. token_ids: where they were asked for and are told;
    prompt_logprobs: likewise, at each of the prompt's tokens, by their numbers; null at the first."""

    index: int = 0
    finish_reason: str | None = None
    text: str | None = None
    message: Message | None = None
    delta: Message | None = None
    token_ids: list[Token] | None = None
    logprobs: Logprobs | None = None
    prompt_logprobs: list[dict[Annotated[str, Field(pattern="^[0-9]{1,10}$")], Ranked] | None] | None = None


class Completed(Reply):
    """A whole answer, or a piece of one. error: of servers that report one under the status 200. metrics, timings: what
    some engines tell of an answer's drafts, see `drafts`, among much else in forms of their own."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    metrics: Any = None
    timings: Any = None

    @property
    def drafts(self) -> tuple[int, int] | None:
        """Tokens that its drafts proposed, and of them those it kept; None where this does not say it. vLLM's
        `metrics.speculative_decoding` (`--per-request-spec-decode-metrics`), and llama.cpp's `timings`."""
        told = self.metrics.get("speculative_decoding") if isinstance(self.metrics, dict) else None
        places = (told, "num_draft_tokens", "num_accepted_draft_tokens"), (self.timings, "draft_n", "draft_n_accepted")
        for found, proposed, accepted in places:
            told, kept = (found.get(proposed), found.get(accepted)) if isinstance(found, dict) else (None, None)
            if type(told) is int and type(kept) is int and 0 <= min(told, kept) <= max(told, kept) < 2**31:
                return told, kept
        return None


class Model(Reply):
    """An entry of a server's list. root: the folder or the name that it was loaded from, where the server tells."""

    id: str
    root: str | None = None


class Models(Reply):
    """What `/models` says."""

    data: list[Model]


class Version(Reply):
    """What the place says where a server tells its version."""

    version: Annotated[str, Field(max_length=200)]
    engine: Annotated[str, Field(max_length=60)] | None = None
