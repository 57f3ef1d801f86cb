"""Gather an answer from a server's reply, whole or piece by piece. An incomplete one is a `WireFault`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qualgate.records import FINISH_WORDS, FinishReason
from qualgate.records.arms import FROM_CACHE, SHORT_ID, UNNAMED
from qualgate.records.identity import content_hash
from qualgate.served.doubt import EMPTY, MIXED, REARRANGED, Doubt, doubtful, is_json
from qualgate.served.faults import WireFault, reported
from qualgate.served.half_characters import made_whole
from qualgate.served.replies import Choice, Completed, Message, Ranked, ToolCall
from qualgate.served.told_odds import margins_told, spelled

MOST_NAME = 200  # characters of a model's name
CALLED = ("tool_calls", "tool_use", "function_call")  # ends of an answer that calls a tool
LONG_ID, LETTERS = 16, 7  # characters, and how many of them are different, of an id that no other server gives


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a server answered.

    token_ids, prompt_tokens, completion_tokens: None if not reported. calls: name, and arguments as JSON text, that its
    parser read. thought: removed from the text by its parser. first, last, max_gap: s from the request to the first
    and last piece, and the longest wait between two (None: a single piece). read: its list at each token of the prompt,
    if requested. drafts: see `Completed.drafts`. margins: see `margins_told`; () if one is not reported.
    thought_tokens: as the server counts them, else None. models: the names that the server gives; reply: see
    `Completion`. pieces: their number, with empty ones. spelled: text and log-prob of each token; () unless all come.
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
    models: tuple[str, ...] = ()
    reply: str = ""
    pieces: int = 1
    spelled: tuple[tuple[str, float], ...] = ()

    @property
    def content(self) -> tuple[int | None, str, str, tuple[tuple[str, str], ...]]:
        """Its number of tokens, its thought, its text and its calls."""
        return self.completion_tokens, self.thought, self.text, self.calls


def _word(finish: str | None) -> str:
    """Normalize a finish reason to `FINISH_WORDS`: some servers write STOP, FINISH_REASON_STOP or tool-calls."""
    return (finish or "").lower().removeprefix("finish_reason_").replace("-", "_")


@dataclass(slots=True)
class _Call:
    """A tool call under way. place: its index; id: "" or None if the server gives none."""

    place: int
    id: Any
    name: str
    arguments: list[str]

    def is_another(self, id: Any, arguments: str) -> bool:
        """Return whether a part with a name at the same index begins another call: some servers number all of them 0.
        It does if the id changes, or if other arguments follow complete ones."""
        gathered = "".join(self.arguments)
        if id and self.id and id != self.id:
            return not gathered or is_json(gathered)
        return arguments.lstrip()[:1] == "{" and is_json(gathered) and (arguments != gathered or not id)


@dataclass(slots=True)
class Gathering:
    """An answer under way. `take` each piece as it comes, with its time; then `answer`."""

    _texts: list[str] = field(default_factory=list)
    _thoughts: list[str] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _ids: list[int] | None = None
    _logprobs: list[float] = field(default_factory=list)
    _margins: list[float | None] = field(default_factory=list)
    _spelled: list[tuple[str, float]] = field(default_factory=list)
    _halved: bool = False
    _models: dict[str, None] = field(default_factory=dict)
    _id: str = ""
    _created: str = ""
    _other: Any = None  # sent in place of a piece of an answer
    _finish: str | None = None
    _always: bool = True  # every piece so far had a finish reason, as from some gateways
    _doubted: bool = False  # parts of one call may belong to two
    _answers: list[str] = field(default_factory=list)  # the id of each piece that has a time as well
    _counted: tuple[int | None, int | None] = (None, None)  # tokens of the prompt and the answer
    _thought: int | None = None  # tokens
    _times: list[float] = field(default_factory=list)
    _read: tuple[Mapping[str, Ranked] | None, ...] = ()
    _drafts: tuple[int, int] | None = None
    _pieces: int = 0
    _untold: int = 0  # pieces with a text and without its tokens

    def take(self, piece: Completed, seconds: float) -> None:
        """Add a whole answer, or the next piece. WireFault for an error under the status 200, for a piece of another
        answer, and for one behind the end."""
        if piece.fault is not None:
            raise reported(piece.fault)
        self._pieces += 1
        if piece.usage is not None:
            self._counted = piece.usage.prompt_tokens, piece.usage.completion_tokens
            self._thought = piece.usage.thought
        self._drafts = piece.drafts or self._drafts
        self._halved = self._halved or piece.halved
        if isinstance(piece.model, str) and piece.model:
            self._models[piece.model[:MOST_NAME]] = None
        if piece.gptcache is True:
            self._models[UNNAMED + FROM_CACHE] = None
        self._id, self._created = self._id or f"{piece.id or ''}", self._created or f"{piece.created or ''}"
        if not piece.choices:
            self._other = piece.otherwise or self._other
            return
        if len(piece.choices) != 1 or piece.choices[0].index != 0:
            raise WireFault("it sent several answers to one question")
        if piece.id and piece.created:
            self._answers.append(f"{piece.id}")
        self._take(piece.choices[0], seconds)

    @property
    def times(self) -> tuple[float, ...]:
        """Times of the pieces so far that were not empty."""
        return tuple(self._times)

    @property
    def doubt(self) -> Doubt:
        """Why its pieces may not be the answer, if no token ids prove it; "" for no doubt. See `doubt`."""
        if 1 < len(set(self._answers)) < len(self._answers):  # some servers give each piece an id of its own
            return MIXED
        if self._ids is not None:
            return ""
        has_content = any((*self._texts, *self._calls)) or ("".join(self._thoughts) and self._finish not in CALLED)
        count = (self._counted[1] or 0) - (self._thought or 0)
        if (self._finish in CALLED and not self._calls) or (not has_content and count > 1):
            return EMPTY
        cut = self._finish == "length"  # its last arguments are no JSON then
        arguments = () if cut else [call.arguments for call in self._calls]
        # SGLang streams the blanks between calls, each a piece of its own.
        texts = [] if self._calls and not "".join(self._texts).strip() else self._texts
        return REARRANGED if self._doubted or doubtful((texts, self._thoughts), arguments) else ""

    def _take(self, choice: Choice, seconds: float) -> None:
        """Take a piece of the stream, or a whole answer. seconds: since the request.

        WireFault if it follows the answer's end.

        A message behind its pieces that repeats the whole answer replaces them.
        """
        message = choice.message or choice.delta or Message()
        text = choice.text or message.content or ""
        thought = message.reasoning or message.reasoning_content or ""
        has_content = bool(text or thought or message.calls or choice.token_ids)
        self._always = self._always and choice.finish_reason is not None
        repeats = choice.message is not None and bool(self._times)  # the whole of it once more, behind its pieces
        if self._finish is not None and has_content and not self._always and not repeats:
            raise WireFault("it went on after the end of its answer")
        self._untold += bool(text) and not choice.token_ids
        if has_content:
            self._times.append(seconds)
        if repeats:
            self._replace(text, thought, message.calls, choice.token_ids)
        else:
            self._texts.append(text)
            self._thoughts.append(thought)
            for index, call in enumerate(message.calls):
                self._call(index if call.index is None or choice.message else call.index, call)
            if choice.token_ids is not None:
                self._ids = [*(self._ids or ()), *choice.token_ids]
        if choice.logprobs is not None:
            token_logprobs = choice.logprobs.token_logprobs or ()
            self._logprobs += [logprob for logprob in token_logprobs if logprob is not None]
            self._margins += margins_told(token_logprobs, choice.logprobs.top_logprobs)
            self._spelled += spelled(choice.logprobs)
        self._read = self._read or tuple(choice.prompt_logprobs or ())
        if self._finish is None or FINISH_WORDS.get(self._finish, "stop") in ("eos", "stop"):
            self._finish = _word(choice.finish_reason) or self._finish  # where pieces differ, one that is cut is cut

    def _replace(self, text: str, thought: str, calls: Sequence[ToolCall], ids: Sequence[int] | None) -> None:
        """Replace the pieces by a message that repeats and may extend them. WireFault for one that differs."""
        for pieces, whole in ((self._texts, text), (self._thoughts, thought)):
            so_far = "".join(pieces)
            if whole.startswith(so_far):
                pieces[:] = [whole]
            elif whole and whole.strip() != so_far.strip():
                raise WireFault("a message within its stream is another than the pieces before it")
        if len(calls) >= len(self._calls):
            self._calls = []
            for index, call in enumerate(calls):
                self._call(index, call)
        elif calls:
            raise WireFault("a message within its stream has fewer tool calls than the pieces before it")
        if ids is not None:
            self._ids, self._logprobs, self._margins, self._spelled = list(ids), [], [], []

    def _call(self, place: int, part: ToolCall) -> None:
        """Take a tool call, or a piece of one. place: its number in the answer.

        A name begins a new call unless it repeats the open call's. WireFault for arguments without a name, and for two
        names.
        """
        name, arguments = part.function.name, part.function.arguments or ""
        open_call = next((call for call in reversed(self._calls) if call.place == place), None)
        if open_call is None or (name and open_call.is_another(part.id, arguments)):
            if not (name or arguments):
                return
            if not name:
                raise WireFault("it sent a tool call's arguments before its name")
            repeated_name = open_call is not None and name == open_call.name and not any(open_call.arguments)
            self._doubted = self._doubted or (repeated_name and bool(arguments))
            self._calls.append(_Call(place=place, id=part.id, name=name, arguments=[arguments]))
            return
        if name and name != open_call.name:
            raise WireFault("it gave one tool call two names")
        open_call.arguments.append(arguments)

    def _reply(self) -> str:
        """Return the reply's hash, over its whole texts, since a cache that streams may cut them into other pieces."""
        random_part = self._id.partition("-")[2] or self._id
        is_short = len(random_part) < LONG_ID or len(set(random_part)) < LETTERS
        if not self._id or (is_short and not self._created):
            return ""
        called = [[call.name, "".join(call.arguments)] for call in self._calls]
        texts = ["".join(self._texts).strip(), "".join(self._thoughts).strip()]
        digest = content_hash([self._id, self._created if is_short else "", texts, called])
        return content_hash(self._id)[:8] + digest[:12] + SHORT_ID * is_short

    def _joined(self, pieces: list[str]) -> str:
        return made_whole("".join(pieces)) if self._halved else "".join(pieces)

    def answer(self, seconds: float, *, done: bool = True) -> Answer:
        """Return the whole answer. seconds: when it ended; done: whether its stream declared the end. WireFault if it
        has no end, or not as many tokens as it counts."""
        if self._finish is None:
            has_pieces = self._times or self._texts
            other_fields = f": {json.dumps(self._other, default=str)}" if self._other else ""
            message = "its answer broke off before its end" if has_pieces else "it sent no answer (`choices` is empty)"
            raise WireFault(message + other_fields)
        if self._finish not in FINISH_WORDS:
            raise WireFault(f"it ended its answer by an unknown word: {self._finish!r:.40}")
        if self._always and self._pieces > 1 and not done and self._counted == (None, None):
            raise WireFault("each of its pieces says that it is the last, and its stream broke off before [DONE]")
        prompt_tokens, completion_tokens = self._counted
        # One text may come behind its tokens, held back until it was whole.
        if self._ids is not None and (self._untold > 1 or (self._untold and not self._ids)):
            raise WireFault("it told the tokens of a part of its answer alone")
        if self._ids is not None and completion_tokens is not None and len(self._ids) != completion_tokens:
            raise WireFault(
                f"it told {len(self._ids)} tokens and counted {completion_tokens}: a piece was lost, or came twice"
            )
        calls = sorted(self._calls, key=lambda call: call.place)
        margins = [margin for margin in self._margins if margin is not None]
        gaps = [after - before for before, after in zip(self._times, self._times[1:], strict=False)]
        return Answer(
            text=self._joined(self._texts),
            thought=self._joined(self._thoughts),
            calls=tuple((call.name, self._joined(call.arguments)) for call in calls),
            finish=FINISH_WORDS[self._finish],
            token_ids=None if self._ids is None else tuple(self._ids),
            logprobs=tuple(self._logprobs) if self._ids is not None and len(self._logprobs) == len(self._ids) else (),
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            thought_tokens=self._thought,
            first=self._times[0] if self._times else seconds,
            last=self._times[-1] if self._times else seconds,
            max_gap=max(gaps, default=None),
            read=self._read,
            drafts=self._drafts,
            models=tuple(self._models),
            reply=self._reply(),
            pieces=self._pieces,
            # Some servers give the log-prob of the token that ends an answer, some do not.
            spelled=tuple(self._spelled) if completion_tokens in (len(self._spelled), len(self._spelled) + 1) else (),
            margins=tuple(margins) if self._ids is not None and len(margins) == len(self._ids) else (),
        )
