"""`contains` finds a reference in a sentence, by whole words and numbers; `pattern`, by a regular expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.records import Evalset
from qualgate.scoring.contains import contains_faults, pattern_faults, score_contains, words
from tests.scoring.cases import scored
from tests.tables import each_row

EMPTY = Evalset(name="e", version="1", sha256="", metrics=(), description="", path="", cases=())


def said(body: dict, text: str, metric: str = "contains", ended: str = "eos") -> tuple[bool | None, str]:
    found = scored(body, (metric,), text, finish_reason=ended)[metric]
    return found.verdict, found.error_type


@each_row(
    ("reference", "text"),
    [
        ("Paris", "The capital of France is Paris."), ("paris", "PARIS!"), ("the U.S.", "In the US, mostly."),
        ("US", "In the U.S. it is."), ("twenty-one", "Twenty one of them."), ("New York", "It is New\n York."),
        ("don't", "I don’t know"), ("1234.5", "It costs $1,234.50."), ("18", "#### 18.0"), (18, "so 18"),
        ("5", "5%"), ("5", "(5)"), ("-3", "x = −3"), ("3", "5-3"), ("北京", "中国的首都是北京。"),
        ("東京", "答えは東京です"), ("서울", "수도는 서울은 맞다"),
        ("café", "cafe\u0301 au lait"), ("हिन्दी", "यह हिन्दी है"), ("ﬁn", "the fin of it"),
        ("9:30", "at 9:30 sharp"), ("1.2.3", "version 1.2.3 it is"), ("J.R.R. Tolkien", "by JRR Tolkien"),
        ("42", "答えは42です"), ("C++", "Use **C++**."), ("C#", "C#, of course"), ("A-", "an A-."), ("C", "C - or B"),
        ("Paris", "Paris+"), ("no", "no- it is not"), ("B", "B- or C"), ("AB-", "AB-\nit is"), ("O-", "是O-。"),
        ("up", "up#"),
    ],
)  # fmt: skip
def test_a_reference_is_found_as_whole_words_and_numbers(reference, text):
    assert said({"answer": reference}, text) == (True, "")


@each_row(
    ("reference", "text"),
    [
        ("cat", "concatenate"), ("5", "15"), ("5", "5.2"), ("5", "-5"), ("5", "1,500"), ("5", "5:30"), ("1.2", "1.2.3"),
        ("10", "10/20"), ("B", "Because"), ("x2", "x 2"), ("Paris France", "Paris, in France"), ("no", "I know"),
        ("2", "x2"), ("2", "2nd"), ("art", "Arthur"), ("Müller", "Mueller"),
        ("C", "C++"), ("C++", "C"), ("C++", "C#"), ("A", "A-"), ("A-", "A"), ("AB+", "AB"), ("O-", "O+"),
    ],
)  # fmt: skip
def test_a_part_of_a_word_or_of_a_number_is_no_reference(reference, text):
    assert said({"answer": reference}, text) == (False, "absent")


@pytest.mark.parametrize(
    ("body", "text", "found"),
    [
        ({"references": ["Paris", "Lutetia"]}, "It was Lutetia.", (True, "")),
        ({"references": ["Paris", "Lutetia"]}, "It was Rome.", (False, "absent")),
        ({"contains": {"any": ["red", "blue"]}}, "blue", (True, "")),
        ({"contains": {"all": ["red", "blue"]}}, "Blue and red.", (True, "")),
        ({"contains": {"all": ["red", "blue"]}}, "Blue.", (False, "absent")),
        ({"answer": "x"}, " ", (False, "empty")),
        ({"answer": "cat", "choices": ["cat", "dog"]}, "It is a cat.", (True, "")),
        ({"answer": "cat", "choices": ["cat", "dog"]}, "Not a dog but a cat.", (False, "several_choices")),
        ({"answer": "black cat", "choices": ["cat", "black cat"]}, "A black cat.", (True, "")),
        ({"answer": "cat", "choices": ["cat", "black cat"]}, "A black cat.", (False, "several_choices")),
    ],
)
def test_any_of_several_counts_unless_all_are_asked_for_and_one_choice_alone_is_named(body, text, found):
    assert said(body, text) == found


def test_an_answer_that_was_cut_is_never_right():
    assert said({"answer": "Paris"}, "It is Paris, or rather", ended="length") == (False, "cut")
    assert said({"answer": "Paris"}, "It is", ended="length") == (False, "absent")


@pytest.mark.parametrize("answer", ["", "?!", "the", None, ["x", ""], True])
def test_a_reference_without_a_word_is_refused(answer):
    assert any("contains needs texts with a word" in fault for fault in contains_faults({"answer": answer}, EMPTY))


@pytest.mark.parametrize("asked", [["x"], {"all": []}, {"some": ["x"]}, {"all": ["x"], "any": ["x"]}, "x"])
def test_what_a_case_asks_to_contain_is_one_list(asked):
    assert [fault for fault in contains_faults({"contains": asked}, EMPTY) if fault.startswith("`contains")]


@given(before=st.text(), reference=st.text("abc 12-é北", min_size=1), after=st.text())
def test_a_reference_between_spaces_is_always_found(before, reference, after):
    if words(reference) and not re.search(r"[-+−]\s*$|^\s*[-+−]", f"{before}{reference}"):
        found = score_contains({"answer": reference}, f"{before} . {reference} . {after}")["contains"]
        assert found.verdict is True


@given(st.text(), st.text(min_size=1))
def test_no_answer_makes_it_fail(text, reference):
    if words(reference):
        assert score_contains({"answer": reference}, text)["contains"].verdict in (True, False)


LETTER = {"pattern": r"Answer: \(?([A-D])\b", "answer": "B"}


@pytest.mark.parametrize(
    ("body", "text", "found"),
    [
        (LETTER, "Answer: (B)", (True, "")),
        (LETTER, "Answer: A. No: Answer: B", (True, "")),
        (LETTER, "Answer: B. No: Answer: A", (False, "different")),
        (LETTER, "answer: B", (False, "no_match")),
        (LETTER, "", (False, "empty")),
        ({**LETTER, "answer": "b"}, "Answer: B", (True, "")),
        ({"pattern": "(?i)refund(ed)?", "answer": "ed"}, "It was Refunded", (True, "")),
        ({"pattern": "order [0-9]+"}, "see order 17", (True, "")),
        ({"pattern": "order [0-9]+"}, "see order", (False, "no_match")),
        ({"pattern": "([a-z]+)$", "references": ["x", "yes"]}, "oh yes", (True, "")),
    ],
)
def test_the_group_of_the_last_match_is_the_reference(body, text, found):
    assert said(body, text, "pattern") == found


@pytest.mark.parametrize(
    "body",
    [{"pattern": "("}, {"pattern": "(a)"}, {"pattern": "(a)(b)", "answer": "a"}, {"pattern": "x*"}, {"pattern": 3},
     {"pattern": r"(?=a)"}, {"pattern": "a" * 3000}],
)  # fmt: skip
def test_a_pattern_that_cannot_be_asked_is_refused(body):
    assert [*pattern_faults(body, EMPTY)]


@pytest.mark.parametrize(
    ("metric", "references", "text", "found"),
    [
        ("exact_match", ["yes", "Yes."], "Yes.", (True, "")),
        ("exact_match", ["yes", "Yes."], "no", (False, "different")),
        ("numeric", [3, "3.5"], "so 3.5", (True, "")),
        ("math", ["1/2", "x=2"], "$0.5$", (True, "")),
        ("f1", ["a cat", "two dogs"], "two dogs", (True, "")),
    ],
)
def test_any_of_several_references_makes_an_answer_right(metric, references, text, found):
    assert said({"references": references}, text, metric) == found
