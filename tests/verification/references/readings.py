"""Answers as a careful person reads them, written down by one who had not seen our scorers, beside what these say.

Each line of `readings/KIND.jsonl` is

- choices: text, choices, the letter that the text gives as its answer (or `none`, `ambiguous`), kind
- numbers: text, reference, `right`, `wrong` or `null`, kind
- math, and retractions (denied, taken back, cut; two thirds of these drawn when the scorer was known): kind, verdict,
  [text, reference or references, why Math-Verify 0.9.0 says otherwise if it does] …
- programs: program, tests ([stdin, stdout] …, {function: [arguments, result] …} or assert lines), verdict, kind; the
  verdicts are those of `python program.py`, run with 50,000 digits of an integer, as LiveCodeBench does
- patterns: pattern, kind, texts that match, texts that do not: by Python's `re`, but where ECMA 262 says otherwise
- thoughts: text, kind, the set's `reasoning`, metric, references that are right, references that are wrong
- replies: what a judge's reply means (`null`: nothing; `A|null`: A, or nothing by the form that it was asked for),
  kind, replies
- unfinished: in `readings_unfinished`

Where lm-eval, inspect and simple-evals disagree with each other, the person's word counts. `⟨ab×50⟩` is 50 times `ab`.

A wrong approval is an answer that is right here and not for the reader; no verdict in place of `wrong` is none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualgate.records import Case, Evalset
from qualgate.scoring import score
from qualgate.scoring.multiple_choice import score_multiple_choice
from qualgate.scoring.preference.reading import Unread, verdict
from qualgate.scoring.schema import CannotValidate, first_error
from qualgate.scoring.stated_choice import LETTERS
from tests.verification.references.math_pairs import asked

FOLDER = Path(__file__).with_suffix("")
_SERVED = "wrong: vLLM's and SGLang's parsers end a thought at its first </think>; what follows is served as the answer"
LISTED = {  # text and reference on which we say otherwise → why
    ("The train leaves at 10:30.", "10.5"): "wrong, not null: a time is no number of hours",
    ("1 h 20 min", "80"): "wrong, not null: 80 is not said",
    ("e^2", "7.389"): "wrong, not null: no number is said",
    ("12. No: 13.", "13"): "wrong, not right: fewer than three words are read as a formula",
    ("print(exit)\n", ""): "wrong: it prints a shorter text than Python's, which differs between versions",
    ('print("")', ""): "null: tests that expect no output say nothing of a program",
    ("(5)", r"^(\()?\d+(?(1)\))$"): "null: ECMA 262 has no conditions",
    ("5", r"^(\()?\d+(?(1)\))$"): "null: ECMA 262 has no conditions",
    ("<think>London</think></think>Paris", "Paris"): _SERVED,
    ("<think>a<think>b</think>c</think>Paris", "Paris"): _SERVED,
    ("<think><think>London</think></think>Paris", "Paris"): _SERVED,
    ("<think>x<think>y<think>z</think>y</think>x</think>Paris", "Paris"): _SERVED,
}


@dataclass(slots=True)
class Readings:
    """What came of one kind of answers."""

    asked: int = 0
    agreed: int = 0
    approved: list[str] = field(default_factory=list)  # wrong approvals: there must be none
    different: list[str] = field(default_factory=list)  # all other differences that are not listed

    @property
    def held(self) -> bool:
        return not self.approved and self.agreed >= 0.99 * self.asked

    def take(self, wanted: str, given: str, about: str, listed: bool) -> None:
        """wanted, given: right, wrong or null."""
        self.asked += 1
        if wanted == given or (listed and given != "right") or (wanted, given) == ("wrong", "null"):
            self.agreed += 1
        else:
            (self.approved if given == "right" else self.different).append(f"{about}: {given}, not {wanted}")


def rows(name: str, every: int = 1) -> Iterator[list[Any]]:
    """Each `every`-th line of a file, or all."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines[::every]:
        yield json.loads(re.sub("⟨(.+?)×([0-9]+)⟩", lambda run: run[1] * int(run[2]), line))


def _word(value: bool | None) -> str:
    return {True: "right", False: "wrong", None: "null"}[value]


def _scored(metric: str, body: dict[str, Any], text: str) -> str:
    evalset = Evalset(name="readings", version="1", sha256="", metrics=(metric,))
    [found] = score(Case(evalset="readings", body={"id": "1", "max_new_tokens": 8, **body}), evalset, text, "eos")
    return _word(found.verdict)


def choices(every: int = 1) -> Readings:
    """Each text is asked whether it gives each letter."""
    found = Readings()
    for text, options, wanted, kind in rows("choices", every):
        for letter in LETTERS[: len(options)]:
            body = {"choices": options, "answer": LETTERS.index(letter)}
            given = score_multiple_choice(body, text, lenient=True)["multiple_choice"].verdict
            said = "right" if wanted == letter else "wrong"
            found.take(said, _word(given), f"{kind}: {text!r} for {letter}", listed=False)
    return found


def numbers(every: int = 1) -> Readings:
    """Each text against its reference."""
    found = Readings()
    for text, reference, wanted, kind in rows("numbers", every):
        given = _scored("numeric", {"answer": reference}, text)
        found.take(wanted, given, f"{kind}: {text!r} for {reference}", (text, reference) in LISTED)
    return found


def mathematics(every: int = 1) -> Readings:
    """Each text against its reference, or several."""
    found = Readings()
    for kind, wanted, pairs in (*rows("math"), *rows("retractions")):
        for text, reference, *_ in pairs[::every]:
            key = "references" if isinstance(reference, list) else "answer"
            given = _scored("math", {"prompt": "Q", key: reference}, text)
            found.take(wanted, given, f"{kind}: {text!r} for {reference}", (text, str(reference)) in LISTED)
    return found


def unlike_math_verify(interpreter: str) -> list[str]:
    """The texts of which Math-Verify says otherwise than it is written down."""
    lines = (*rows("math"), *rows("retractions"))
    pairs = [(wanted, *pair) for _, wanted, pairs in lines for pair in pairs if isinstance(pair[1], str)]
    said = asked(interpreter, [(wanted, text, reference, False) for wanted, text, reference, *_ in pairs])
    return [
        pair[1] for pair, right in zip(pairs, said, strict=True) if right != ((pair[0] == "right") == (len(pair) == 3))
    ]


def programs(every: int = 1) -> Readings:
    """Each program with its tests."""
    found = Readings()
    for program, tests, wanted, kind in rows("programs", every):
        given = _scored("code.pass", {"prompt": "Q", **_tests(tests)}, program)
        found.take(wanted, given, f"{kind}: {program!r}", (program, "") in LISTED)
    return found


def _tests(written: Any) -> dict[str, Any]:
    if isinstance(written, dict):
        [(name, cases)] = written.items()
        return {"fn_name": name, "tests": [{"args": args, "returns": due} for args, due in cases]}
    if isinstance(written[0], str):
        return {"entry_point": "f", "tests": "\n".join(written)}
    return {"tests": [{"stdin": given, "stdout": due} for given, due in written]}


def patterns(every: int = 1) -> Readings:
    """Each text against a schema's `pattern`."""
    found = Readings()
    for pattern, kind, matching, others in rows("patterns", every):
        for text in (*matching, *others):
            try:
                given = _word(first_error({"type": "string", "pattern": pattern}, text) is None)
            except CannotValidate:
                given = "null"
            wanted = "right" if text in matching else "wrong"
            found.take(wanted, given, f"{kind}: {pattern!r} on {text[:60]!r}", (text, pattern) in LISTED)
    return found


def thoughts(every: int = 1) -> Readings:
    """Each text against what it answers, and against what it only thinks."""
    found = Readings()
    for text, kind, way, metric, right, wrong in rows("thoughts", every):
        for reference in (*right, *wrong):
            given = _scored(metric, {"prompt": "Q", "reasoning": way, "answer": reference}, text)
            wanted = "right" if reference in right else "wrong"
            found.take(wanted, given, f"{kind}: {text!r} for {reference}", (text, reference) in LISTED)
    return found


def replies(every: int = 1) -> Readings:
    """Each reply against what it means."""
    found = Readings()
    for wanted, kind, said in rows("replies"):
        for reply in said[::every]:
            try:
                given = verdict(reply)
            except Unread:
                given = "null"
            about = f"{kind}: {reply!r} as {given}"
            if given in wanted.split("|"):
                found.take("right", "right", about, listed=False)
            elif given == "null":
                found.take("right", "null", about, listed=False)
            else:
                found.take("wrong", "right", about, listed=False)
    return found


KINDS = (choices, numbers, mathematics, thoughts, replies, patterns, programs)
