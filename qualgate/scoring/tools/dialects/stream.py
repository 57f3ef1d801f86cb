"""Read calls from an answer as it grows, by one scanner that every dialect describes its grammar to.

An answer is content (prose, thinking, code fences) with blocks of calls in it. A dialect declares how a block begins
(`open`, or the first character of the whole answer: `anchors`), how it ends (`close`, or the end of the JSON or Python
value it holds), and whether blocks stand in a `frame`. Every decision depends only on the text before it, so an answer
gives the same calls whole or in any pieces; `Dialect.parse` is one piece. Offsets only grow: the time is linear in the
text, and in the number of pieces.

Markers are the grammar, also within a JSON string: a model that writes one into an argument has broken its own call.
(vLLM's and SGLang's regular expressions read on; models emit these markers as single tokens.) Where markers are plain
text to the model, a scanner of the dialect's own tells them from words by where they stand (`qwen`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from qualgate.scoring.outcome import quote
from qualgate.scoring.strict_json import MAX_DEPTH
from qualgate.scoring.tools.dialects.call import MAX_CALLS, BadCall, Call, Tools

THINK, UNTHINK, FENCE = "<think>", "</think>", "```"
SPECIAL = re.compile(r"<\|[^|<>\s]{1,60}\|>|<｜[^｜<>\s]{1,60}｜>|<(?:start|end)_of_turn>")
END_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|python_end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<|end|>",
    "<|END_OF_TURN_TOKEN|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "<|message_sep|>",
    "<|assistant_end|>",
    "<|plamo:tag|>",
    "</s>",
)
MOST_AMID = 64
MEANT_JSON = re.compile(r'"(?:arguments|parameters)"\s*:')

_WITHIN = re.compile(r'(?:[>=(\[\]]|":|[}\]"],)\s*\Z')  # before a value that is part of another, or of a foreign block
_SPACE = re.compile(r"\s*+")
_SEPARATOR = re.compile(r"[\s;]*+")  # Llama writes several calls with semicolons between them
_INFO = re.compile(r"[^\n]*+\n")
_BRACKET_OR_QUOTE = {quotes: re.compile(rf"[\[\]{{}}(){quotes}]") for quotes in ('"', "\"'")}
_END_OF_STRING = {quote: re.compile(rf"\\(?:.|\Z)|{quote}", re.DOTALL) for quote in "\"'"}


def _any_of(markers: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(markers, key=lambda marker: (-len(marker), marker)))))


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one family of models writes calls. Plain data and two functions; nothing is evaluated.

    read:    the text of one block, and the tools offered → its calls; BadCall when it cannot be read
    write:   calls → the text a model of this dialect would write; ValueError for what the dialect cannot express
    source:  the published template or parser it was checked against: repository, commit or release, path
    open:    markers that begin a block, wherever they stand in the answer
    close:   marker that ends it; without one, the block is the value that follows `open`
    frame:   pair of markers around all blocks, between which nothing but blocks may stand
    anchors: first characters of a value that is a call when it begins the answer, or follows the thinking
    amid:    how a value begins, in at most MOST_AMID characters, that is a call amid prose, too
    meant:   what the text of an anchored value holds when it means to call; another value is a plain answer
    named:   the value after `open` may be preceded by a name
    quotes:  what strings in a value are quoted with
    stray:   more markers of this dialect, which outside a block are leaks
    fenced:  calls in a code fence are calls
    thinks:  pair of markers around the thinking
    message: special tokens around messages, which may stand in an answer that calls
    """

    name: str
    source: str
    read: Callable[[str, Tools], Sequence[Call]]
    write: Callable[[Sequence[Call]], str]
    open: tuple[str, ...] = ()
    close: str = ""
    frame: tuple[str, str] | None = None
    anchors: str = ""
    amid: str = ""
    meant: re.Pattern[str] = MEANT_JSON
    named: bool = False
    quotes: str = '"'
    stray: tuple[str, ...] = ()
    fenced: bool = False
    thinks: tuple[str, str] = (THINK, UNTHINK)
    message: tuple[str, ...] = ()
    scanner: type[Stream] | None = None

    alone: str = field(init=False, repr=False, compare=False)
    begins: tuple[str, ...] = field(init=False, repr=False, compare=False)
    longest: int = field(init=False, repr=False, compare=False)
    landmarks: re.Pattern[str] = field(init=False, repr=False, compare=False)
    in_frame: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse markers of which one begins another, and derive what the scanner looks for: the opening marker of a
        grammar that has no more than open and close, what calls begin with, the most characters of a marker, and
        patterns of every marker and of those within a frame."""
        markers = {*self.open, self.close, *(self.frame or ()), *self.stray, *self.thinks, FENCE} - {""}
        if any(marker != other and other.startswith(marker) for marker in markers for other in markers):
            raise ValueError(f"{self.name}: a marker begins another, so a stream could not tell them apart")
        simple = len(self.open) == 1 and self.close and not (self.frame or self.stray or self.scanner or self.anchors)
        derived = {
            "alone": self.open[0] if simple else "",
            "begins": (self.frame[0],) if self.frame else self.open,
            "longest": max(*map(len, markers), MOST_AMID if self.amid else 0),
            "landmarks": re.compile("|".join((_any_of(markers).pattern, *((self.amid,) if self.amid else ())))),
            "in_frame": _any_of({*self.open, self.frame[1]} if self.frame else markers),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def parse(self, text: str, tools: Tools = ()) -> tuple[Call, ...]:
        """Return every call in `text`, in order; () for a plain answer. Raises nothing but BadCall."""
        if self.alone and text.startswith(self.alone) and text.endswith(self.close):
            body = text[len(self.alone) : -len(self.close)]
            if self.alone not in body and self.close not in body:
                return tuple(self.calls_of(body, tools, 1))  # one call and nothing else: no need to scan
        stream = self.stream(tools)
        stream.feed(text)
        stream.close()
        return tuple(stream.calls)

    def calls_of(self, body: str, tools: Tools, number: int) -> Sequence[Call]:
        """Return the calls of one block, of which the first is call `number` of the answer."""
        try:
            calls = self.read(body, tools)
        except BadCall as error:
            raise BadCall(error.error_type, f"call {number}: {error}") from None
        for call in calls:
            if not call.name:
                raise BadCall("call_shape", f"call {number}: the name is empty")
            if "<" in call.name and (leak := SPECIAL.search(call.name)):
                raise BadCall("leaked_token", f"call {number}: {leak[0]} in the name")
        if number + len(calls) > MAX_CALLS + 1:
            raise BadCall("too_many_calls", f"more than {MAX_CALLS} calls")
        return calls

    def stream(self, tools: Tools = ()) -> Stream:
        """Return a reader of one answer, to be fed piece by piece."""
        return (self.scanner or Stream)(self, tools)

    def serialise(self, calls: Sequence[Call]) -> str:
        """Write these calls, for tests that a dialect reads what it writes; no calls: no text.

        ValueError for what the dialect cannot express.
        """
        return self.write(calls) if calls else ""


class Stream:
    """One answer, piece by piece. After a BadCall it is over: the text cannot be read."""

    def __init__(self, dialect: Dialect, tools: Tools) -> None:
        self.dialect, self.tools = dialect, tools
        self.calls: list[Call] = []
        self.text = ""
        self._pieces: list[str] = []  # content between blocks
        self._kept = 0  # up to here, text is in a piece or in a block
        self._seek = 0  # up to here, text was looked at
        self._start = 0  # of the block we are in
        self._depth, self._quote = 0, ""  # of the value we are in
        self._anchored = False  # that value has no marker
        self._amid = False  # nor does it begin the answer
        self._behind = False  # nothing but a separator is between it and a call
        self._framed = 0  # calls there were when the frame began
        self._thinking = self._fenced = False
        self._ignored = ""  # error type of calls seen where none counts
        self._state: Callable[[], bool] = self._anchor if dialect.anchors else self._outside

    @property
    def content(self) -> str:
        """Text that is certainly no call so far; after `close`, all text outside blocks and frames."""
        return "".join(self._pieces)

    def feed(self, piece: str) -> tuple[Call, ...]:
        """Return the calls that `piece` completes."""
        before = len(self.calls)
        # CPython extends a string in place while only one name holds it; an attribute would be copied each time.
        text, self.text = self.text, ""
        text += piece
        self.text = text
        del text
        while self._state():
            pass
        return tuple(self.calls[before:])

    def close(self) -> tuple[Call, ...]:
        """End the text; return the calls that its end completes. BadCall for open blocks, and if no call counts."""
        before = len(self.calls)
        self._finish()
        self._keep(len(self.text))
        if self._ignored and not self.calls:
            where = "a code fence" if self._ignored == "call_in_fence" else "the thinking"
            raise BadCall(self._ignored, f"calls stand in {where} alone")
        if self.calls and self._pieces:
            self._refuse_leaks()
        return tuple(self.calls[before:])

    def _finish(self) -> None:
        """Raise BadCall for a call or block that the end of the text leaves open."""
        if self._state in (self._outside, self._anchor, self._info):
            return
        remainder = self.text[self._start :]
        if self._anchored and not self._behind and not self.dialect.meant.search(remainder):
            return
        if sum(remainder.count(marker) for marker in self.dialect.open) >= MAX_CALLS:
            raise BadCall("too_many_calls", f"more than {MAX_CALLS} calls")
        if self._quote:
            raise BadCall("unbalanced_quotes", f"call {len(self.calls) + 1} ends inside a string")
        open_part = "the block of calls" if self._state == self._between else f"call {len(self.calls) + 1}"
        raise BadCall("unbalanced", f"{open_part} is not closed")

    def _refuse_leaks(self) -> None:
        """Raise BadCall for special tokens in the content of an answer with calls; end-of-turn tokens may end it."""
        content = self.content
        for token in (*self.dialect.message, *self.dialect.thinks):
            content = content.replace(token, "")
        end = len(content.rstrip())
        while content.endswith(END_OF_TURN, 0, end):
            end = content.rfind("<", 0, end)
            while end and content[end - 1].isspace():
                end -= 1
        if "<" in content and (leak := SPECIAL.search(content, 0, end)):
            raise BadCall("leaked_token", f"{leak[0]} in the answer")

    @property
    def _muted(self) -> str:
        """Error type of a call that begins here, within a fence or a thought; "" elsewhere."""
        fenced = self._fenced and not self.dialect.fenced
        return "call_in_think" if self._thinking else "call_in_fence" if fenced else ""

    def _keep(self, end: int) -> None:
        if end > self._kept:
            self._pieces.append(self.text[self._kept : end])
            self._kept = end

    def _take(self, body: str) -> None:
        self.calls.extend(self.dialect.calls_of(body, self.tools, len(self.calls) + 1))

    # A state reads on from _seek and returns whether it reached its end; if not, it waits for more text.

    def _outside(self) -> bool:
        """State outside of calls: go on to the next marker. Like every state, False asks for more text."""
        dialect = self.dialect
        landmark = dialect.landmarks.search(self.text, self._seek)
        if not landmark:
            # The last characters may begin a marker.
            self._seek = max(self._seek, len(self.text) - dialect.longest + 1)
            self._keep(self._seek)
            return False
        marker = landmark[0]
        if (words := self._words(marker, landmark.start())) is None:
            self._seek = landmark.start()
            self._keep(self._seek)
            return False
        self._seek = landmark.end()
        if words:
            return True
        if dialect.amid and marker[0] in dialect.anchors:
            self._keep(landmark.start())
            self._start, self._anchored, self._amid, self._behind = landmark.start(), True, True, False
            return self._begin_value(self._start)
        if marker in dialect.begins:
            if self._muted:
                self._ignored = self._muted
                return True
            self._keep(landmark.start())
            self._start = self._seek - (marker[-1] in "[{")  # such a marker ends with the value's first character
            self._anchored, self._framed = False, len(self.calls)
            self._state = self._between if dialect.frame else self._inside if dialect.close else self._header
        elif marker == dialect.thinks[0]:
            self._thinking, self._state = True, self._next
        elif marker == dialect.thinks[1]:
            if self.calls and not self._thinking and marker not in dialect.message:
                raise BadCall("call_in_think", "thinking ends after a call")
            self._thinking, self._fenced, self._state = False, False, self._next
        elif marker == FENCE:
            if not self._thinking:
                self._fenced = not self._fenced
                self._state = self._info if self._fenced and dialect.anchors else self._outside
        elif not self._muted:
            if marker == dialect.close or marker in (dialect.frame or ()):
                raise BadCall("unbalanced", f"{marker} without {dialect.begins[0]}")
            raise BadCall("leaked_token", f"{marker} outside of a call")
        return True

    def _words(self, marker: str, start: int) -> bool | None:
        """Return whether the marker at `start` is only a word of the prose; None if more text is needed to tell."""
        at = max(0, start - MOST_AMID)
        mine = bool(self.dialect.amid) and marker[0] in self.dialect.anchors
        return mine and _WITHIN.search(self.text, at, start) is not None

    @property
    def _next(self) -> Callable[[], bool]:
        """Next state: an anchored dialect first looks for a call at the start."""
        return self._anchor if self.dialect.anchors else self._outside

    def _info(self) -> bool:
        """Skip the rest of the line that opens a code fence."""
        line = _INFO.match(self.text, self._seek)
        if not line:
            return False
        self._seek, self._state = line.end(), self._anchor
        return True

    def _anchor(self) -> bool:
        """State where a value may be a call although no marker begins it."""
        start = _SEPARATOR.match(self.text, self._seek).end()  # pyrefly: ignore[missing-attribute]
        if start == len(self.text):
            return False
        marked = self._marked(start)
        if marked is None:
            return False
        if marked or self.text[start] not in self.dialect.anchors:
            self._state, self._behind = self._outside, False
            return True
        self._keep(start)
        self._anchored, self._amid = True, False
        self._start = start
        return self._begin_value(start)

    def _marked(self, start: int) -> bool | None:
        """Return whether a block with a marker that looks like a value opens there; None if more text is needed."""
        rest = self.text[start : start + self.dialect.longest]
        if rest.startswith(self.dialect.open):
            return True
        return None if any(marker.startswith(rest) for marker in self.dialect.open) else False

    def _between(self) -> bool:
        """State within a frame, before a block or the frame's end. BadCall for other text there."""
        dialect = self.dialect
        start = _SPACE.match(self.text, self._seek).end()  # pyrefly: ignore[missing-attribute]
        self._seek = start
        if match := dialect.in_frame.match(self.text, start):
            self._seek = self._start = match.end()
            if match[0] in dialect.open:
                self._state = self._inside if dialect.close else self._header
                return True
            if len(self.calls) == self._framed:
                raise BadCall("call_shape", f"no call before {match[0]}")
            self._kept = self._seek
            self._state = self._outside
            return True
        possible = (*dialect.open, dialect.frame[1])  # pyrefly: ignore[unsupported-operation]
        for end in range(start, len(self.text) + 1):
            if not any(marker.startswith(self.text[start:end]) for marker in possible):
                raise BadCall("stray_text", f"{quote(self.text[start:end])} between calls")
        return False

    def _inside(self) -> bool:
        """State within a block that a marker closes. BadCall if another one begins in it."""
        dialect = self.dialect
        end = self.text.find(dialect.close, self._seek)
        if end < 0:
            self._seek = max(self._start, len(self.text) - len(dialect.close) + 1)
            return False
        body = self.text[self._start : end]
        if any(marker in body for marker in dialect.open):
            raise BadCall("unbalanced", f"call {len(self.calls) + 1} is not closed")
        self._take(body)
        self._kept = self._seek = end + len(dialect.close)
        self._state = self._between if dialect.frame else self._outside
        return True

    def _header(self) -> bool:
        """State between a marker and its value, where a name may stand."""
        start = _SPACE.match(self.text, self._start).end()  # pyrefly: ignore[missing-attribute]
        if start == len(self.text):
            return False
        if self.text[start] not in "[{":
            if not self.dialect.named:
                raise BadCall("call_shape", f"call {len(self.calls) + 1} is no JSON object or list")
            start = self.text.find("{", max(start, self._seek))
            if start < 0:
                self._seek = len(self.text)
                return False
        return self._begin_value(start)

    def _begin_value(self, start: int) -> bool:
        self._seek, self._depth, self._quote, self._state = start, 0, "", self._value
        return True

    def _value(self) -> bool:
        """State within a value: count its brackets outside of strings, up to its end."""
        text, brackets = self.text, _BRACKET_OR_QUOTE[self.dialect.quotes]
        while True:
            pattern = _END_OF_STRING[self._quote] if self._quote else brackets
            match = pattern.search(text, self._seek)
            if not match:
                self._seek = len(text)
                return False
            token = match[0]
            if token == "\\":  # the escaped character is yet to come
                self._seek = match.start()
                return False
            self._seek = match.end()
            if self._quote:
                self._quote = "" if token == self._quote else self._quote
            elif token in self.dialect.quotes:
                self._quote = token
            elif token in "[{(":
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    return self._too_deep()
            else:
                self._depth -= 1
                if self._depth == 0:
                    return self._end_value()

    def _too_deep(self) -> bool:
        if self._anchored and not self.dialect.meant.search(self.text, self._start, self._seek):
            self._state = self._outside
            return True
        raise BadCall("too_deep", f"call {len(self.calls) + 1}: more than {MAX_DEPTH} levels of nesting")

    def _end_value(self) -> bool:
        """Take the value that has ended. Without a marker, one that is no call is prose and is skipped."""
        body = self.text[self._start : self._seek]
        if self._anchored:
            if not self._behind and not self.dialect.meant.search(body):
                self._state = self._outside
                return True
            if self._muted:
                self._ignored, self._state = self._muted, self._outside
                return True
        try:
            self._take(body)
        except BadCall as error:
            if not self._amid or error.error_type != "call_shape":
                raise
            self._state = self._outside  # an object that is no call, as prose may quote one
            return True
        self._kept = self._seek
        self._state, self._behind = self._next, self._anchored
        return True
