"""Texts with thoughts, nested, quoted and broken, split by us and by an oracle that walks them character by character.

The oracle is written from the definition in `qualgate.scoring.reasoning`, without its patterns. Some texts are planted:
what they were put together from is the truth for both. Of those, verdicts with the thought and without it are compared.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from qualgate.records import Case, Evalset
from qualgate.scoring import score
from qualgate.scoring.reasoning import Said, split
from tests.verification.references.agreement import Tally

Split = tuple[str, str, str]  # thought, answer, state
# By way: how its opening and its closing marker may be spelled, the plain one first. *: a checkpoint's part.
TAGS = {
    "think": (["<think>"], ["</think>"]),
    "think_answer": (["<think>"], ["</think>"]),
    "seed": (["<seed:think>"], ["</seed:think>"]),
    "mistral": (["[THINK]"], ["[/THINK]"]),
    "cohere": (["<|START_THINKING|>"], ["<|END_THINKING|>"]),
    "minimax_m3": (["<mm:think>"], ["</mm:think>"]),
    "longcat": (["<longcat_think>"], ["</longcat_think>"]),
    "apertus": (["<|inner_prefix|>"], ["<|inner_suffix|>"]),
    "gemma4": (["<|channel>thought\n", "<|channel>"], ["<channel|>"]),
    "kimi_k3": (["<|open|>think<|sep|>"], ["<|close|>think<|sep|>"]),
    "plamo3": (["<|plamo:begin_think:plamo|>"], ["<|plamo:end_think:plamo|>"]),
    "k2_horizon": (["<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"],
                   ["</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"]),
    "hunyuan": (["<think:*>"], ["</think:*>"]),
    "granite": (["Here is my thought process:", "Here's my thought process:"],
                ["Here is my response:", "Here's my response:"]),
}  # fmt: skip
# What may stand around an answer; and with what in it, it stays as it is.
AROUND = {
    "think_answer": [("<answer>", "</answer>"), ("<response>", "</response>")],
    "cohere": [("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")],
    "kimi_k3": [("<|open|>response<|sep|>", "<|close|>response<|sep|>")],
}
CALLS = {"cohere": "<|START_ACTION|>", "kimi_k3": "<|open|>tools<|sep|>"}
FORMS = (*TAGS, "think_opened", "seed_opened", "gemma4_opened", "kimi_k3_opened", "harmony", "inkling",
         "inkling_opened", "none")  # fmt: skip
ENDS = ("<|end|>", "<|call|>", "<|return|>")
WORDS = ("so", "A", "18", "because", "{}", "(", ":", "=", "don't", "x < y", "<", "</", "\\", '"', "'", "`", "```", "\n",
         "\n\n", "    ", "\t", "\u3000", "\U0001f642", "\ud800", "to=", "analysis", "final")  # fmt: skip
BROKEN = ("<think", "think>", "</think", "< think>", "<THINK>", "<thinking>", "</seed>", "<|think|>", "<|channel|",
          "<||message|>", "<|End|>")  # fmt: skip
HARMONY = (*ENDS, "<|start|>", "<|start|>assistant", "<|channel|>", "<|message|>", "<|constrain|>json", "analysis",
           "<|channel|>analysis<|message|>", "<|channel|>final<|message|>", " to=functions.f",
           "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", "<|channel|>commentary<|message|>",
           "<|start|>assistant<|channel|>final<|message|>", "<|start|>assistant to=functions.f<|channel|>commentary"
           "<|message|>")  # fmt: skip
KINDS = ("thinking", "text", "invoke_tool_json", "invoke_tool_text", "tool_error")
INKLING = (*(f"<|content_{kind}|>" for kind in KINDS), "<|end_message|>", "<|content_model_end_sampling|>",
           "<|end_message|><|message_model|>", "<|content_thinking|>", "<|content_text|>")  # fmt: skip


def oracle(text: str, way: str) -> Split:
    """Thought, answer and state by the definition."""
    if way == "none":
        return "", text, "none"
    if way == "harmony":
        return _messages(text)
    name = way.removesuffix("_opened")
    if name == "inkling":
        return _blocks(text, way != name)
    openings, closings = TAGS[name]
    first = 0
    while first < len(text) and text[first].isspace():
        first += 1
    began = max(_length(text, first, one) for one in openings)
    if name == "gemma4" and text[first:] == "<|channel>thought":
        began = len(text) - first
    at = first + began if began else 0
    sure = began > 0 or way.endswith("_opened")
    ends = [place for place in range(at, len(text)) if any(_is_marker(text[at:], place - at, one) for one in closings)]
    if not sure and (not ends or _json(text) or name == "granite"):
        return "", _inside(text, name), "none"
    if not ends:
        return text[at:], "", "open"
    behind = ends[0] + max(_length(text, ends[0], one) for one in closings)
    thoughts = [text[at : ends[0]]]
    while len(thoughts) < 16:
        next_one = behind
        while next_one < len(text) and text[next_one].isspace():
            next_one += 1
        began = max(_length(text, next_one, one) for one in openings)
        if name == "gemma4" and text[next_one:] == "<|channel>thought":
            began = len(text) - next_one
        if not began:
            break
        at = next_one + began
        ends = [place for place in range(at, len(text)) if any(_is_marker(text[at:], place - at, m) for m in closings)]
        thoughts.append(text[at : ends[0]] if ends else text[at:])
        if not ends:
            return "\n".join(thoughts), "", "open"
        behind = ends[0] + max(_length(text, ends[0], one) for one in closings)
    return "\n".join(thoughts), _inside(_unblanked(text[behind:]), name), "ended"


def _length(text: str, place: int, marker: str) -> int:
    """How long the marker is that stands there; 0 for none."""
    head, part, tail = marker.partition("*")
    if text[place : place + len(head)] != head:
        return 0
    end = place + len(head)
    while part and end < len(text) and not text[end].isspace() and text[end] not in "<>":
        end += 1
    named = not part or end > place + len(head)
    return end + len(tail) - place if named and text[end : end + len(tail)] == tail else 0


def _inside(answer: str, name: str) -> str:
    """Without what stands around it."""
    if name in CALLS and CALLS[name] in answer:
        return answer
    for begin, end in AROUND.get(name, ()):
        bare = answer.lstrip()
        begun = bare[: len(begin)] == begin
        inner = bare[len(begin) :] if begun else answer
        marks = [place for place in range(len(inner)) if inner[place : place + len(end)] == end]
        if marks and not inner[marks[-1] + len(end) :].strip():
            inner = inner[: marks[-1]]
        else:
            free = [place for place in marks if not _is_quoted(inner, place, place + len(end))]
            if not free and not begun:
                continue
            inner = inner[: free[0]] if free else inner
        inner = inner[1:] if inner[:1] == "\n" else inner
        return inner[:-1] if inner[-1:] == "\n" else inner
    return answer


def _is_quoted(text: str, place: int, behind: int) -> bool:
    left, right = text[:place][-1:], text[behind:][:1]
    return left == right and left in ('"', "'", "`")


def _blocks(text: str, opened: bool) -> Split:
    """Inkling's: each up to its end."""
    rest, found = text, []
    ends = ("<|end_message|>", "<|content_model_end_sampling|>")
    while any(end in rest for end in ends):
        place, end = min((rest.index(end), end) for end in ends if end in rest)
        found.append((rest[:place], end))
        rest = rest[place + len(end) :]
    found += [(rest, "")] if rest.strip() else []
    thoughts, others, open_thought, calls = [], [], False, False
    for number, (said, end) in enumerate(found):
        marks = [(said.index(f"<|content_{kind}|>"), kind) for kind in KINDS if f"<|content_{kind}|>" in said]
        kind = min(marks)[1] if marks else ""
        content = said.split(f"<|content_{kind}|>", 1)[1] if kind else said
        if kind == "thinking" or (not kind and opened and number == 0):
            thoughts.append(content)
            open_thought |= not end
        elif said.strip():
            others.append((said + end, content if kind else content.replace("<|message_model|>", "")))
            calls |= kind == "invoke_tool_json"
    answer = "".join(raw for raw, _ in others) if calls else "\n".join(content for _, content in others)
    return "\n".join(thoughts), answer, "open" if open_thought else "ended" if thoughts else "none"


def _is_marker(text: str, place: int, marker: str) -> bool:
    length = _length(text, place, marker)
    if not length:
        return False
    before, behind = text[:place], text[place + length :]
    for quote in ("\\" + mark for mark in "\"'`"):
        for left in (quote, quote[1]):
            if before.endswith(left) and behind.startswith(left) and not behind.startswith(left + left):
                opens = before[: len(before) - len(left)]
                if not opens or opens[-1].isspace() or opens[-1] in "([{,:=":
                    return False
    return True


def _json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _unblanked(text: str) -> str:
    """Without its first blank lines; in the marker's own line, without blanks."""
    here, *lines = text.split("\n")
    if here.strip() or not lines:
        return text.lstrip()
    while lines and not lines[0].strip():
        lines.pop(0)
    return "\n".join(lines)


def _messages(text: str) -> Split:
    rest, found = text, []
    while any(end in rest for end in ENDS):
        place, end = min((rest.index(end), end) for end in ENDS if end in rest)
        found.append((rest[:place], end))
        rest = rest[place + len(end) :]
    found += [(rest, "")] if rest.strip() else []
    thoughts, others, open_thought, calls = [], [], False, False
    for said, end in found:
        head, mark, content = said.partition("<|message|>")
        asks = any(head[at : at + 3] == "to=" and head[at + 3 : at + 4].strip() and (at == 0 or head[at - 1].isspace()
                   or head[at - 1] == ">") for at in range(len(head)))  # fmt: skip
        if _channel(head) == "analysis" and not asks and (mark or not end):
            thoughts.append(content)
            open_thought |= not end
        elif said.strip():
            others.append((said + end, content if mark else said))
            calls |= asks and bool(mark)
    answer = "".join(raw for raw, _ in others) if calls else "\n".join(content for _, content in others)
    return "\n".join(thoughts), answer, "open" if open_thought else "ended" if thoughts else "none"


def _channel(head: str) -> str:
    """The word behind the first marker of a channel that has one."""
    for part in head.split("<|channel|>")[1:]:
        word = ""
        for character in part.lstrip():
            if not (character.isalnum() or character == "_"):
                break
            word += character
        if word:
            return word
    return ""


def made(draw: random.Random, way: str) -> str:
    """A text of up to 14 pieces; half of them begin as the form does."""
    name = way.removesuffix("_opened")
    tags = [one.replace("*", draw.choice(("6124c78e", "x"))) for part in TAGS.get(name, TAGS["think"]) for one in part]
    tags += [one for pair in AROUND.get(name, ()) for one in pair] + [one for key, one in CALLS.items() if key == name]
    others = ["<think>", "</think>", "<seed:think>", "</seed:think>", "[/THINK]", "</think:6124c78e>", "<channel|>"]
    quoted = [f"{q}{tag}{q}" for tag in (*others, *tags) for q in ('"', "'", "`", '\\"')]
    strings = [json.dumps({"a": f"{word}{tag}"}) for tag in tags for word in ("", "x")]
    kinds = [WORDS, WORDS, tags, quoted, BROKEN, others, strings]
    kinds += [HARMONY] * (4 if way == "harmony" else 1) + [INKLING] * (4 if name == "inkling" else 0)
    pieces = [draw.choice(draw.choice(kinds)) for _ in range(draw.choice((0, 1, 2, 3, 5, 8, 14)))]
    start = draw.choice(("", "", "\n", tags[0], "<|channel|>analysis<|message|>" if way == "harmony" else tags[0]))
    return start + draw.choice(("", "", " ", "\n")).join(pieces)


def planted(draw: random.Random, way: str) -> tuple[str, str, str]:
    """A text, and the thought and the answer that it was put together from."""
    thought = " ".join(draw.choice(("so", "18", "then {}", "(B)", "x < y", "don't")) for _ in range(draw.randint(1, 9)))
    answer = draw.choice(("18", "it is 18", "{}", "no", "    return 18", "Paris", "17"))
    if way == "none":
        return answer, "", answer
    if way == "harmony":
        text = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant<|channel|>final<|message|>{answer}"
        return text + draw.choice(("", "<|return|>")), thought, answer
    name = way.removesuffix("_opened")
    if name == "inkling":
        begin = "<|content_thinking|>" if way == name else ""
        return (
            f"{begin}{thought}<|end_message|><|message_model|><|content_text|>{answer}<|end_message|>",
            thought,
            answer,
        )
    which = draw.randrange(len(TAGS[name][1]))
    opening, closing = (part[min(which, len(part) - 1)].replace("*", "6124c78e") for part in TAGS[name])
    if name in AROUND and draw.random() < 0.7:
        around, after = draw.choice(AROUND[name])
        answer_around = f"{around}\n{answer}" + draw.choice(("", f"\n{after}", after))
        return f"{opening}{thought}{closing}\n{answer_around}", thought, answer
    begin = draw.choice(("", "\n")) + opening if way in TAGS or draw.random() < 0.5 else ""
    return f"{begin}{thought}{closing}{chr(10) * draw.randint(1, 3)}{answer}", thought, answer


def differential(count: int, seed: int, ours: Callable[[str, str], Said] = split) -> Tally:
    """`count` texts, one in four planted, over the forms in turn. ours: what splits a text as a way has it."""
    tally, draw = Tally(), random.Random(seed)
    for number in range(count):
        way = FORMS[number % len(FORMS)]
        if number // len(FORMS) % 4:
            text = made(draw, way)
        else:
            text, thought, answer = planted(draw, way)
            said = ours(text, way)
            tally.take(f"{way}: planted", (thought, answer), (said.thought, said.answer), text)
            _compare_verdicts(tally, way, text, answer)
        said = ours(text, way)
        tally.take(way, oracle(text, way), (said.thought, said.answer, said.state), text)
    return tally


def _compare_verdicts(tally: Tally, way: str, text: str, answer: str) -> None:
    metrics = ("exact_match", "numeric", "json.valid")
    evalset = Evalset(name="s", version="1", sha256="", metrics=metrics)
    body = {"id": "1", "prompt": "Q", "answer": "18"}
    alone = score(Case(evalset="s", body=body), evalset, answer, "eos")
    behind = score(Case(evalset="s", body={**body, "reasoning": way}), evalset, text, "eos")
    for one, other in zip(alone, behind, strict=True):
        tally.take(f"{way}: verdicts", one.verdict, other.verdict, text)
