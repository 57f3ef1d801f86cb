"""Replies of an OpenAI-compatible server as types: other keys are left out, nothing is converted.

A whole answer and a piece of a stream are one type: `message` or `text` stands in the one, `delta` or `text` in the
other. Sizes are bounded by who reads the bytes (`client`).
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _whole(number: Any) -> Any:
    """Return a count as int: some gateways send 5.0 or "5" for 5."""
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 10:
        return int(number)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _as_text(arguments: Any) -> Any:
    """Return arguments as JSON text: some servers send the object itself."""
    return json.dumps(arguments) if isinstance(arguments, dict) else arguments


def _text(content: Any) -> Any:
    """Join parts of type text to one text; leave a content with other parts unchanged, which is no text."""
    parts = content if isinstance(content, list) else [content]
    contents = [part.get("text") if isinstance(part, dict) and part.get("type") in TEXTS else part for part in parts]
    texts = [text for text in contents if isinstance(text, str)]
    return "".join(texts) if len(texts) == len(parts) else content


def _parts(calls: Any) -> Any:
    """Drop nulls, which some servers send among the calls."""
    return [call for call in calls if call is not None] if isinstance(calls, list) else calls


def _is_thought(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "thinking" and "thinking" in part


TEXTS = ("text", "output_text")  # types of parts
Token = Annotated[int, Field(ge=0, lt=2**31)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=0, lt=2**31)]
Text = Annotated[str | None, BeforeValidator(_text)]


class Reply(BaseModel):
    """Base: strict, frozen; unknown keys are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, allow_inf_nan=False)


class Details(Reply):
    """The answer's tokens by kind: those of its thought."""

    reasoning_tokens: Count | None = None


class Usage(Reply):
    """Tokens, as the server counts them."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    completion_tokens_details: Details | None = None
    reasoning_tokens: Count | None = None  # of servers that tell it here

    @property
    def thought(self) -> int | None:
        """Tokens of the thought; None if the server does not count them."""
        details = self.completion_tokens_details
        return (
            self.reasoning_tokens if details is None or details.reasoning_tokens is None else details.reasoning_tokens
        )


class Function(Reply):
    """A call's name, and its arguments as JSON's text; of a stream, a part of either."""

    name: str | None = None
    arguments: Annotated[str | None, BeforeValidator(_as_text)] = None


class ToolCall(Reply):
    """A call that the server's parser read, or a part of one; `index`, `id` and name tell a stream's calls apart."""

    id: Any = None
    index: Annotated[int, BeforeValidator(_whole), Field(ge=0, lt=1000)] | None = None
    function: Annotated[Function, BeforeValidator(lambda function: function or {})] = Function()


class Message(Reply):
    """An assistant's message; of a stream, the next part of it."""

    content: Text = None
    reasoning: str | None = None  # the thought, where the server's parser took it off; older ones call it as below
    reasoning_content: str | None = None
    tool_calls: Annotated[list[ToolCall] | None, BeforeValidator(_parts)] = None
    function_call: Function | None = None  # as OpenAI's API had it before `tool_calls`

    @model_validator(mode="before")
    @classmethod
    def _thoughts(cls, message: Any) -> Any:
        """Take content of type thinking as the thought; Mistral's API and Anthropic's send it among the content."""
        blocks = message.get("content") if isinstance(message, dict) else None
        if not isinstance(blocks, list) or not any(map(_is_thought, blocks)):
            return message
        thoughts = [block["thinking"] for block in blocks if _is_thought(block)]
        others = [block for block in blocks if not _is_thought(block)]
        thought = _text([piece for block in thoughts for piece in (block if isinstance(block, list) else [block])])
        return {**message, "content": others or None, "reasoning_content": message.get("reasoning_content") or thought}

    @property
    def calls(self) -> list[ToolCall]:
        """Its calls, or parts of them."""
        return self.tool_calls or ([ToolCall(function=self.function_call)] if self.function_call else [])


class Logprobs(Reply):
    """Log-probs of a completion in nats: of each token, and of the likeliest at each place, by their spelling. content:
    of a chat, an object for each token."""

    token_logprobs: list[float | None] | None = None
    top_logprobs: Any = None
    tokens: Any = None
    content: Any = None


class Ranked(Reply):
    """One token at one place: its log-prob in nats, and its rank (1 is the likeliest)."""

    logprob: float
    rank: Annotated[int, Field(ge=1, lt=2**31)]


class Choice(Reply):
    """An answer. error: why it broke off, from some gateways. finish_reason: null in a stream until its end. token_ids:
    if requested and supported; prompt_logprobs: likewise, at each token of the prompt, by token id; null at the
    first."""

    error: Any = None
    index: Annotated[int, BeforeValidator(lambda at: 0 if at is None else _whole(at))] = 0
    finish_reason: str | None = None
    text: str | None = None
    message: Message | None = None
    delta: Message | None = None
    token_ids: list[Token] | None = None
    logprobs: Logprobs | None = None
    prompt_logprobs: list[dict[Annotated[str, Field(pattern="^[0-9]{1,10}$")], Ranked] | None] | None = None


class Completed(Reply):
    """A whole answer, or a piece of one. error, message, detail: from servers that report a fault under the status 200.
    metrics, timings: some engines' counts of an answer's drafts (`drafts`), among other data in their own forms.
    model, id, created: who answered, by its own account. halved: texts have halves of characters, see
    `half_characters`.
    """

    choices: list[Choice] | None = None
    usage: Usage | None = None
    error: Any = None
    message: Any = None
    detail: Any = None
    model: Any = None
    id: Any = None
    created: Any = None
    gptcache: Any = None  # true of a reply out of GPTCache
    halved: bool = False
    metrics: Any = None
    timings: Any = None

    model_config = ConfigDict(extra="allow")

    @property
    def fault(self) -> Any:
        """The fault reported in place of an answer, in the server's own words; None for none."""
        if self.error and (not isinstance(self.error, dict) or any(self.error.values())):
            return self.error
        if self.choices:
            return next((choice.error for choice in self.choices if choice.error), None)
        words = self.message if isinstance(self.message, str) else None
        return None if self.usage and self.usage.completion_tokens else words or self.detail or None

    @property
    def otherwise(self) -> Any:
        """The fields that belong to no answer, for a message if none comes."""
        return self.message or self.detail or self.model_extra or None

    @property
    def drafts(self) -> tuple[int, int] | None:
        """Tokens that drafts proposed, and those accepted; None if not reported. From vLLM's
        `metrics.speculative_decoding` (`--per-request-spec-decode-metrics`), or llama.cpp's `timings`."""
        vllm = self.metrics.get("speculative_decoding") if isinstance(self.metrics, dict) else None
        sources = (vllm, "num_draft_tokens", "num_accepted_draft_tokens"), (self.timings, "draft_n", "draft_n_accepted")
        for report, proposed_key, accepted_key in sources:
            proposed, accepted = (
                (report.get(proposed_key), report.get(accepted_key)) if isinstance(report, dict) else (None, None)
            )
            if (
                type(proposed) is int
                and type(accepted) is int
                and 0 <= min(proposed, accepted) <= max(proposed, accepted) < 2**31
            ):
                return proposed, accepted
        return None


class Model(Reply):
    """An entry of a server's list. root: the folder or name that it was loaded from, if the server reports it."""

    id: str
    root: str | None = None


class Models(Reply):
    """The reply of `/models`."""

    data: list[Model]


class Version(Reply):
    """The reply of the path where a server reports its version."""

    version: Annotated[str, Field(max_length=200)]
    engine: Annotated[str, Field(max_length=60)] | None = None
