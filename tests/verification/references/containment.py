"""`contains` beside lm-eval's `contains` (SQuAD completion, FDA, SWDE) and inspect's `includes`, on made pairs.

In the kinds of `SAME` all three must agree. In those of `DIFFERENT` they are known to part: each says what ours is,
what each of theirs is, and why. What the two say is kept in `containment.json`, a bit a pair; where lm-eval is
installed, or `QUALGATE_INSPECT` names a Python that has inspect_ai, they are asked again.

    QUALGATE_INSPECT=…/bin/python python -m tests.verification.references.containment     writes the file anew
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from qualgate.scoring.contains import score_contains
from tests.verification.references.agreement import NoReference

STORED = Path(__file__).with_suffix(".json")
INTERPRETER = "QUALGATE_INSPECT"
PAIRS, SEED = 2_000, 20_261_128
PEERS = ("lm-eval", "inspect")

Pair = tuple[str, list[str]]  # an answer, the references of which any one will do
Maker = Callable[[random.Random], Pair]

NAMES = ("Paris", "Rome", "New York", "Marie Curie", "Zürich", "photosynthesis", "St. Petersburg", "Москва", "Łódź")
OTHERS = ("Oslo", "Lima", "Ada Lovelace", "granite", "Perth", "Київ")
FRAMES = ("{}", "The answer is {}.", "It is **{}**, I believe.", "Answer: {}\n\nExplanation: see above.", '"{}"!',
          "Well, ({}) is what they say", "- {}\n- that is all", "I think it's {}, but check.")  # fmt: skip


def _in(rng: random.Random, text: str) -> str:
    return rng.choice(FRAMES).format(text)


def _named(rng: random.Random) -> Pair:
    name = rng.choice(NAMES)
    return _in(rng, rng.choice((name, name.lower(), name.upper()))), [name]


def _other(rng: random.Random) -> Pair:
    return _in(rng, rng.choice(OTHERS)), [rng.choice(NAMES)]


def _number(rng: random.Random) -> Pair:
    number = rng.randint(10, 999_999)
    return _in(rng, str(number)), [str(number)]


def _other_number(rng: random.Random) -> Pair:
    number = rng.randint(10, 99_999)
    return _in(rng, str(rng.choice((1, 3, 7)) + number)), [str(number)]


def _any_of(rng: random.Random) -> Pair:
    names = rng.sample(NAMES, 3)
    return _in(rng, rng.choice((*names, *OTHERS))), names


def _turned(rng: random.Random) -> Pair:
    return _in(rng, rng.choice(("York New", "Curie Marie", "Newark, York"))), [rng.choice(("New York", "Marie Curie"))]


def _without_spaces(rng: random.Random) -> Pair:
    reference = rng.choice(("東京", "京都", "北京", "กรุงเทพ", "서울"))
    return rng.choice(("答えは東京です。", "答案是北京。", "คำตอบคือ กรุงเทพ", "정답은 서울입니다", "東京都")), [
        reference
    ]


def _silent(rng: random.Random) -> Pair:
    return rng.choice(("", "  ", "\n", "...", "**")), [rng.choice(NAMES)]


def _signs(rng: random.Random) -> Pair:
    names = ("C++", "C#", "F#", "AB+", "A-", "D+")
    return _in(rng, rng.choice(names)), [rng.choice(names)]


SAME: dict[str, Maker] = {
    "named": _named,
    "another": _other,
    "number": _number,
    "another number": _other_number,
    "any of three": _any_of,
    "turned round": _turned,
    "without spaces": _without_spaces,
    "silent": _silent,
    "signs": _signs,
}


@dataclass(frozen=True, slots=True)
class Different:
    """A kind in which a peer is known to say otherwise. peers: what lm-eval and inspect say."""

    ours: bool
    peers: tuple[bool, bool]
    why: str
    pairs: tuple[tuple[str, str], ...]  # answer, reference

    def make(self, rng: random.Random) -> Pair:
        said, reference = rng.choice(self.pairs)
        return _in(rng, said), [reference]


DIFFERENT: dict[str, Different] = {
    "within a word": Different(False, (True, True), "they compare characters: `cat` is in `concatenate`", (
        ("concatenate", "cat"), ("Romeo", "Rome"), ("Parisian", "Paris"), ("unhappy", "happy"), ("cats", "cat"))),
    "within a number": Different(False, (True, True), "they compare characters: `5` is in `15`", (
        ("15", "5"), ("5.2", "5"), ("1,500", "500"), ("-5", "5"), ("5:30", "5"), ("2024", "24"), ("1.2.5", "2.5"))),
    "number written otherwise": Different(True, (False, False), "we compare values: `1,234.50` is `1234.5`", (
        ("1,234", "1234"), ("7", "7.0"), ("1234.5", "1,234.50"), ("007", "7.0"), ("2.50", "2.5000"))),
    "article": Different(True, (False, False), "we leave out a, an, the, as SQuAD does", (
        ("Beatles", "The Beatles"), ("whale", "a whale"), ("king of the hill", "King of Hill"))),
    "punctuation": Different(True, (False, False), "we compare words: what stands between them does not count", (
        ("twenty one", "twenty-one"), ("US", "U.S."), ("O’Brien", "O'Brien"), ("Paris - France", "Paris, France"))),
    "blanks": Different(True, (False, False), "we compare words: a line's end is a space", (
        ("New\nYork", "New York"), ("Marie  Curie", "Marie Curie"), ("New\u00a0York", "New York"))),
    "writing": Different(True, (False, False), "we compare after NFKC", (
        ("１７", "17"), ("Zu\u0308rich", "Zürich"), ("m²", "m2"))),
    "letters that fold to several": Different(True, (False, True), "lm-eval folds ß and ﬃ to one letter at most", (
        ("STRASSE", "Straße"), ("Gruss", "Gruß"), ("GROSS", "groß"), ("eﬃcient", "efficient"))),
    "part of a name": Different(False, (True, True), "they compare characters: `C` is in `C++`", (
        ("C++", "C"), ("C#", "C"), ("O+", "O"), ("A-", "A"), ("F#", "F"), ("AB+", "B+"))),
}  # fmt: skip


def pairs() -> list[tuple[str, Pair]]:
    """All pairs with their kind: three of the same to one of the different."""
    rng, same, different = random.Random(SEED), [*SAME], [*DIFFERENT]
    found = []
    for number in range(PAIRS):
        if number % 4 < 3:
            kind = same[number % len(same)]
            found.append((kind, SAME[kind](rng)))
        else:
            kind = different[number // 4 % len(different)]
            found.append((kind, DIFFERENT[kind].make(rng)))
    return found


def ours(pair: Pair) -> bool:
    """Ours of an answer and its references."""
    said, references = pair
    return score_contains({"references": references}, said)["contains"].verdict is True


def of_lm_eval(found: list[Pair]) -> list[bool]:
    """lm-eval's own function's verdicts. NoReference where lm-eval is not installed."""
    try:
        from lm_eval.tasks.squad_completion.task import contains_score
    except ImportError as why:
        raise NoReference(f"lm-eval: {why}") from None
    return [bool(contains_score(said, references)) for said, references in found]


_ASK = r"""
import asyncio, json, sys
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Target, includes
from inspect_ai.solver import TaskState
score = includes()
for line in sys.stdin:
    said, references = json.loads(line)
    output = ModelOutput.from_content("none", said)
    state = TaskState(model="none", sample_id=0, epoch=0, input="", messages=[], output=output)
    print(int(asyncio.run(score(state, Target(references))).value == "C"), flush=True)
"""


def of_inspect(interpreter: str, found: list[Pair]) -> list[bool]:
    """The verdicts of inspect's `includes`, in that interpreter."""
    lines = "".join(json.dumps(pair) + "\n" for pair in found)
    done = subprocess.run([interpreter, "-c", _ASK], input=lines, capture_output=True, text=True, check=False)
    if done.returncode or len(done.stdout.split()) != len(found):
        raise NoReference(f"{INTERPRETER}: {done.stderr[-300:]}")
    return [line == "1" for line in done.stdout.split()]


def theirs(found: list[Pair]) -> dict[str, list[bool]]:
    """What each peer says of each pair: asked where it is here, else as it is kept."""
    kept = json.loads(STORED.read_text(encoding="utf-8"))
    verdicts = {peer: [bit == "1" for bit in f"{int(kept[peer], 16):0{len(found)}b}"] for peer in PEERS}
    if interpreter := os.environ.get(INTERPRETER):
        verdicts["inspect"] = of_inspect(interpreter, found)
    with suppress(NoReference):
        verdicts["lm-eval"] = of_lm_eval(found)
    return verdicts


@dataclass(slots=True)
class Agreement:
    """What came of the pairs."""

    pairs: int = 0
    same: int = 0  # all three say the same
    listed: int = 0  # they part as `DIFFERENT` says
    unlisted: list[str] = field(default_factory=list)  # all others: there must be none


def compared() -> Agreement:
    """Ours and theirs of all pairs."""
    found, result = pairs(), Agreement()
    said = theirs([pair for _, pair in found])
    for (kind, pair), *peers in zip(found, *(said[peer] for peer in PEERS), strict=True):
        verdict, result.pairs = ours(pair), result.pairs + 1
        known = DIFFERENT.get(kind)
        if known is None and {verdict} == set(peers):
            result.same += 1
        elif known is not None and (verdict, tuple(peers)) == (known.ours, known.peers):
            result.listed += 1
        else:
            result.unlisted.append(f"{kind}: {pair!r}: ours {verdict}, {dict(zip(PEERS, peers, strict=True))}")
    return result


if __name__ == "__main__":
    asked = [pair for _, pair in pairs()]
    answers = {"lm-eval": of_lm_eval(asked), "inspect": of_inspect(os.environ[INTERPRETER], asked)}
    bits = {peer: f"{int(''.join('01'[one] for one in said), 2):x}" for peer, said in answers.items()}
    STORED.write_text(json.dumps({"of": "lm-eval 0.4.13, inspect_ai 0.3.285"} | bits) + "\n", encoding="utf-8")
