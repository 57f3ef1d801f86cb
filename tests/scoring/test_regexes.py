"""The same matches as Python's re, and no text or pattern that hangs."""

from __future__ import annotations

import contextlib
import random
import re
import time

import pytest

from qualgate.sandbox import killable
from qualgate.scoring import regexes
from qualgate.scoring.regexes import BadPattern, findall
from tests.tables import each_row

PATTERNS = [
    "a", "(a)|(b)", r"(-?\d+)", r"\b([A-D])\b", r"[ab]+c?", r"(?:ab|a)(b?)", r"a{2,3}", r"(a+?)(b*)", r"x.y",
    r"\w+\s\w+",
    r"The answer is \(?([A-D])\)?", r"(\d+(?:,\d{3})*(?:\.\d+)?)", r"[^\s,]+", "a|ab", "ab|a", r"\(([^)]*)\)",
    r"(a|b)c|d",
    r"é+", r"[α-ω]+", r"[^a]b", r"\$?[0-9.,]+", r"(?:a?b)+", r"-?[0-9]{1,3}(?:,[0-9]{3})+", r"a.{0,3}b", r"\D\d",
    r"\n+",
]  # fmt: skip
BEYOND = [r"^a", r"a$", r"(?i)a", r"(?=a)a", r"(a)\1", r"a*", r"(a|b)*c", r"(a|b*)+", r"(?s)a.b", r"\Aa", r"x{,2}y",
    "a++b",
          r"(?P<n>a)", r"(?:a*)+b", r"\b", r"(?<=b)a", "", r"a|"]  # fmt: skip
LETTERS = "aabbcd xy018,.$-()éωΑ²\n\t\x1f\x0b\u00a0\u0661"


def texts(count: int) -> list[str]:
    draw = random.Random(5)
    return ["", *("".join(draw.choices(LETTERS, k=draw.randint(1, 30))) for _ in range(count)), "The answer is (B)."]


@each_row("pattern", PATTERNS)
def test_re2_is_asked_where_it_says_what_python_says(pattern):
    asked = 0
    for text in texts(400):
        asked += regexes._by_re2(pattern, text) is not None
        if regexes._by_re2(pattern, text) is not None:
            assert findall(pattern, text) == re.findall(pattern, text), text
    assert asked > 10


@each_row("pattern", BEYOND)
def test_what_means_something_else_there_is_left_to_python(pattern):
    assert regexes._by_re2(pattern, "aab") is None
    assert findall(pattern, "aab xx ab") == re.findall(pattern, "aab xx ab")


def test_text_that_is_not_ascii_is_left_to_python_where_classes_differ():
    assert findall(r"\d+", "\u0661\u0662 3") == ["\u0661\u0662", "3"]
    assert findall(r"a\sb", "a\x1fb") == ["a\x1fb"]
    assert findall(r"[^x]", "\ud800") == ["\ud800"]


@each_row("pattern", sorted(regexes.LINEAR))
@each_row("text", ["#### 1", "-1.,$", "....", "('a', 'b') ('", "The answer is 1", "# " * 3, "$ ", "('", "', '"])
def test_the_patterns_called_linear_are(pattern, text):
    start = time.process_time()
    assert findall(pattern, text * 20_000) is not None
    assert time.process_time() - start < 2


def test_a_pattern_that_takes_forever_is_stopped():
    start = time.process_time()
    with pytest.raises(killable.Killed, match="more than 1 s"):
        findall(r"(x+x+)+y$", "x" * 50)
    assert time.process_time() - start < 1  # here; the work was another process's


@pytest.mark.proof
def test_the_quadratic_case_of_re2_does_not_hang_either():
    start = time.process_time()
    with contextlib.suppress(killable.Killed):
        findall("b.*z|b", "b" * 500_000)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("pattern", ["(", "a{5}{5}", "[z-a]", "(?P<1>a)", "a" * 3_000, "(" * 1_000])
def test_what_is_no_pattern_is_said_to_be_none(pattern):
    with pytest.raises(BadPattern):
        findall(pattern, "a")
