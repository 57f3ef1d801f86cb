"""BFCL's verdicts: by its rules in prose, and by rules written independently."""

from __future__ import annotations

import time

import pytest

from qualgate.scoring.tools.compat import Checked, check, fold
from tests.scoring.cases import table
from tests.tables import each_row
from tests.verification.references import bfcl_agreement, bfcl_calls
from tests.verification.shared import DATA


def function(**documented):
    """A function `f` of these parameters, a type or (type, element type) each; none is required."""
    properties = {}
    for name, word in documented.items():
        outer, *inner = (word,) if isinstance(word, str) else word
        properties[name] = {"type": outer} | ({"items": {"type": inner[0]}} if inner else {})
    return {"name": "f", "parameters": {"type": "dict", "properties": properties, "required": []}}


def one(word, accepted, given, language="python"):
    """The error type of one argument: documented type, accepted values, the value given."""
    return check("simple", language, [function(a=word)], [{"f": {"a": given}}], [{"f": {"a": accepted}}]).error_type


SIMPLE, OTHERS = "type_error:simple", "value_error:others"


ARGUMENTS = [(language, *row) for language, rows in table("tools/arguments").items() for row in rows] + [
    ("python", ("tuple", "integer"), [[1, 2]], (1, 2), ""),
    ("python", ("array", "integer"), [[1, 2]], (1, 2), SIMPLE),
    ("java", "integer", [5], "9" * 5000, "reference_raises:ValueError"),
    ("java", ("Array", "integer"), [[1]], "new int[]{" + "1," * 40_000 + "}", "too_long"),
]


@each_row(("language", "word", "accepted", "given", "error"), ARGUMENTS)
def test_one_argument(language, word, accepted, given, error):
    assert one(word, accepted, given, language) == error


F = "simple_function_checker:"
PARAMETERS = {"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["x"]}
REQUIRED = {"name": "a.f", "parameters": PARAMETERS}


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ([{"a.f": {"x": 1, "y": 2}}], ""),
        ([{"a.f": {"x": 1}}], ""),
        ([{"a.f": {"y": 2}}], F + "missing_required"),
        ([{"A.f": {"x": 1}}], F + "wrong_func_name"),
        ([{"a_f": {"x": 1}}], F + "wrong_func_name"),
        ([{"a.f": {"x": 1, "z": 2}}], F + "unexpected_param"),
        ([{"a.f": {"x": 1, "X": 2}}], F + "unexpected_param"),
        ([{"a.f": {"x": 2, "z": 2}}], OTHERS),  # in the order of the call
        ([], F + "wrong_count"),
        ([{"a.f": {"x": 1}}, {"a.f": {"x": 1}}], F + "wrong_count"),
        (None, "ast_decoder:decoder_failed"),
        ("text", "ast_decoder:decoder_wrong_output_format"),
        ([{}], "ast_decoder:decoder_wrong_output_format"),
        ([{"a.f": {}, "b": {}}], "ast_decoder:decoder_wrong_output_format"),
        ([{"a.f": 1}], "ast_decoder:decoder_wrong_output_format"),
        (({"a.f": {"x": 1}},), "ast_decoder:decoder_wrong_output_format"),
    ],
)
def test_one_call(output, error):
    checked = check("simple_python", "python", [REQUIRED], output, [{"a.f": {"x": [1], "y": [2, ""]}}])
    assert (checked.valid, checked.error_type, bool(checked.reason)) == (not error, error, bool(error))


def test_what_must_be_given_is_what_the_answers_say():
    answers = [{"a.f": {"x": [1], "y": [2]}}]
    assert check("simple", "python", [REQUIRED], [{"a.f": {"x": 1}}], answers).error_type == F + "missing_optional"


def test_parallel_calls_are_taken_greedily():
    functions = [function(a="integer")]
    answers = [{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}]
    calls = [{"f": {"a": 1}}, {"f": {"a": 2}}]
    found = check("parallel", "python", functions, calls, answers)
    assert found.error_type == "parallel_function_checker_no_order:cannot_find_match"
    assert check("parallel", "python", functions, calls[::-1], answers).valid
    found = check("parallel_multiple", "python", functions, calls[:1], answers)
    assert found.error_type == "parallel_function_checker_no_order:wrong_count"
    assert check("live_parallel", "python", functions, [], []).valid


def test_of_several_functions_the_expected_one_is_looked_up():
    functions = [function(b="string"), {**function(a="integer"), "name": "g"}]
    answers = [{"g": {"a": [1]}}]
    assert check("multiple", "python", functions, [{"g": {"a": 1}}], answers).valid
    assert check("live_multiple", "python", functions, [{"f": {"b": ""}}], answers).error_type == F + "wrong_func_name"
    assert check("multiple", "python", functions, [], answers).error_type == "multiple_function_checker:wrong_count"


@pytest.mark.parametrize(
    ("output", "called"),
    [(None, False), ([], False), ([{}], False), ("text", False), ([{"f": 1}], False), ([{"unknown": {}}], True)],
)
def test_relevance_asks_only_whether_anything_is_called(output, called):
    irrelevant = check("live_irrelevance", "python", [], output, [])
    assert (irrelevant.valid, irrelevant.error_type) == (
        (False, "irrelevance_error:decoder_success") if called else (True, "")
    )
    relevant = check("live_relevance", "python", [], output, [])
    assert (relevant.valid, relevant.error_type) == (
        (True, "") if called else (False, "relevance_error:decoder_failed")
    )


@pytest.mark.parametrize(
    ("functions", "output", "answers", "error"),
    [
        ([function(a="number")], [{"f": {"a": 1}}], [{"f": {"a": [1]}}], "unknown_type"),
        ([function(a=("array", "object"))], [{"f": {"a": [1]}}], [{"f": {"a": [[1]]}}], "unknown_type"),
        ([function(a="array")], [{"f": {"a": [1]}}], [{"f": {"a": [[1]]}}], "KeyError"),
        ([function(a="float")], [{"f": {"a": 10**400}}], [{"f": {"a": [1.0]}}], "OverflowError"),
        ([function(a=("array", "dict"))], [{"f": {"a": [1]}}], [{"f": {"a": ["", [{}]]}}], "AttributeError"),
        ([{"name": "f", "parameters": {"properties": {}}}], [{"f": {}}], [{"f": {}}], "KeyError"),
        ([], [{"f": {}}], [{"f": {}}], "IndexError"),
    ],
)
def test_where_the_reference_raises_there_is_no_verdict_and_it_says_so(functions, output, answers, error):
    found = check("simple", "python", functions, output, answers)
    assert (found.valid, found.error_type) == (None, f"reference_raises:{error}")
    assert "reference" in found.reason


def test_an_unknown_type_matters_only_for_an_argument_that_is_given():
    found = check(
        "simple", "python", [function(a="number", b="integer")], [{"f": {"b": 1}}], [{"f": {"a": [""], "b": [1]}}]
    )
    assert found == Checked(True)


# Every rule at once: random calls against rules that were written without looking at the code. --------------------


@pytest.mark.parametrize("rows", ["made", "BFCL's own"])
def test_compat_and_the_independent_rules_agree_on_mutated_calls(rows):
    if rows != "made" and not (DATA / "bfcl").is_dir():
        pytest.skip("no BFCL rows here")
    theirs = None if rows == "made" else bfcl_calls.read_rows(DATA / "bfcl")
    found = bfcl_agreement.differential(1500, seed=20, rows=theirs)
    assert found.same == found.calls == 1500, "\n".join(found.differences)
    assert len(found.words) >= 15
    assert max(found.words.values()) < 750  # no rule alone decides


def test_folding():
    assert fold("It's a, b./-_*^ C!") == 'it"sabc!'


HOSTILE = ("[[1],", "[", "a:b,", "a:\n", "new HashMap<", 'put("', "add(", "new ArrayList<>(Arrays.asList(", "1,", " ")


@pytest.mark.parametrize("language", ["java", "javascript"])
def test_no_source_text_stalls_the_converters(language):
    # The reference's own patterns take exponential time on some of these.
    start = time.process_time()
    for word in bfcl_calls.TYPES[language]:
        for unit in HOSTILE:
            for text in (
                unit * (30_000 // len(unit)),
                "{" + unit * (30_000 // len(unit)) + "}",
                "new int[]{" + unit * 99,
            ):
                one((word, "integer"), [1], text, language)
    assert time.process_time() - start < 15  # a hang, not a speed
