"""An answer gathered from what a server sends, whole or piece by piece. One that is not whole is none (`WireFault`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from qualgate.records import FINISH_WORDS, FinishReason
from qualgate.served.doubt import doubtful
from qualgate.served.faults import WireFault
from qualgate.served.replies import Choice, Completed, Message, Ranked
from qualgate.served.told_odds import margins_told

MOST_CALLS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered.

    token_ids, prompt_tokens, completion_tokens: None where it does not tell. calls: name, and arguments as JSON's text,
    that its parser read. thought: what its parser took off before the text. first, last, max_gap: s since it was asked,
    of its first and last piece and the longest wait between two (None: it came in one). read: what it lists at each
    token of the prompt, where that was asked for. drafts: see `Completed.drafts`. margins: see `margins_told`; () where
    one of them is not told. thought_tokens: as the server counts them, None where it does not.
    """

    text: str
    thought: str
    calls: tuple[tuple[str, str], ...]
    finish: FinishReason
    token_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...]
    prompt_tokens: int | None
    completion_tokens: int | None
    first: float
    last: float
    max_gap: float | None
    read: tuple[Mapping[str, Ranked] | None, ...] = ()
    drafts: tuple[int, int] | None = None
    margins: tuple[float, ...] = ()
    thought_tokens: int | None = None

    @property
    def said(self) -> tuple[int | None, str, str, tuple[tuple[str, str], ...]]:
        """Its count of tokens, its thought, its text and its calls."""
        return self.completion_tokens, self.thought, self.text, self.calls


@dataclass(slots=True)
class Gathering:
    """An answer under way. `take` each piece as it comes, with its time; then `answer`."""

    _texts: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _arguments: dict[int, list[str]] = field(default_factory=dict)
    _ids: list[int] | None = None
    _logprobs: list[float] = field(default_factory=list)
    _margins: list[float | None] = field(default_factory=list)
    _finish: str | None = None
    _counted: tuple[int | None, int | None] = (None, None)  # tokens of the prompt and the answer
    _thought: int | None = None  # tokens
    _times: list[float] = field(default_factory=list)
    _read: tuple[Mapping[str, Ranked] | None, ...] = ()
    _drafts: tuple[int, int] | None = None

    def take(self, piece: Completed, seconds: float) -> None:
        """A whole answer, or the next piece. WireFault for an error under the status 200, for a piece of another
        answer, and for one behind the end."""
        if piece.error is not None:
            raise WireFault(f"it reports an error in place of an answer: {json.dumps(piece.error)}")
        if piece.usage is not None:
            self._counted = piece.usage.prompt_tokens, piece.usage.completion_tokens
            self._thought = piece.usage.thought
        self._drafts = piece.drafts or self._drafts
        if not piece.choices:
            return
        if len(piece.choices) != 1 or piece.choices[0].index != 0:
            raise WireFault("it sent several answers to one question")
        self._take(piece.choices[0], seconds)

    @property
    def times(self) -> tuple[float, ...]:
        """Of the pieces so far that said something."""
        return tuple(self._times)

    @property
    def doubtful(self) -> bool:
        """Whether pieces may have come twice or in another order, and no tokens tell; see `doubt`."""
        cut = self._finish == "length"  # its last arguments are no JSON then
        return self._ids is None and doubtful((self._texts, self._thoughts), () if cut else self._arguments.values())

    def _take(self, choice: Choice, seconds: float) -> None:
        said = choice.message or choice.delta or Message()
        text = choice.text or said.content or ""
        thought = said.reasoning or said.reasoning_content or ""
        more = bool(text or thought or said.tool_calls or choice.token_ids)
        if self._finish is not None and more:
            raise WireFault("it went on after the end of its answer")
        if more:
            self._times.append(seconds)
        self._texts.append(text)
        self._thoughts.append(thought)
        for place, call in enumerate(said.tool_calls or ()):
            self._call(place if call.index is None else call.index, call.function.name, call.function.arguments)
        if choice.token_ids is not None:
            self._ids = self._ids or []
            self._ids += choice.token_ids
        if choice.logprobs is not None:
            told = choice.logprobs.token_logprobs or ()
            self._logprobs += [one for one in told if one is not None]
            self._margins += margins_told(told, choice.logprobs.top_logprobs)
        self._read = self._read or tuple(choice.prompt_logprobs or ())
        self._finish = choice.finish_reason or self._finish

    def _call(self, place: int, name: str | None, arguments: str | None) -> None:
        if name:
            if self._names.setdefault(place, name) != name:
                raise WireFault("it gave one tool call two names")
        elif place not in self._names:
            raise WireFault("it sent a tool call's arguments before its name")
        self._arguments.setdefault(place, []).append(arguments or "")

    def answer(self, seconds: float) -> Answer:
        """The whole of it; seconds: when it ended. WireFault where it has no end, or not the tokens it counts."""
        if self._finish is None:
            raise WireFault("its answer broke off before its end")
        if self._finish not in FINISH_WORDS:
            raise WireFault(f"it ended its answer by an unknown word: {self._finish!r:.40}")
        read, said = self._counted
        if self._ids is not None and said is not None and len(self._ids) != said:
            raise WireFault(f"it told {len(self._ids)} tokens and counted {said}: a piece was lost, or came twice")
        margins = [one for one in self._margins if one is not None]
        gaps = [after - before for before, after in zip(self._times, self._times[1:], strict=False)]
        return Answer(
            text="".join(self._texts),
            thought="".join(self._thoughts),
            calls=tuple((self._names[at], "".join(self._arguments[at])) for at in sorted(self._names)),
            finish=FINISH_WORDS[self._finish],
            token_ids=None if self._ids is None else tuple(self._ids),
            logprobs=tuple(self._logprobs) if self._ids is not None and len(self._logprobs) == len(self._ids) else (),
            prompt_tokens=read,
            completion_tokens=said,
            thought_tokens=self._thought,
            first=self._times[0] if self._times else seconds,
            last=self._times[-1] if self._times else seconds,
            max_gap=max(gaps, default=None),
            read=self._read,
            drafts=self._drafts,
            margins=tuple(margins) if self._ids is not None and len(margins) == len(self._ids) else (),
        )
