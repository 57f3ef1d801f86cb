"""Render chat templates in a child process, because a template is a program of its model's author.

The child runs transformers' own code on the template, so the text equals that of other programs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from qualgate.sandbox import killable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MOST_CHARACTERS = 2**24  # of one prompt: more than any context takes
MOST_SAID = 500  # characters of what it raises
BOUNDS = killable.Bounds(cpu_seconds=10.0, memory_bytes=2**29)


class TemplateFault(ValueError):
    """A template that does not render this chat; the message says why."""


def render_chat(
    tokenizer: PreTrainedTokenizerBase, messages: list[Any], tools: list[Any] | None = None, *, answers: bool = True
) -> str:
    """Return the text of a chat that the assistant is to answer, or whose last message it is to continue.

    Raises TemplateFault if the template fails.
    """
    from transformers import PreTrainedTokenizerBase

    messages = _with_arguments(messages)
    if type(tokenizer).apply_chat_template is not PreTrainedTokenizerBase.apply_chat_template:
        # Of a class with a way of its own, which is no program of the folder's.
        return _text(tokenizer, messages, tools, answers)
    special = {
        name: token if isinstance(token, list) else str(token) for name, token in tokenizer.special_tokens_map.items()
    }
    try:
        reply = killable.run(_render, tokenizer.chat_template, special, messages, tools, answers, within=BOUNDS)
    except killable.Killed as ended:
        raise TemplateFault(f"it was ended: {ended}; does it loop without end?") from None
    if "fault" in reply:
        raise TemplateFault(reply["fault"])
    return reply["text"]


def _with_arguments(messages: Sequence[Any]) -> list[Any]:
    """Return the messages with tool-call arguments as objects, as templates expect them; OpenAI's API has them as text.

    vLLM does the same before it renders, so the text equals that of a server.
    """
    return [
        message | {"tool_calls": [_with_object(call) for call in message["tool_calls"]]}
        if isinstance(message, dict) and isinstance(message.get("tool_calls"), list)
        else message
        for message in messages
    ]


def _with_object(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str() as text} as function}:
            with suppress(ValueError, RecursionError):
                return call | {"function": function | {"arguments": json.loads(text)}}
    return call


def _render(
    template: Any, special: dict[str, Any], messages: list[Any], tools: list[Any] | None, answers: bool
) -> dict[str, str]:
    """Return the text or the error. Runs in the child."""
    tokenizer = _tokenizer()
    tokenizer.chat_template = template
    try:
        return {"text": _text(tokenizer, messages, tools, answers, special)}
    except TemplateFault as fault:
        return {"fault": str(fault)}


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    """Return a tokenizer that has only a template."""
    from transformers import PreTrainedTokenizerBase

    return PreTrainedTokenizerBase()


def _text(
    tokenizer: Any, messages: list[Any], tools: list[Any] | None, answers: bool, special: dict[str, Any] | None = None
) -> str:
    """Return the rendered template; TemplateFault for any error of the template, or for a text that is too long.

    answers: append the prompt of an answer; otherwise the last message is left open. special: further arguments of
    the template.
    """
    how = {"add_generation_prompt": answers, "continue_final_message": not answers, "tokenize": False}
    try:
        text = tokenizer.apply_chat_template(messages, tools=tools, **how, **(special or {}))
    except MemoryError:
        raise
    except Exception as error:  # anything can go wrong in a program
        message = str(error)
        raise TemplateFault(
            f"{type(error).__name__}: {message[:MOST_SAID]}{'…' * (len(message) > MOST_SAID)}"
        ) from None
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise TemplateFault(f"it gives more than {MOST_CHARACTERS:,} characters")
    return text
