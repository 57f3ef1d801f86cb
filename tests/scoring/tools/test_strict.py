"""Strict judging: what the reference gets wrong is right here, and parallel calls find every assignment."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from qualgate.records import Case, Evalset
from qualgate.scoring.tools import strict as strict_module
from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.expected import as_schema, fits, read_expected
from qualgate.scoring.tools.judge import category_of, compat_faults, score_compat, score_compat_decoded
from qualgate.scoring.tools.strict import FLAGS, Judged, read_calls, score_decoded
from tests.scoring.cases import table
from tests.tables import each_row
from tests.verification.references import bfcl_calls, bfcl_mutations

PROPERTIES = {
    "n": {"type": "float"},
    "i": {"type": "integer"},
    "s": {"type": "string"},
    "l": {"type": "tuple", "items": {"type": "any"}},
    "d": {"type": "dict", "properties": {"k": {"type": "float"}}},
    "x": {"type": "any"},
}
TOOLS = [
    {"name": "f", "parameters": {"type": "dict", "properties": PROPERTIES, "required": []}},
    {"name": "g", "parameters": {"type": "dict", "properties": {}}},
]


def judge(tools, expected, calls) -> Judged:
    """Decoded calls, judged strictly."""
    return strict_module.judge(tools, expected, read_calls(calls))


def strict(expected, *calls):
    """The first flag that does not hold ("" when all do)."""
    found = judge(TOOLS, expected, [{name: arguments} for name, arguments in calls])
    held = [bool(flag) for flag in found.flags.values()]
    assert held == sorted(held, reverse=True), "a flag holds only when those before it do"
    assert list(found.flags) == list(FLAGS)
    assert bool(found.error_type) == bool(found.reason) == (not all(held))
    return "" if all(held) else FLAGS[held.index(False)].partition(".")[2]


def accepts(accepted, given):
    """Whether the values and the types of one argument hold, both shapes of expected calls alike."""
    exactly = strict([{"name": "f", "arguments": {"x": accepted}}], ("f", {"x": given}))
    if not isinstance(accepted, dict):  # whose values are lists of accepted ones in BFCL's shape
        assert strict([{"f": {"x": ["?", accepted]}}], ("f", {"x": given})) in (exactly, "types", "correct")
        assert (strict([{"f": {"x": ["?", accepted]}}], ("f", {"x": given})) == "") == (exactly == "")
    return exactly


@each_row(("accepted", "given", "flag"), table("tools/accepted"))
def test_values_and_types(accepted, given, flag):
    if accepted == []:
        flag = "correct"  # an empty list says nothing of its items
    assert accepts(accepted, given) == flag


def test_flags_of_one_call_in_their_order():
    expected = [{"f": {"i": [1, 2], "s": ["a", ""], "x": ["v"]}}]
    assert strict(expected, ("f", {"i": 2, "x": "v"})) == ""
    assert strict(expected, ("f", {"i": 1, "s": "a", "x": "v"})) == ""
    assert strict(expected, ("f", {"i": 3, "x": "v"})) == "correct"
    assert strict(expected, ("f", {"i": 1, "x": "v", "n": 1.0})) == "correct"
    assert strict(expected, ("f", {"i": 1, "x": 5})) == "types"
    assert strict(expected, ("f", {"i": 1})) == "required"
    assert strict(expected, ("g", {})) == "function"
    assert strict(expected, ("f", {"i": "1", "x": "v"})) == "valid"
    assert strict(expected, ("h", {})) == "valid"
    assert strict(expected) == "valid"
    assert strict([]) == ""
    assert strict([], ("g", {})) == "function"


def test_a_dict_of_accepted_values():
    expected = [{"f": {"d": [{"k": [1.5, 2], "m": ["x", ""]}]}}]
    assert strict(expected, ("f", {"d": {"k": 2}})) == ""
    assert strict(expected, ("f", {"d": {"k": 1.5, "m": "x"}})) == ""
    assert strict(expected, ("f", {"d": {"m": "x"}})) == "correct"
    assert strict([{"f": {"l": [[{"k": ["a", "b"]}]]}}], ("f", {"l": [{"k": "b"}]})) == ""


def test_documented_types_become_json_schema():
    properties = {"a": {"type": "tuple", "items": {"type": "float"}}, "b": {"type": "any"}, "c": {"type": "HashMap"}}
    assert as_schema({"type": "dict", "properties": properties, "required": ["a"]}) == {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "number"}}, "b": {}, "c": {"type": "object"}},
        "required": ["a"],
    }
    plain = {"type": "object", "properties": {"a": {"type": ["number", "null"]}}, "additionalProperties": False}
    assert as_schema(plain) == plain


def test_an_unknown_documented_type_gives_no_verdict():
    found = judge(
        [{"name": "f", "parameters": {"type": "dict", "properties": {"a": {"type": "quux"}}}}], [], [{"f": {}}]
    )
    assert list(found.flags.values()) == [True, *[None] * 5]
    assert found.error_type == "schema_unusable"


@pytest.mark.parametrize("expected", [None, {}, [1], [{}], [{"f": 1}], [{"f": {"a": 1}}], [{"f": {}, "g": {}}]])
def test_expected_calls_of_neither_shape_are_refused(expected):
    with pytest.raises(ValueError, match="expected_calls"):
        judge(TOOLS, expected, [])


def test_parallel_calls_find_every_assignment_the_reference_misses():
    expected = [{"f": {"i": [1, 2]}}, {"f": {"i": [1]}}]
    for calls in ([{"f": {"i": 1}}, {"f": {"i": 2}}], [{"f": {"i": 2}}, {"f": {"i": 1}}]):
        assert judge(TOOLS, expected, calls).flags["tool_call.correct"] is True
    found = judge(TOOLS, expected, [{"f": {"i": 2}}, {"f": {"i": 2}}])
    assert (found.flags["tool_call.types"], found.flags["tool_call.correct"]) == (True, False)


def test_flags_of_parallel_calls_equal_those_of_the_best_assignment():
    rng = random.Random(2)
    seen = set()
    for _ in range(300):
        expected = [{"f": {"i": rng.sample(range(4), rng.randint(1, 3)), "x": rng.choice(([""], ["u", ""], [5], [""]))}}
                    for _ in range(rng.randint(1, 4))]  # fmt: skip
        calls = [{"i": rng.randrange(4)} | rng.choice(({}, {}, {"x": "u"}, {"x": 5})) for _ in expected]
        wanted = read_expected(expected)

        def reached(call, one):
            """0: an argument is missing, 1: a type differs, 2: a value differs, 3: right."""
            if any(key not in call and not options.optional for key, options in one.arguments.items()):
                return 0
            if "x" in call and not any(type(call["x"]) is type(value) for value in one.arguments["x"].values):
                return 1
            return 3 if all(fits(one.arguments[key], value) for key, value in call.items()) else 2

        best = max(
            min(reached(call, one) for call, one in zip(calls, order, strict=True))
            for order in itertools.permutations(wanted)
        )
        found = strict(expected, *(("f", call) for call in calls))
        assert found == ("required", "types", "correct", "")[best]
        seen.add(found)
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("calls", "accepted"),
    [
        ([{"i": n} for n in range(300)], [{"i": [299 - n]} for n in range(300)]),
        ([{"i": n // 2} for n in range(300)], [{"i": [n]} for n in range(300)]),
        ([{"i": n} for n in range(1000)], [{"i": [n]} for n in range(1000)]),
        ([{"i": 1}] * 300, [{"i": list(range(500))}] * 300),
    ],
    ids=["right", "wrong", "too many", "too many values"],
)
def test_a_thousand_calls_stall_nothing(calls, accepted):
    start = time.process_time()
    found = strict_module.judge(TOOLS, [{"f": one} for one in accepted], tuple(Call("f", call) for call in calls))
    assert time.process_time() - start < 10  # a hang, not a speed
    assert found.error_type in ("", "wrong_arguments", "too_many_calls")
    assert (found.flags["tool_call.correct"] is None) == (found.error_type == "too_many_calls")


def test_compat_flags_say_whether_calls_parse_and_are_right():
    expected = [{"f": {"i": [1], "s": ["a"]}}]

    def flags(calls, category="simple"):
        body = {"id": "1", "tools": TOOLS, "expected_calls": expected, "category": category}
        return [score.verdict for score in score_compat_decoded(Case(evalset="s", body=body), NO_SET, calls).values()]

    assert flags([{"f": {"i": 1, "s": "A."}}]) == [True, True]
    for wrong in ({"f": {"i": 2, "s": "a"}}, {"f": {"i": 1.0, "s": "a"}}, {"f": {"i": 1}}, {"g": {}}):
        assert flags([wrong]) == [True, False]
    assert flags(None) == [False, False]
    assert flags([{"g": {}}], "parallel") == [True, False]


CASE = Case(evalset="s", body={"id": "1", "tools": TOOLS[:1], "expected_calls": [{"f": {"i": [1], "s": ["a"]}}]})
NO_SET = Evalset(name="s", version="1", sha256="", metrics=FLAGS)


@pytest.mark.parametrize(
    ("text", "verdict", "error"),
    [
        ("[f(i=1, s='A')]", True, ""),
        ('[{"f": {"i": 1, "s": "a"}}]', True, ""),
        ("[f(i=2, s='a')]", False, "value_error:others"),
        ("I cannot.", False, "ast_decoder:decoder_failed"),
        ("[{}]", False, "ast_decoder:decoder_wrong_output_format"),
    ],
)
def test_compat_scores_of_a_text(text, verdict, error):
    found = score_compat(CASE, NO_SET, text)["tool_call.correct"]
    assert (found.verdict, found.error_type, found.scorer) == (verdict, error, "tool_call.compat/3")


def test_decoded_calls_of_either_shape_are_scored():
    for calls in ([{"f": {"i": 1, "s": "a"}}], [{"name": "f", "arguments": {"i": 1, "s": "a"}}]):
        assert all(score.verdict for score in score_decoded(CASE, NO_SET, calls).values())
        assert all(score.verdict for score in score_compat_decoded(CASE, NO_SET, calls).values())
    for calls in (None, "text", [1], [{"name": "f", "arguments": "{}"}], [{"f": {}, "g": {}}]):
        assert not any(score.verdict for score in score_decoded(CASE, NO_SET, calls).values())
        assert score_decoded(CASE, NO_SET, calls)["tool_call.parses"].error_type == "call_shape"
        assert score_compat_decoded(CASE, NO_SET, calls)["tool_call.correct"].verdict is False


def test_without_a_category_the_case_says_which_it_would_be():
    one, two = [{"g": {}}], [{"g": {}}, {"g": {}}]
    alone = [TOOLS[1]]
    for tools, expected, category in (
        (alone, [], "irrelevance"),
        (alone, one, "simple"),
        (TOOLS, one, "multiple"),
        (alone, two, "parallel"),
        (TOOLS, two, "parallel_multiple"),
    ):
        assert category_of({"tools": tools, "expected_calls": expected}) == category
    assert category_of({"category": "live_relevance"}) == "live_relevance"


def test_what_compat_cannot_judge_is_said_beforehand():
    def faults(**changed):
        return list(compat_faults({**CASE.body, **changed}, NO_SET))

    assert faults(tools=TOOLS[:1]) == []
    assert faults(tools=TOOLS[:1], category="irrelevance", expected_calls=None) == []
    assert "`required`" in faults(tools=TOOLS)[0]  # the second tool has none
    wrong_shapes = ([{}], [{"name": "f", "arguments": {}}], [{"f": {"a": 1}}], None)
    for fault in (
        {"tools": []},
        {"tools": [1]},
        {"category": 1},
        *({"expected_calls": calls} for calls in wrong_shapes),
    ):
        assert len(faults(**{"tools": TOOLS[:1], **fault})) == 1, fault


def test_the_category_says_the_language():
    body = {"id": "1", "category": "simple_java", "tools": [{"name": "f", "parameters": {
        "properties": {"a": {"type": "long"}}, "required": []}}], "expected_calls": [{"f": {"a": [5]}}]}  # fmt: skip
    assert score_compat_decoded(Case(evalset="s", body=body), NO_SET, [{"f": {"a": "5L"}}])["tool_call.correct"].verdict


def test_what_is_remembered_of_a_case_and_checked_quickly_changes_no_verdict(monkeypatch):
    """Against judging with nothing remembered and every call through the validator."""
    rng, pairs = random.Random(11), []
    for _ in range(250):
        row = bfcl_calls.made_row(rng)
        output = bfcl_calls.right_output(rng, row)
        pairs += [(row, said) for said in (output, bfcl_mutations.mutated(rng, row, output)) if isinstance(said, list)]
    quickly = [judge(row["functions"], row["answers"], output) for row, output in pairs]
    again = [judge(row["functions"], row["answers"], output) for row, output in pairs]
    monkeypatch.setattr(strict_module, "_bytes_of", lambda value: None)
    monkeypatch.setattr(strict_module, "quick", lambda schema: None)
    assert quickly == again == [judge(row["functions"], row["answers"], output) for row, output in pairs]
    assert {found.flags["tool_call.correct"] for found in quickly} == {True, False}


def test_a_case_that_is_changed_in_place_is_read_anew():
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]
    expected = [{"name": "f", "arguments": {"a": 1}}]
    assert judge(tools, expected, [{"f": {"a": 1}}]).flags["tool_call.correct"] is True
    expected[0]["arguments"]["a"] = True  # marshalled apart from 1
    assert judge(tools, expected, [{"f": {"a": 1}}]).error_type == "wrong_type"
    tools[0]["parameters"]["properties"]["a"]["type"] = "boolean"
    assert judge(tools, expected, [{"f": {"a": 1}}]).error_type == "arguments"
    assert judge(tools, expected, [{"f": {"a": True}}]).flags["tool_call.correct"] is True


def test_what_is_no_plain_value_or_too_much_is_judged_without_being_remembered():
    many = [{"name": f"f{n}", "parameters": {"type": "object", "description": "d" * 200}} for n in range(400)]
    before = strict_module._offered_by.cache_info().currsize
    assert judge(many, [{"name": "f7", "arguments": {}}], [{"f7": {}}]).flags["tool_call.correct"] is True
    odd = [{"name": "f", "parameters": {"type": "object"}, "also": object()}]
    assert judge(odd, [{"name": "f", "arguments": {}}], [{"f": {}}]).flags["tool_call.correct"] is True
    assert strict_module._offered_by.cache_info().currsize == before
