"""What vLLM's parsers read of the strings beside this file, and what we read of them, in two questions:

- strictly: are the calls that we read those that it reads? Where the two differ, it is one of KINDS, which say who is
  right; a text that we refuse is none, for a repair of it is not what the model said.
- Does a text that comes in pieces say what it says whole, fault and reason too?
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from qualgate.scoring.json_value import identity
from qualgate.scoring.tools.dialects import BadCall, Call
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.dialects.stream import Dialect
from tests.verification.references.agreement import SHOWN
from tests.verification.references.dialect_strings import TOOLS, TYPED, Kept, kept

CUTS = 3  # ways in which each text is cut into pieces

Calls = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Kind:
    """Differences of one kind: in which dialects, who is right and why, and which they are."""

    dialects: frozenset[str]
    right: str
    fits: Callable[[Calls, Calls], bool]  # of our calls and theirs


def _one_block(ours: Calls, theirs: Calls) -> bool:
    return len(theirs) < len(ours) and same_calls(theirs, ours[: len(theirs)])


def _left_as_text(ours: Calls, theirs: Calls) -> bool:
    """Alike but for values that they leave as text and we do not."""
    if [(call["name"], {*call["arguments"]}) for call in ours] != [
        (one["name"], {*one["arguments"]}) for one in theirs
    ]:
        return False
    given = [
        (call["arguments"][key], value)
        for call, other in zip(ours, theirs, strict=True)
        for key, value in other["arguments"].items()
    ]
    return all(
        isinstance(theirs, str) and not isinstance(ours, str) for ours, theirs in given if not same_calls(ours, theirs)
    )


def _offered(ours: Calls, theirs: Calls) -> bool:
    """Alike but for calls of tools that are not offered, of which one may leave all unread."""
    known = [one for one in ours if one["name"] in {tool["function"]["name"] for tool in TOOLS}]
    return len(known) < len(ours) and (same_calls(theirs, known) or not theirs)


def _ended(ours: Calls, theirs: Calls) -> bool:
    """Alike but for a value that goes on behind what looks like its end."""
    if [one["name"] for one in ours] != [one["name"] for one in theirs]:
        return False
    pairs = [
        (value, other["arguments"].get(key))
        for one, other in zip(ours, theirs, strict=True)
        for key, value in one["arguments"].items()
    ]
    return all("</parameter>" in str(value) for value, other in pairs if not same_calls(value, other))


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


KINDS = {
    "one block": Kind(
        _named("gigachat3 hunyuan_a13b internlm2 jamba lfm2 llama4_pythonic mistral olmo3 phi4_mini pythonic xlam"),
        "ours: vLLM reads one block with nothing around it (phi4_mini: up to the first `]`), or raises where there are "
        "two; the others were said, too",
        _one_block,
    ),
    "types": Kind(
        _named("hunyuan_v3 hy_v4 step3"),
        "ours, by the schema: vLLM leaves null as text, and with step3 lists and objects, too",
        _left_as_text,
    ),
    "offered": Kind(
        _named("ling3 minimax_m2 k2_horizon"),
        "ours: the model called a tool that is not offered; vLLM leaves that as text (k2_horizon: all of it)",
        _offered,
    ),
    "ends": Kind(
        _named("step3p5 step5"),
        "ours: a value goes on behind a `</parameter>` that no parameter follows; vLLM ends it there and drops that",
        _ended,
    ),
    "braces": Kind(
        _named("llama3_json"),
        "ours: vLLM takes every `{` for a call's, and calls none where one of them is no call",
        lambda ours, theirs: not theirs,
    ),
    "keys": Kind(
        _named("functiongemma"),
        "ours: vLLM reads escaped strings alone, flattened; not numbers, lists or objects",
        lambda ours, theirs: len(ours) == len(theirs),
    ),
}


@dataclass(slots=True)
class Agreement:
    """Counts by dialect, and texts that are not as they should be."""

    strings: Counter[str] = field(default_factory=Counter)
    typed: Counter[str] = field(default_factory=Counter)  # of them, those that ask a server alone
    alike: Counter[str] = field(default_factory=Counter)  # read as the parser reads them
    refused: Counter[str] = field(default_factory=Counter)  # strictly
    pieces: Counter[str] = field(default_factory=Counter)  # that say what they say whole
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    unexplained: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return bool(self.strings) and not self.unexplained and self.pieces == self.strings

    def as_row(self) -> dict[str, Any]:
        kinds = {name: dict(each) for name, each in self.kinds.items()}
        counts = {name: dict(getattr(self, name)) for name in ("strings", "typed", "alike", "refused", "pieces")}
        return counts | {"kinds": kinds, "unexplained": self.unexplained}


def compared(
    rows: Sequence[Kept],
    strictly: Callable[[str, str], Sequence[Call]] = lambda name, text: dialect(name).parse(text, TOOLS),
) -> Agreement:
    """All rows. strictly: what reads a text in a dialect."""
    found, draw = Agreement(), random.Random(1)
    for one in rows:
        name, theirs = one.dialect, one.read if isinstance(one.read, list) else []
        found.strings[name] += 1
        found.pieces[name] += all(_in_pieces(dialect(name), one.text, draw) for _ in range(CUTS))
        if one.how == TYPED:  # strictly, the schema alone says what a text stands for
            found.typed[name] += 1
            continue
        ours = plain_calls(lambda one=one: strictly(one.dialect, one.text))
        if ours is None:
            found.refused[name] += 1
        elif same_calls(ours, theirs):
            found.alike[name] += 1
        elif kind := next((k for k, one in KINDS.items() if name in one.dialects and one.fits(ours, theirs)), None):
            found.kinds.setdefault(kind, Counter())[name] += 1
        elif len(found.unexplained) < SHOWN:
            found.unexplained.append(
                f"{name}, {one.how}: theirs {theirs!r:.300}, ours {ours!r:.300}: {one.text!r:.600}"
            )
    return found


def plain_calls(read: Callable[[], Sequence[Call]]) -> Calls | None:
    try:
        return [{"name": call.name, "arguments": call.arguments} for call in read()]
    except BadCall:
        return None


def same_calls(one: Any, other: Any) -> bool:
    return (one is None) == (other is None) and identity(one) == identity(other)


def _in_pieces(form: Dialect, text: str, draw: random.Random) -> bool:
    cuts = sorted({0, len(text), *(draw.randint(0, len(text)) for _ in range(draw.choice((1, 3, len(text)))))})
    pieces = [text[start:end] for start, end in itertools.pairwise(cuts)]
    return _fed(form, pieces) == _fed(form, [text])


def _fed(form: Dialect, pieces: Sequence[str]) -> tuple[Calls, str]:
    stream, fault = form.stream(TOOLS), ""
    try:
        for piece in pieces:
            stream.feed(piece)
        stream.close()
    except BadCall as error:
        fault = f"{error.error_type}: {error}"
    return [{"name": call.name, "arguments": call.arguments} for call in stream.calls], fault


def table(found: Agreement) -> list[str]:
    """In Markdown: of each kind, in which dialects so many strings are read otherwise."""
    counts = ({name: each[name] for name in found.strings if each[name]} for each in found.kinds.values())
    return [", ".join(f"`{name}` {count}" for name, count in each.items()) for each in counts]


if __name__ == "__main__":
    print(*table(compared(kept()[1])), sep="\n")
