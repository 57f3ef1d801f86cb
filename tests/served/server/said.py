"""An answer as OpenAI's API writes it, whole or in pieces."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from qualgate.engine.loaded import LoadedArm
from qualgate.engine.stopping import Stops
from qualgate.scoring.tools.dialects import BadCall, hermes
from tests.served.server.answering import Token
from tests.served.server.asked import Asked, Question

WORDS = {"eos": "stop", "stop": "stop", "dead_end": "stop", "length": "length", "abort": "abort"}


@dataclass(slots=True)
class Said:
    """An answer under way. A text's last characters are held back until no end of it can be cut off: by a stop text, or
    as half a character."""

    arm: LoadedArm
    asked: Asked
    question: Question
    tokens: list[Token] = field(default_factory=list)
    _stops: Stops = field(init=False)
    _told: int = 0  # characters

    def __post_init__(self) -> None:
        self._stops = Stops(self.arm.tokenizer, [self.question.until])

    def piece(self, token: Token) -> tuple[str, list[Token]]:
        """What of the text can be told with the next token."""
        self.tokens.append(token)
        if self.asked.tools:
            return "", [token]  # calls are read of the whole
        text = self._text()
        held = max((len(stop) for stop in self.question.until or ()), default=0)
        end = len(text.rstrip("\ufffd")) - held
        new = text[self._told : max(self._told, end)]
        self._told += len(new)
        return new, [token]

    def rest(self, reason: str) -> str:
        """What was held back."""
        return self.whole(reason)[self._told :]

    def whole(self, reason: str) -> str:
        """The text, without the token that ended it."""
        return self._text(ended=reason == "eos")

    def choice(self, text: str, tokens: list[Token], reason: str | None, *, whole: bool) -> dict[str, Any]:
        """The one choice of a reply."""
        found: dict[str, Any] = {"index": 0, "finish_reason": WORDS[reason] if reason else None, "logprobs": None}
        if self.asked.messages is not None:
            found["message" if whole else "delta"] = self._message(text, reason)
            if reason and "tool_calls" in found["message" if whole else "delta"]:
                found["finish_reason"] = "tool_calls"
        else:
            found["text"] = text
        if self.asked.return_token_ids:
            found["token_ids"] = [token.number for token in tokens]
        if self.asked.logprobs is not None and self.asked.logprobs is not False:
            spelled = [str(self.arm.tokenizer.decode([token.number])) for token in tokens]
            told = [token.logprob for token in tokens]
            if self.asked.messages is None:
                found["logprobs"] = {"tokens": spelled, "token_logprobs": told}
            else:
                pairs = zip(spelled, told, strict=True)
                found["logprobs"] = {"content": [{"token": one, "logprob": value} for one, value in pairs]}
        return found

    @property
    def usage(self) -> dict[str, int]:
        """Tokens read and said."""
        read, said = len(self.question.prompt), len(self.tokens)
        return {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}

    def _text(self, *, ended: bool = False) -> str:
        numbers = [token.number for token in self.tokens]
        ended = ended or bool(numbers and numbers[-1] in self.arm.stop_ids)
        return self._stops.text(0, numbers[:-1] if ended else numbers)

    def _message(self, text: str, reason: str | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if not self.asked.tools or not reason:
            return message
        before, mark, _ = text.partition("<tool_call>")
        try:
            calls = list(hermes(text, self.asked.tools)) if mark else []
        except BadCall:
            return message
        if not calls:
            return message
        return {
            "role": "assistant",
            "content": before.strip() or None,
            "tool_calls": [
                {
                    "index": at,
                    "id": f"call_{at}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
                }
                for at, call in enumerate(calls)
            ],
        }


def event(piece: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(piece).encode() + b"\n\n"
