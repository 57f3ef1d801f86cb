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
FORMS = ("think", "think_opened", "seed", "seed_opened", "harmony", "none")
TAGS = {"think": ("<think>", "</think>"), "seed": ("<seed:think>", "</seed:think>")}
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


def oracle(text: str, way: str) -> Split:
    """Thought, answer and state by the definition."""
    if way == "none":
        return "", text, "none"
    if way == "harmony":
        return _messages(text)
    opening, closing = TAGS[way.removesuffix("_opened")]
    first = 0
    while first < len(text) and text[first].isspace():
        first += 1
    began = text[first : first + len(opening)] == opening
    at = first + len(opening) if began else 0
    sure = began or way.endswith("_opened")
    ends = [place for place in range(at, len(text)) if _is_marker(text, place, closing)]
    if not sure and (not ends or _json(text)):
        return "", text, "none"
    if not ends:
        return text[at:], "", "open"
    return text[at : ends[0]], _unblanked(text[ends[0] + len(closing) :]), "ended"


def _is_marker(text: str, place: int, marker: str) -> bool:
    if text[place : place + len(marker)] != marker:
        return False
    before, behind = text[:place], text[place + len(marker) :]
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
    tags = TAGS.get(way.removesuffix("_opened"), TAGS["think"])
    others = [tag for pair in TAGS.values() for tag in pair]
    quoted = [f"{q}{tag}{q}" for tag in others for q in ('"', "'", "`", '\\"')]
    strings = [json.dumps({"a": f"{word}{tag}"}) for tag in tags for word in ("", "x")]
    kinds = [WORDS, WORDS, tags, quoted, BROKEN, others, strings]
    kinds += [HARMONY] * (4 if way == "harmony" else 1)
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
    opening, closing = TAGS[way.removesuffix("_opened")]
    begin = draw.choice(("", "\n")) + opening if way in TAGS or draw.random() < 0.5 else ""
    return f"{begin}{thought}{closing}{chr(10) * draw.randint(1, 3)}{answer}", thought, answer


def differential(count: int, seed: int, ours: Callable[[str, str], Said] = split) -> Tally:
    """`count` texts, one in four planted, over the six forms in turn. ours: what splits a text as a way has it."""
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
