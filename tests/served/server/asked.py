"""What a client asks, as types, and as the engine is asked it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from qualgate.engine.chat_template import TemplateFault, render_chat
from qualgate.engine.loaded import LoadedArm
from qualgate.records import Sampling
from qualgate.records.identity import canonical_json
from tests.served.server.read import MOST_LISTED

MOST_TOKENS, MOST_STOPS = 2**20, 16
Token = Annotated[int, Field(ge=0, lt=2**31)]


class Refused(ValueError):
    """The request cannot be answered as it stands (400)."""


class Asked(BaseModel):
    """The body of a request for a completion or for an answer to a chat; what is not known is let pass."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)
    model: str = ""
    prompt: str | Annotated[list[Token], Field(min_length=1, max_length=MOST_TOKENS)] | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    max_tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] = 0.0
    top_k: Annotated[int, Field(ge=0)] = 0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[float, Field(ge=0, lt=1)] = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int = 0
    n: Annotated[int, Field(ge=1, le=1)] = 1
    stop: str | Annotated[list[str], Field(max_length=MOST_STOPS)] | None = None
    stream: bool = False
    logprobs: int | bool | None = None
    prompt_logprobs: Annotated[int, Field(ge=-1)] | None = None
    return_token_ids: bool = False
    response_format: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request in tokens. until: texts that end the answer, which then is text without special tokens; None: the text
    is as it was said. constraint: a grammar's text, "" for none. read: of how many likeliest tokens the log-probs are
    told at each of the prompt's, None: of none; then max_new_tokens may be 0."""

    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling
    seed: int
    until: tuple[str, ...] | None
    constraint: str = ""
    read: int | None = None


def question_of(asked: Asked, arm: LoadedArm) -> Question:
    """Refused for what cannot be answered: no prompt, too long for the model's context, numbers out of range."""
    prompt = _tokens(asked, arm)
    limit = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
    context = arm.context_length
    if limit is None:
        limit = 16 if asked.messages is None else max(1, (context or 2048) - len(prompt))
    if context is not None and len(prompt) + limit > context:
        raise Refused(
            f"This model's maximum context length is {context} tokens. However, you requested {len(prompt) + limit} "
            f"tokens ({len(prompt)} in the prompt, {limit} in the completion)."
        )
    read = _read(asked, len(prompt), arm)
    if not limit and read is None:
        raise Refused("max_tokens: 0 answers nothing, but for `prompt_logprobs`")
    stop = (asked.stop,) if isinstance(asked.stop, str) else tuple(asked.stop or ())
    try:
        sampling = Sampling.of(asked.model_dump())
    except ValueError as error:
        raise Refused(str(error)) from None
    raw = not stop and (asked.tools is not None or asked.return_token_ids)
    return Question(
        prompt=prompt,
        max_new_tokens=limit,
        sampling=sampling,
        seed=asked.seed,
        until=None if raw else stop,
        constraint=_constraint(asked.response_format),
        read=read,
    )


def _read(asked: Asked, tokens: int, arm: LoadedArm) -> int | None:
    if asked.prompt_logprobs is None:
        return None
    if asked.stream:
        raise Refused("prompt_logprobs: they are not streamed")
    vocabulary = _vocabulary(arm)
    read = vocabulary if asked.prompt_logprobs < 0 else min(asked.prompt_logprobs, vocabulary)
    if tokens * read > MOST_LISTED:
        raise Refused(f"prompt_logprobs: {read} of each of {tokens} tokens are more than {MOST_LISTED}")
    return read


def _vocabulary(arm: LoadedArm) -> int:
    return int(arm.model.config.get_text_config().vocab_size)


def _tokens(asked: Asked, arm: LoadedArm) -> tuple[int, ...]:
    if isinstance(asked.prompt, list):
        if max(asked.prompt) >= _vocabulary(arm):
            raise Refused(f"prompt: the model has no token {max(asked.prompt)}")
        return tuple(asked.prompt)
    if asked.messages is not None:
        try:
            text, special = render_chat(arm.tokenizer, list(asked.messages), asked.tools), False
        except TemplateFault as fault:
            raise Refused(f"the chat template fails on these messages: {fault}") from None
    elif asked.prompt is not None:
        text, special = asked.prompt, True
    else:
        raise Refused("`prompt` or `messages` is missing")
    ids = tuple(arm.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])
    if not ids:
        raise Refused("the prompt has no tokens")
    return ids


def _constraint(wanted: dict[str, Any] | None) -> str:
    match wanted:
        case None | {"type": "text"}:
            return ""
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema}}:
            from llguidance import LLMatcher

            return LLMatcher.grammar_from_json_schema(canonical_json(schema))
    raise Refused("`response_format` is read as text or json_schema")
