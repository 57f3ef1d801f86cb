"""Minerva's reading beside lm-eval's own code, and the AIME's whole numbers."""

from __future__ import annotations

import random
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from qualgate.scoring import filters
from qualgate.scoring.mathematics.minerva import aime_answer, minerva_answer

PIECES = ("Final Answer: The final answer is", " I hope it is correct.", " I hope it is correct", "\n", "$",
          "\\text{", "}",
          "\\frac", "12", "1,000", "3", "x", "=", "\\sqrt", "[3]", "a ", "an ", "cm", "\\left", "ft", "\\ldots", " ",
          ".", "{",
          "\\boxed{", "square", "\\mathrm{th}", "^\\circ", "\\textbf{", "\\overline{", "m", "\\$", "\\ ", "\\text{m}",
          "{,}")  # fmt: skip


def test_minerva_is_read_as_lm_eval_reads_it():
    spec = find_spec("lm_eval")
    if spec is None or spec.origin is None:
        pytest.skip("lm-eval is not installed")
    source = (Path(spec.origin).parent / "tasks/minerva_math/utils.py").read_text(encoding="utf-8")
    theirs: dict = {"re": re}  # its file imports packages that it does not need for this half
    exec(source[source.index("def get_unnormalized_answer") :], theirs)
    draw, found = random.Random(3), set()
    for _ in range(4_000):
        text = draw.choice((PIECES[0], PIECES[0], "")) + "".join(
            draw.choice(PIECES) for _ in range(draw.randint(0, 12))
        )
        text += draw.choice(("", ". I hope it is correct."))
        said = theirs["get_unnormalized_answer"](text)
        expected = None if said == "[invalidanswer]" else theirs["normalize_final_answer"](said)
        assert minerva_answer(text) == expected, text
        found.add(expected)
    assert None in found
    assert len(found) > 500


def test_an_aime_answer_is_a_whole_number_of_three_digits():
    for text, answer in ((r"\boxed{073}", "73"), ("The answer is $m+n = 204$.", "204"), (r"\boxed{0}", "0"), ("999",
                         "999"),
                         (r"\boxed{1000}", None), (r"\boxed{-5}", None), (r"\boxed{7.5}", None), (r"\boxed{1", None),
                         (r"\boxed{\frac{6}{2}}", None), ("\u0661", None)):  # fmt: skip
        assert aime_answer(text) == answer
        assert filters.FILTERS["aime"](text, {}) == (answer or filters.INVALID)


COUNTED = (3_317, 55, 628)  # alike; apart by a leading zero; apart by words around the number
AIME = {  # how a number is said, and whether lm-eval's `aime` reads it so
    r"so it is $\boxed{%s}$.": True,
    r"\boxed{%s}": True,
    "$%s$": True,
    "%s": True,
    r"$m+n = %s$": False,  # it takes what stands between dollars whole
    "The answer is %s.": False,  # and, without any, the whole text
}


def test_an_aime_answer_is_read_as_lm_evals_aime_reads_it_and_in_words_too():
    """Of 4,000: where lm-eval reads the number, both say the same but for leading zeros, which it takes for another."""
    spec = find_spec("lm_eval")
    if spec is None or spec.origin is None:
        pytest.skip("lm-eval is not installed")
    source = (Path(spec.origin).parent / "tasks/aime/utils.py").read_text(encoding="utf-8")
    theirs: dict = {}
    exec(source, theirs)
    draw, alike, zeros, words = random.Random(5), 0, 0, 0
    for _ in range(4_000):
        key, way = draw.randint(0, 999), draw.choice(list(AIME))
        said = draw.choice((key, key, draw.randint(0, 999), key + 1_000))
        text = way % draw.choice((f"{said}", f"{said:03d}"))
        mine = aime_answer(text) == str(key)
        assert mine == (said == key), text
        their = bool(theirs["process_results"]({"answer": str(key)}, [text])["exact_match"])
        alike += mine == their
        zeros += mine != their and AIME[way]
        words += mine != their and not AIME[way]
        assert mine or not their, text
    assert (alike, zeros, words) == COUNTED


def test_minerva_takes_no_longer_on_what_is_repeated():
    assert minerva_answer((PIECES[0] + " ") * 20_000) is None
    assert minerva_answer(PIECES[0] + " \\text{" * 100_000 + ". I hope it is correct.") is None
