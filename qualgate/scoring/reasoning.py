"""Split a text into thought and answer, by the way that a case declares.

The ways of `reasoning_forms` write the thought before the answer, between two markers:

- The thought begins with the opening marker, where that is the first thing said. Where the prompt ended in the marker
  (`think_opened`, …, or a case whose own `prompt` does), it begins with the text.
- It ends at the first closing marker, as vLLM's and SGLang's parsers have it. What is nested in it ends there too.
- Further thoughts right behind it, with only blanks between, are thoughts as well: `<think>a</think><think>b</think>`.
- Without an opening marker, the text before a closing one is the thought, since the prompt may have opened it; unless
  the whole text is one JSON value, with the markers in its strings, or no prompt of that form opens thoughts.
- Without a closing marker, a thought that began never ends and there is no answer; without either, all is the answer.
- A marker right between two quotes of one kind (", ' or `) is only mentioned, if the first quote opens: it is at the
  beginning of the text or of the thought, or behind a blank or one of ( [ { , : =
- Blanks between the thought and the answer belong to neither; the indentation of the answer's first line stays.
- Wraps of the answer alone (`<answer>`, Kimi K3's response) are removed, unless a call stands beside them.

`harmony` and `inkling` are messages: those of the channel `analysis` without a recipient, or of the kind `thinking`,
are the thought, the others the answer; where one of them is a call, they stay as they are written, for the dialect to
read. A message ends with its end marker alone.

The split depends on the text alone: nothing else is stored. `VERSION` is part of the scorer's, so scores of another
split are never compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Literal

from qualgate.records import NO_REASONING
from qualgate.records.identity import sha256_text
from qualgate.scoring import strict_json
from qualgate.scoring.outcome import actual
from qualgate.scoring.reasoning_forms import FORMS, Form, told_by

VERSION = "reasoning/3"
NONE, AUTO = NO_REASONING, "auto"  # auto: taken from the baseline's chat template, when a run is planned
# Markers of thoughts that other families write, which no way reads: Kimi-VL, Sky-T1, Skywork, MedGemma.
UNREAD = ("\u25c1think\u25b7", "<|begin_of_thought|>", "<thought>", "<reasoning>", "<unused94>")
UNTOLD = "`reasoning: auto` is told by a chat template, and there is none here: name the way (think, harmony, seed, …)"
OPENED = "_opened"  # of a way: the prompt ended in the opening marker
HARMONY, INKLING = "harmony", "inkling"
WAYS = (
    *FORMS, *(name + OPENED for name, form in FORMS.items() if form.prompted), HARMONY, INKLING, INKLING + OPENED, NONE,
)  # fmt: skip

NAMES = tuple(way for way in WAYS if not way.endswith(OPENED))

MOST_THOUGHTS = 16  # one behind the other; what follows them is the answer
_BLANK = re.compile(r"\s*")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"(?:^|[\s>])to=\S")
_MESSAGE_END = re.compile(r"<\|(?:end|call|return)\|>")
THINKING = "<|content_thinking|>"
_KIND = re.compile(r"<\|content_(thinking|text|invoke_tool_json|invoke_tool_text|tool_error)\|>")
_BLOCK_END = re.compile(r"<\|(?:end_message|content_model_end_sampling)\|>")
_OF_INKLING = re.compile(rf"{_KIND.pattern}|{_BLOCK_END.pattern}|<\|message_model\|>")
_OF_HARMONY = re.compile(r"<\|(?:start|channel|message|constrain|end|call|return)\|>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A text split into thought and answer. state: no thought, one that ended, or one that never did. leaked: the first
    marker in the answer. spans: of the thoughts without their markers, [first character, behind the last)."""

    thought: str
    answer: str
    state: Literal["none", "ended", "open"]
    leaked: str = ""
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def hashes(self) -> tuple[str, str]:
        """sha256 of the thought and of the answer, each by itself."""
        return sha256_text(self.thought), sha256_text(self.answer)


def split(text: str, way: str, prompt: str = "") -> Said:
    """`text` as `way`, one of WAYS, has it. prompt: the raw text before it, where that is known; it may end in the
    opening marker. Linear in the text; never raises for any text."""
    if way == NONE:
        return Said(thought="", answer=text, state="none")
    name, opened = way.removesuffix(OPENED), way.endswith(OPENED)
    if name == HARMONY:
        return _messages(text, _MESSAGE_END, _harmony, _OF_HARMONY)
    if name == INKLING:
        return _messages(text, _BLOCK_END, _inkling(opened or prompt.rstrip().endswith(THINKING)), _OF_INKLING)
    return _tagged(text, FORMS[name], opened or FORMS[name].opened_by(prompt))


def apart(body: Mapping[str, Any], text: str) -> Said:
    """`text` as an answer to this case is split; without `reasoning`, all of it is the answer."""
    return split(text, body.get("reasoning", NONE), body.get("prompt") or "")


def way_of(body: Mapping[str, Any]) -> str:
    """The way by which `apart` splits an answer to this case, without the case: its prompt may have opened the thought;
    NONE of a case that has no `reasoning`, or one that is not told yet."""
    way, prompt = body.get("reasoning", NONE), body.get("prompt") or ""
    if way == AUTO:
        return NONE
    opens = prompt.rstrip().endswith(THINKING) if way == INKLING else way in FORMS and FORMS[way].opened_by(prompt)
    return way + OPENED if opens else way


def written(thought: str, answer: str, calls: str, way: str) -> str:
    """Join a thought and its answer as a model of this `way` writes them. A thought with nothing behind it stays open.
    calls: in the dialect's own form."""
    if way == NONE or not thought:
        return answer + calls
    if way == HARMONY:
        final = f"final<|message|>{answer}" if answer else ""
        parts = (f"<|channel|>analysis<|message|>{thought}", f"<|channel|>{final}" if final else "", calls)
        return "<|end|><|start|>assistant".join(part for part in parts if part)
    if way.removesuffix(OPENED) == INKLING:
        final = f"<|message_model|><|content_text|>{answer}<|end_message|>" if answer else ""
        return f"{THINKING}{thought}<|end_message|>{final}{calls}" if answer or calls else THINKING + thought
    form = FORMS[way.removesuffix(OPENED)]
    return f"{form.opening}{thought}{form.closing}\n\n{answer}{calls}" if answer or calls else form.opening + thought


def parted(before: Said, after: Said) -> Literal["thought", "answer", ""]:
    """Return which part of two texts differs first; "" if they are equal."""
    if (before.thought, before.state) != (after.thought, after.state):
        return "thought"
    return "answer" if before.answer != after.answer else ""


def behind(version: str, way: str) -> str:
    """Return a scorer's version for answers without their thoughts."""
    return version if way == NONE else f"{version} {VERSION} {way}"


def today(scorer: str, version: str) -> str:
    """Return `version` with the way of thinking that the stored `scorer` names."""
    way = scorer.rpartition(" ")[2]
    return behind(version, way) if version and way in WAYS and " reasoning/" in scorer else version


def faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a case's `reasoning`."""
    if body.get("reasoning", NONE) not in (*WAYS, AUTO):
        yield f"`reasoning` must be one of {', '.join((*NAMES, AUTO))}, or NAME_opened; {actual(body, 'reasoning')}"


def of_template(prompt: str, template: str) -> tuple[str, str]:
    """Return the way that a chat template teaches, and the evidence; AUTO if it writes thoughts in none of WAYS.

    prompt: a chat that it rendered, up to the model's turn; template: its text.
    """
    if "<|channel|>" in template and "<|message|>" in template:
        return HARMONY, "its template writes <|channel|> and <|message|>"
    if THINKING in template:
        opens = prompt.rstrip().endswith(THINKING)
        return INKLING + OPENED * opens, f"its template {'ends a prompt in' if opens else 'writes'} {THINKING}"
    if recognized := told_by(prompt, template):
        name, opens, mark = recognized
        return name + OPENED * opens, f"its template {'ends a prompt in' if opens else 'writes'} {mark}"
    if unread := next((marker for marker in UNREAD if marker in template), ""):
        return AUTO, f"its template writes {unread}, a thought that no way reads"
    return NONE, "its template writes no marker of a thought"


def _tagged(text: str, form: Form, opened: bool) -> Said:
    """Split a text whose thoughts stand between a form's markers. opened: the prompt began a thought.

    Without an end marker the text is one open thought if it begins as one, else all answer.
    """
    first = len(text) - len(text.lstrip())
    begun = re.compile(form.begins).match(text, first)
    start = begun.end() if begun else 0
    after_opening = text[start:]
    end = next(_unquoted(after_opening, form.ends), None)
    in_thought = begun is not None or opened
    if end is None or (not in_thought and (not form.prompted or _is_json(text))):
        if in_thought:
            return Said(thought=after_opening, answer="", state="open", spans=((start, len(text)),))
        answer = form.unwrapped(text)
        return Said(thought="", answer=answer, state="none", leaked=_leak(answer, form.begins, form.ends))
    spans, position = [(start, start + end.start())], start + end.end()
    while len(spans) < MOST_THOUGHTS and (next_start := _next_thought(text, position, form)):
        if (end := next(_unquoted(text[next_start:], form.ends), None)) is None:
            spans.append((next_start, len(text)))
            return Said(thought=_joined(text, spans), answer="", state="open", spans=tuple(spans))
        spans.append((next_start, next_start + end.start()))
        position = next_start + end.end()
    answer = form.unwrapped(_without_blank(text[position:]))
    leak = _leak(answer, form.begins, form.ends)
    return Said(thought=_joined(text, spans), answer=answer, state="ended", leaked=leak, spans=tuple(spans))


def _next_thought(text: str, position: int, form: Form) -> int | None:
    """Return where another thought's text begins, if only blanks separate it from `place`."""
    blank = _BLANK.match(text, position)
    begun = re.compile(form.begins).match(text, blank.end() if blank else position)
    return begun.end() if begun else None


def _joined(text: str, spans: list[tuple[int, int]]) -> str:
    return "\n".join(text[first:last] for first, last in spans)


def _without_blank(text: str) -> str:
    """Without the blank lines that it begins with; the indentation behind them stays, that of the marker's line not."""
    remainder = text.lstrip()
    blank = text[: len(text) - len(remainder)]
    return blank[blank.rfind("\n") + 1 :] + remainder if remainder and "\n" in blank else remainder


@cache
def _pattern(marker: str) -> re.Pattern[str]:
    group = f"(?:{marker})"
    again = "(?P=escape)(?P=quote)"
    quoted = rf"(?<![^\s(\[{{,:=])(?P<escape>\\?)(?P<quote>[\"'`]){group}{again}(?!{again})"
    return re.compile(f"{quoted}|{group}")


def _unquoted(text: str, marker: str) -> Iterator[re.Match[str]]:
    """Find the matches of the pattern `marker` that do not stand between quotes."""
    return (match for match in _pattern(marker).finditer(text) if match["quote"] is None)


def _leak(answer: str, *markers: str) -> str:
    """Return the first marker of a thought in an answer, "" for none. A JSON value holds markers only in strings."""
    places = [(match.start(), match[0].strip()) for marker in markers for match in islice(_unquoted(answer, marker), 1)]
    return min(places)[1] if places and not _is_json(answer) else ""


def _is_json(text: str) -> bool:
    try:
        strict_json.read(text)
    except strict_json.NotStrictJson:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Message:
    """One message: its kind and its content."""

    kind: Literal["thought", "call", "answer"]
    content: str


def _messages(text: str, ends: re.Pattern[str], read: Callable[[str, str], _Message], marks: re.Pattern[str]) -> Said:
    """Split a text of messages into thoughts and answer.

    ends: the markers that end a message. read: takes a message and its end marker. marks: markers that leak into an
    answer. An answer with calls keeps its markers.
    """
    thoughts: list[str] = []
    contents: list[str] = []  # of the other messages, and what is no message
    raw: list[str] = []  # the same as they are written
    spans: list[tuple[int, int]] = []
    calls, state, leaked, position = False, "none", "", 0
    for chunk, end in _chunks(text, ends):
        message = read(chunk, end)
        if message.kind == "thought":
            thoughts.append(message.content)
            spans.append((position + len(chunk) - len(message.content), position + len(chunk)))
            state = "ended" if end and state != "open" else "open"
        elif chunk.strip():
            calls |= message.kind == "call"
            contents.append(message.content)
            raw.append(chunk + end)
            if not leaked and (leak := marks.search(message.content)):
                leaked = leak[0]
        position += len(chunk) + len(end)
    answer = "".join(raw) if calls else "\n".join(contents)
    return Said(thought="\n".join(thoughts), answer=answer, state=state, leaked=leaked, spans=tuple(spans))


def _harmony(chunk: str, end: str) -> _Message:
    header, separator, content = chunk.partition("<|message|>")
    channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header) is not None
    if channel is not None and channel[1] == "analysis" and not recipient and (separator or not end):
        return _Message("thought", content)
    return _Message("call" if recipient and separator else "answer", content if separator else chunk)


def _inkling(opened: bool) -> Callable[[str, str], _Message]:
    """Return the reader of inkling's messages. opened: the prompt began a thought, which lasts up to the first end.

    The reader is good for one text: it uses up `opened` at the first message.
    """
    first = [opened]

    def read(chunk: str, end: str) -> _Message:
        kind, begins = _KIND.search(chunk), first.pop() if first else False
        if kind is None:
            return _Message(
                "thought" if begins else "answer", chunk if begins else chunk.replace("<|message_model|>", "")
            )
        content = chunk[kind.end() :]
        if kind[1] == "thinking":
            return _Message("thought", content)
        return _Message("call" if kind[1] == "invoke_tool_json" else "answer", content)

    return read


def _chunks(text: str, ends: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield each message without its end marker, and the marker ("" if the last has none)."""
    start = 0
    for end in ends.finditer(text):
        yield text[start : end.start()], end[0]
        start = end.end()
    if text[start:].strip():
        yield text[start:], ""
