"""OpenAI's harmony format (gpt-oss): an answer is messages, each with a channel, and a call is a message to a function.

    <|channel|>analysis<|message|>thinking<|end|><|start|>assistant<|channel|>commentary to=functions.f
    <|constrain|>json<|message|>{"a": 1}<|call|>

The recipient stands after the channel (openai-harmony's examples) or before it (gpt-oss's chat template). An answer
begins inside its first header, because the prompt ends with `<|start|>assistant`. `<|call|>` stops generation, and
decoders may cut it off: the last message may lack it. Messages to other recipients (built-in tools) are no calls here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from qualgate.scoring.outcome import quote
from qualgate.scoring.tools.dialects.call import MAX_CALLS, BadCall, Call, Tools, read_arguments
from qualgate.scoring.tools.dialects.json_calls import dump
from qualgate.scoring.tools.dialects.stream import Stream

FUNCTIONS = "functions."
MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")

_END = re.compile(r"<\|(?:end|call|return)\|>")
_MARKER = re.compile("|".join(map(re.escape, MARKERS)))
_HEADER = re.compile(
    r"(?:<\|start\|>)?+\s*+(?:assistant)?+\s*+(?:to=(?P<before>[^\s<]++))?+\s*+"
    r"(?:<\|channel\|>\s*+(?P<channel>\w++))?+\s*+(?:to=(?P<after>[^\s<]++))?+\s*+"
    r"(?:(?:<\|constrain\|>)?+\s*+\w++)?+\s*+"
)


def read(text: str, tools: Tools) -> list[Call]:
    """Read the call of one message (header and body) to a function."""
    header, _, body = text.partition("<|message|>")
    name = _recipient(header).removeprefix(FUNCTIONS)
    if leak := _MARKER.search(body):
        raise BadCall("leaked_token", f"{leak[0]} in the arguments")
    return [Call(name, read_arguments(body))]


def _recipient(header: str) -> str:
    match = _HEADER.fullmatch(header)
    if not match:
        raise BadCall("leaked_token", f"{quote(header)} is no header")
    return match["before"] or match["after"] or ""


class Messages(Stream):
    """A stream of messages instead of blocks."""

    def _outside(self) -> bool:
        """Take the next message that is closed; return whether there was one."""
        match = _END.search(self.text, self._seek)
        if not match:
            self._seek = max(self._seek, len(self.text) - len("<|return|>") + 1)
            return False
        self._message(self.text[self._start : match.start()], match[0])
        self._start = self._seek = match.end()
        return True

    def _message(self, text: str, end: str) -> None:
        """Take one message, up to its end marker: a call to a function, else a piece of content.

        BadCall for other forms.
        """
        header, separator, body = text.partition("<|message|>")
        if not separator:
            if text.strip():
                raise BadCall("leaked_token", f"{end} after {quote(text)}, which is no message")
            return
        try:
            recipient = _recipient(header)
        except BadCall as error:
            raise BadCall(error.error_type, f"message after call {len(self.calls)}: {error}") from None
        if recipient.startswith(FUNCTIONS):
            if end != "<|call|>":
                raise BadCall("unbalanced", f"call {len(self.calls) + 1} ends with {end}")
            self._take(text)
        else:
            if leak := _MARKER.search(body):
                raise BadCall("leaked_token", f"{leak[0]} in a message")
            self._pieces.append(body)

    def _finish(self) -> None:
        """Take the last message, which may end with the text. Plain text without any marker is an answer, too."""
        text = self.text[self._start :]
        self._kept = len(self.text)
        if self.text.count("<|message|>") > MAX_CALLS:
            raise BadCall("too_many_calls", f"more than {MAX_CALLS} messages")
        if "<|message|>" in text:
            header = text.partition("<|message|>")[0]
            calls = _recipient(header).startswith(FUNCTIONS)
            try:
                self._message(text, "<|call|>" if calls else "<|end|>")
            except BadCall as error:
                cut = calls and error.error_type in ("not_json", "empty")
                raise BadCall("unbalanced", f"{error}; the message is not closed") if cut else error from None
        elif leak := _MARKER.search(text):
            raise BadCall("leaked_token", f"{leak[0]} without a message")
        elif text.strip():
            self._pieces.append(text)


def write(calls: Sequence[Call]) -> str:
    """Write one message per call, on the commentary channel. ValueError for a name with white space or `<`."""
    parts = []
    for call in calls:
        if not re.fullmatch(r"[^\s<]+", call.name):
            raise ValueError(f"{quote(call.name)} cannot be written in this dialect")
        header = f"<|channel|>commentary to={FUNCTIONS}{call.name} <|constrain|>json"
        parts.append(f"{header}<|message|>{dump(call.arguments, MARKERS)}<|call|>")
    return "<|start|>assistant".join(parts)
