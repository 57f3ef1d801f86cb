"""Every scorer by its name, as `qualgate score` reaches it: files in, rows out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import UsageError
from qualgate.records import Evalset
from qualgate.sandbox import probe
from qualgate.scoring import code, registry
from tests.scoring.cases import table
from tests.tables import each_row

HERMES = '<tool_call>\n{"name": "f", "arguments": {"a": 5}}\n</tool_call>'
TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}]
BFCL = {
    "tools": [{"name": "f", "parameters": {"type": "dict", "properties": {"a": {"type": "float"}}, "required": ["a"]}}],
    "expected_calls": [{"f": {"a": [5.0]}}],
}
CODE = {"prompt": "def add(a, b):\n", "entry_point": "add", "tests": "def check(c):\n    assert c(1, 2) == 3\n"}


def score(tmp_path, scorer: str, body: dict[str, Any], output: Any, *options: str) -> dict[str, Any]:
    """The row of one case and one output: a text, or decoded calls."""
    said = {"text": output} if isinstance(output, str) else {"calls": output}
    (tmp_path / "cases.jsonl").write_text(json.dumps({"id": "1", **body}) + "\n")
    (tmp_path / "outputs.jsonl").write_text(json.dumps({"id": body.get("id", "1"), **said}) + "\n")
    files = [str(tmp_path / name) for name in ("cases.jsonl", "outputs.jsonl", "rows.jsonl")]
    done = CliRunner().invoke(app, ["score", "--scorer", scorer, *options, *files[:2], "--json", files[2]])
    assert done.exit_code == 0, str(done.exception or done.output)
    [row] = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    return row


RIGHT_AND_WRONG = table("right_and_wrong")


@pytest.mark.parametrize("what", RIGHT_AND_WRONG)
def test_a_right_answer_is_right_and_a_wrong_one_is_not(tmp_path, what):
    body, right, wrong, options = RIGHT_AND_WRONG[what]
    name = what.partition(",")[0]
    assert score(tmp_path, name, body, right, *options)["verdict"] is True
    row = score(tmp_path, name, body, wrong, *options)
    assert row["verdict"] is False
    assert row["error_type"]


def test_code_is_run_in_a_sandbox_or_not_at_all(tmp_path, monkeypatch):
    if probe().tier:
        assert score(tmp_path, "code", CODE, "    return a + b\n")["verdict"] is True
        assert score(tmp_path, "code", CODE, "    return a - b\n")["error_type"] == "wrong_value"
    monkeypatch.setattr(code, "local_sandbox", lambda: None)
    row = score(tmp_path, "code", CODE, "    return a + b\n")
    assert (row["verdict"], row["error_type"]) == (None, "no_sandbox")


def test_every_shipped_scorer_is_tried_here():
    tried = {what.partition(",")[0] for what in RIGHT_AND_WRONG} | {"code", "state"}  # state: tools/test_state.py
    assert tried == {scorer.name for scorer in registry.SHIPPED}


def test_a_filter_is_part_of_the_version_and_says_when_it_finds_nothing(tmp_path):
    row = score(tmp_path, "exact_match", {"answer": "18"}, "eighteen", "--filter", "strict-match")
    assert (row["verdict"], row["error_type"]) == (False, "invalid")
    assert row["scorer"].endswith(" strict-match")
    done = CliRunner().invoke(app, ["score", "--scorer", "exact_match", "--filter", "strikt", "a.jsonl", "b.jsonl"])
    assert "strict-match" in str(done.exception or done.output)


DIALECT = {"tools": TOOLS, "expected_calls": [{"name": "f", "arguments": {"a": 5}}]}
MISTRAL = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 5}}]'


@pytest.mark.parametrize(
    "answer",
    ["[f(a=5)]", '<|python_tag|>{"name": "f", "parameters": {"a": 5}}', '{"name": "f", "arguments": {"a": 5}}', MISTRAL,
     "<tool_call><function=f><parameter=a>5</parameter></function></tool_call>", HERMES],
)  # fmt: skip
def test_without_a_dialect_a_call_is_found_however_it_is_written(tmp_path, answer):
    assert score(tmp_path, "tool_call", DIALECT, answer)["verdict"] is True
    assert score(tmp_path, "tool_call", DIALECT, answer.replace("5", "6"))["error_type"] == "wrong_arguments"
    assert score(tmp_path, "tool_call", {**DIALECT, "expected_calls": []}, answer)["error_type"] == "extra_call"
    assert score(tmp_path, "tool_call", DIALECT, answer.replace("f", "g"))["verdict"] is False, "no tool that exists"


def test_a_broken_hermes_call_is_no_other_dialects(tmp_path):
    for broken in (HERMES[:-1], HERMES.replace("}}", "}"), HERMES + "</tool_call>"):
        assert score(tmp_path, "tool_call", DIALECT, broken)["verdict"] is False


def test_a_declared_parser_that_is_the_wrong_one_says_nothing_of_the_model(tmp_path):
    for body, options in (({**DIALECT, "dialect": "hermes"}, ()), (DIALECT, ("--dialect", "hermes"))):
        row = score(tmp_path, "tool_call", body, MISTRAL, *options)
        assert (row["verdict"], row["error_type"]) == (None, "call_unread"), "wrong, if the parser is right"
        assert "mistral" in row["reason"]
        row = score(tmp_path, "tool_call", {**body, "expected_calls": []}, MISTRAL, *options)
        assert (row["verdict"], row["error_type"]) == (None, "parser"), "right, if the parser is right"
        for answer in ("I cannot.", HERMES[:-1], MISTRAL.replace('"f"', '"g"')):
            assert score(tmp_path, "tool_call", body, answer, *options)["verdict"] is False


def test_the_reference_answer_of_a_case_says_that_hermes_was_asked_for(tmp_path):
    body = {**DIALECT, "answer": HERMES}
    assert score(tmp_path, "tool_call", body, HERMES)["verdict"] is True
    row = score(tmp_path, "tool_call", body, MISTRAL)
    assert row["verdict"] is False
    assert "not the model's fault if the parser is another: mistral" in row["reason"]
    assert score(tmp_path, "tool_call", body, MISTRAL, "--dialect", "auto")["verdict"] is True


def test_a_dialect_may_be_given_for_all_cases_that_declare_none(tmp_path):
    row = score(tmp_path, "tool_call", DIALECT, MISTRAL, "--dialect", "mistral")
    assert row["verdict"] is True
    assert row["scorer"].endswith(" mistral")
    own = score(tmp_path, "tool_call", {**DIALECT, "dialect": "mistral"}, MISTRAL, "--dialect", "hermes")
    assert own["verdict"] is True
    for scorer, name, said in (
        ("tool_call", "klingon", "no dialect 'klingon'"),
        ("json", "hermes", "reads no dialect"),
    ):
        with pytest.raises(UsageError, match=said):
            registry.in_dialect(registry.find(scorer), name)


def test_only_gsm8ks_filters_bring_gsm8ks_ignored_texts(tmp_path):
    for name, answer, said, verdict in (
        ("flexible-extract", "1,000", "it is $1000", True), ("strict-match", "1,000", "#### 1000.", True),
        ("none", "1,000", "1000", False), ("none", "a #### b", "b", False), ("none", "1,000", "1,000", True),
        ("lowercase", "1,000", "1000", False), ("remove_whitespace", "yes", "Yes", False),
    ):  # fmt: skip
        row = score(tmp_path, "exact_match", {"answer": answer}, said, "--mode", "compat", "--filter", name)
        assert row["verdict"] is verdict, (name, said)
    assert score(tmp_path, "exact_match", {"answer": "1,000"}, "1000", "--mode", "compat")["verdict"] is False


def test_a_filter_that_can_never_give_a_text_is_refused(tmp_path):
    for name in ("regex_pos", "take_first_k", "map"):
        with pytest.raises(UsageError, match="that gives one text; there are: none, strict-match"):
            registry.filtered(registry.find("exact_match"), name)
    options = ("--filter", "multi_choice_regex")
    assert (
        score(tmp_path, "exact_match", {"answer": "(B)", "choices": ["x", "y"]}, "it is y", *options)["verdict"] is True
    )
    for more in ({}, {"choices": "ab"}, {"choices": ["a"] * 27}):
        with pytest.raises(AssertionError, match="multi_choice_regex needs `choices`"):
            score(tmp_path, "exact_match", {"answer": "(B)", **more}, "B", *options)


def test_decoded_calls_cannot_be_filtered(tmp_path):
    with pytest.raises(AssertionError, match="reads `text`, not `calls`"):
        score(tmp_path, "tool_call", DIALECT, [{"name": "f", "arguments": {"a": 5}}], "--filter", "none")


def test_a_category_without_ast_rules_is_refused_in_compat(tmp_path):
    body = {**BFCL, "category": "multi_turn_base"}
    with pytest.raises(AssertionError, match="have no AST rules"):
        score(tmp_path, "tool_call", body, [{"name": "f", "arguments": {"a": 5.0}}], "--mode", "compat")


@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_openais_tool_calls_are_unwrapped(tmp_path, mode):
    def row(arguments: Any, **more: Any) -> dict[str, Any]:
        said = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}, **more}
        return score(tmp_path, "tool_call", BFCL, [said], "--mode", mode)

    assert row('{"a": 5.0}')["verdict"] is True
    assert row({"a": 5.0})["verdict"] is True
    assert row('{"a": 5.0}', index=0)["verdict"] is True
    for wrong in ('{"a": 6.0}', '{"a": 5.0', "", "[5.0]", "5.0", [5.0], None):
        assert row(wrong)["verdict"] is False, wrong
    assert row('{"a": 5.0}', type="custom")["verdict"] is False


@pytest.mark.parametrize(
    ("category", "right", "wrong"),
    [
        ("irrelevance", ["no", ""], {HERMES: "extra_call"}),
        ("live_irrelevance", ["no"], {HERMES: "extra_call"}),
        ("live_relevance", [HERMES, HERMES * 2, HERMES.replace("5", "6")],
         {"no": "no_call", HERMES.replace("5", '"x"'): "arguments", HERMES.replace('"f"', '"g"'): "unknown_tool"}),
    ],
)  # fmt: skip
def test_bfcls_relevance_needs_no_expected_calls(tmp_path, category, right, wrong):
    body = {"tools": TOOLS, "category": category}
    for answer in right:
        assert score(tmp_path, "tool_call", body, answer)["verdict"] is True
    for answer, word in wrong.items():
        row = score(tmp_path, "tool_call", body, answer)
        assert (row["verdict"], row["error_type"]) == (False, word)


def test_other_categories_need_expected_calls_and_given_ones_count(tmp_path):
    assert score(tmp_path, "tool_call", {**DIALECT, "category": "live_simple"}, HERMES)["verdict"] is True
    for body in (
        {"category": "simple"},
        {"category": ["relevance"]},
        {"category": "relevance", "expected_calls": "any call"},
    ):
        with pytest.raises(AssertionError, match="needs `expected_calls`"):
            score(tmp_path, "tool_call", {"tools": TOOLS, **body}, HERMES)


@each_row(("name", "mode", "body", "taught"), table("mistakes"))
def test_a_mistake_in_a_case_is_met_with_what_was_found_and_what_to_write(name, mode, body, taught):
    scorer = registry.find(name, mode)
    evalset = Evalset(name="set", version="1", sha256="", metrics=scorer.metrics)
    found = "\n".join(scorer.unscorable({"id": "1", **body}, evalset))
    assert [words for words in taught if words not in found] == [], found


WRONG_NAMES = [
    (lambda: registry.find("exact"), "f1, f1.drop, refusal, ifeval, reasoning. Did you mean exact_match?"),
    (lambda: registry.find("f1", "compat"), "no compat mode, only: strict. With one: exact_match, tool_call, state."),
    (lambda: registry.filtered(registry.find("numeric"), "flexible_extract"), "Did you mean flexible-extract?"),
    (
        lambda: registry.filtered(registry.find("numeric"), "regex_pos"),
        "no filter 'regex_pos' that gives one text; there are: none",
    ),
    (
        lambda: registry.in_dialect(registry.find("tool_call"), "hermess"),
        "no dialect 'hermess'; there are: auto, hermes",
    ),
]


@pytest.mark.parametrize(("look", "said"), WRONG_NAMES)
def test_a_wrong_name_is_met_with_the_nearest_and_with_all(look, said):
    with pytest.raises(UsageError) as error:
        look()
    assert said in str(error.value)


def test_expected_calls_of_bfcls_shape_must_call_a_tool_that_is_there():
    scorer = registry.find("tool_call")
    evalset = Evalset(name="set", version="1", sha256="", metrics=scorer.metrics)
    assert list(scorer.unscorable(BFCL, evalset)) == []
    [fault] = scorer.unscorable({**BFCL, "expected_calls": [{"g": {"a": [5.0]}}]}, evalset)
    assert "calls 'g', which no tool is called" in fault
