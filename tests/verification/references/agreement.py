"""Ours held against a reference on made answers: how often both were asked, how often they agree, and where not."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN = 10  # differences kept, to be looked at


class NoReference(Exception):
    """The reference is not installed here: `str(error)` says what is missing."""


@dataclass(slots=True)
class Tally:
    """By the name of what was asked, e.g. a filter's."""

    asked: Counter[str] = field(default_factory=Counter)
    same: Counter[str] = field(default_factory=Counter)
    true: Counter[str] = field(
        default_factory=Counter
    )  # of the reference's verdicts: neither side may say one thing only
    differences: list[str] = field(default_factory=list)

    def take(self, name: str, theirs: Any, ours: Any, *about: Any) -> None:
        self.asked[name] += 1
        self.same[name] += theirs == ours
        self.true[name] += theirs is True
        if theirs != ours and len(self.differences) < SHOWN:
            self.differences.append(f"{name}: theirs {theirs!r:.200}, ours {ours!r:.200}: {about!r:.1000}")

    def as_row(self) -> dict[str, Any]:
        """As JSON; `asdict` would count a Counter's items."""
        counts = {"asked": self.asked, "same": self.same, "true": self.true}
        return {name: dict(each) for name, each in counts.items()} | {"differences": self.differences}

    @property
    def share(self) -> float:
        return self.same.total() / max(1, self.asked.total())

    @property
    def agree(self) -> bool:
        return self.same == self.asked and bool(self.asked)


def ask_peer(interpreter: str, script: str, questions: Sequence[dict[str, Any]]) -> tuple[str, list[Any]]:
    """The peer's version and its answer to each question, from a script of this folder run where the peer is."""
    command = [interpreter, str(Path(__file__).with_name(script))]
    lines = "".join(json.dumps(one) + "\n" for one in questions)
    done = subprocess.run(command, input=lines, text=True, check=True, capture_output=True)
    version, *answers = map(json.loads, done.stdout.splitlines())
    return version, answers


def write_lines(path: Path, lines: Sequence[Any]) -> None:
    """As JSON, one a line."""
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


# What answers are made of. Each piece is short; `made` joins some, and now and then repeats one thousands of times.
NUMBERS = ("18", "7", "0", "-3", "+5", "--5", "\u22125", "1,234", "1,2", "1,234,5678", "-1,234.50", "18.", "18.0",
           "018", ".5", "3.14.15", "1e5", "1E-3", "2e9999", "$18", "-$5", "$-5", "\u20ac7", "60%", "12/4", "5-3", "x2",
           "\u0661\u0668", "\uff11\uff18", "\u00b2", "\u0967", "\u216b", "nan", "inf", "-inf", "1_000", "...", ",,,",
           "$.", "1 000", "7 r 2", "3:30", "0x1F")  # fmt: skip
MARKS = ("#### ", "####", "####  ", "### ", "#####", "####\n", "####\u00a0", "#### $", "#### -", "**", "*", "=", "= ",
         "The answer is ", "the answer is ", "Answer: ", "answer:", "so ", "(", ")", "[", "]", "'", '"', ";", "|",
         "\\boxed{", "}", "$$", "<b>")  # fmt: skip
LETTERS = ("(A)", "(B)", "(F)", "A", "B.", "C)", ": A", ":\n B", ":C", ":\u00a0D", "a", "(a)", "answer is (B)", "[C]",
           "E", ": Z")  # fmt: skip
WORDS = ("Paris", "paris", "London", "Par", "Guilty of Romance", "guilty", "a.b", "a+b", "the", "The", "a", "an", "An",
         "non-stop", "it's", "yes", "No", "cat", "dog", "The cat sat.", "Mr. Smith", "e.g.", "U.S.", "CAN'T", "I'M",
         "person: bob", "LOC : rome, Kenya", "time: noon, none", "places:", "org:x", "('dog', 'NN')", "('a', 'DT')",
         "['x']")  # fmt: skip
BLANKS = (" ", "  ", "\n", "\n\n", "\t", "\r\n", "\x0b", "\x1c", "\x85", "\u00a0", "\u2028", "\u3000")
STRANGE = ("\u0130", "\u00df", "\u212a", "\u01c5", "\u202e", "\u2066", "\u200b", "\ufeff", "\u0301", "\0", "\x1b[31m",
           "\ud800", "\U0001f642", "\u4e2d\u6587", "\u0434\u0430", "\ufb01", "\u201c", "\u2019", "\u2014", "\u3002",
           "\u066b", "\udfff")  # fmt: skip
PIECES = (NUMBERS, NUMBERS, MARKS, LETTERS, WORDS, WORDS, BLANKS, STRANGE)
LONG = 3_000  # every how many answers one is long


def made(draw: random.Random, kinds: Sequence[Sequence[str]] = PIECES) -> str:
    """Up to 12 pieces, with or without blanks between them; seldom a piece many times over."""
    pieces = [draw.choice(draw.choice(kinds)) for _ in range(draw.choice((0, 1, 1, 2, 3, 4, 6, 8, 12)))]
    text = draw.choice(("", "", " ", " ", "\n", "\n\n")).join(pieces)
    if not draw.randrange(LONG):
        text += draw.choice(draw.choice(kinds)) * draw.randint(100, 4_000)
    return text
