"""Anyone's outputs scored, through the command: rows for machines, a summary for people, and every fault named."""

from __future__ import annotations

import json
import random
from functools import reduce
from typing import Any

import pytest
from scipy.stats import binomtest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import UsageError
from qualgate.pipeline.score_files import Scored, score_files
from qualgate.records import Case, Evalset
from qualgate.records.identity import case_hash
from qualgate.scoring import MAX_ANSWER, code, registry, score
from tests.pipeline.outputs import scored_files, write

TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}]
CALL = {"tools": TOOLS, "expected_calls": [{"name": "f", "arguments": {"a": 1}}]}
SCHEMA = {"schema": {"type": "object", "required": ["a"]}}


@pytest.fixture
def scored(tmp_path):
    """Score (case, output) pairs, ids given in order; returns the Scored. Text may stand for a whole output."""

    def run(scorer: str, pairs: list[tuple[dict, dict | str]], **options) -> Scored:
        cases = [{"id": f"c{n}", **case} for n, (case, _) in enumerate(pairs)]
        said = [output if isinstance(output, dict) else {"text": output} for _, output in pairs]
        outputs = [{"id": f"c{n}", **output} for n, output in reversed(list(enumerate(said)))]
        return scored_files(tmp_path, cases, outputs, scorer, **options)

    return run


def verdicts(found: Scored) -> list[bool | None]:
    return [row.score.verdict for row in found.rows]


def test_each_scorer_judges_without_a_model_or_a_store(scored):
    assert verdicts(scored("exact_match", [({"answer": "Yes."}, "Yes."), ({"answer": "Yes."}, "yes")])) == [True, False]
    assert verdicts(scored("numeric", [({"answer": 18}, "#### 18.0"), ({"answer": "18"}, "17")])) == [True, False]
    assert verdicts(scored("json", [(SCHEMA, '{"a": 1}'), (SCHEMA, "{}"), (SCHEMA, "nix")])) == [True, False, False]
    right, wrong = ({"calls": [{"name": "f", "arguments": {"a": number}}]} for number in (1, 2))
    hermes = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    assert verdicts(scored("tool_call", [(CALL, right), (CALL, wrong), (CALL, hermes)])) == [True, False, True]


def test_calls_may_be_decoded_as_bfcl_decodes_them_and_a_bad_shape_is_wrong(scored):
    outputs = [{"calls": [{"f": {"a": 1}}]}, {"calls": [{"f": 1}]}, {"calls": "f(a=1)"}, {"calls": []}]
    found = scored("tool_call", [(CALL, output) for output in outputs])
    assert [row.score.error_type for row in found.rows] == ["", "call_shape", "call_shape", "no_call"]


def test_a_row_is_the_score_that_a_run_would_store(scored):
    texts = ["4", "so 5", "", "\ud800", "x" * (MAX_ANSWER + 1)]
    found = scored("numeric", [({"answer": "4"}, text) for text in texts])
    evalset = Evalset(name="set", version="1", sha256="", metrics=("numeric",))
    for row, text in zip(found.rows, texts, strict=True):
        [stored] = score(Case(evalset="set", body={"id": "1", "answer": "4"}), evalset, text, "eos")
        assert row.score == stored


def test_rows_stand_in_the_cases_order_with_all_keys_of_a_score_row(scored):
    case = {"answer": "4", "cluster": "g", "tags": ["t"]}
    first, second = scored("exact_match", [(case, "4"), ({"answer": "5"}, "4")]).rows
    assert first.as_json() == {
        "id": "c0", "metric": "exact_match", "value": 1.0, "verdict": True, "error_type": "", "extracted": "4",
        "reason": "", "case_hash": case_hash({"id": "c0", **case}), "scorer": "exact_match/1", "cluster": "g",
        "tags": ["t"],
    }  # fmt: skip
    assert second.as_json()["id"] == "c1"
    assert "cluster" not in second.as_json()


def test_another_metric_of_the_scorer_may_be_asked_for(scored):
    assert verdicts(scored("json", [({}, "{}"), ({}, "{")], metric="json.valid")) == [True, False]
    with pytest.raises(UsageError, match=r"no metric 'json.shema'; did you mean 'json.schema'"):
        scored("json", [(SCHEMA, "{}")], metric="json.shema")


def test_normalizers_and_lenient_modes_are_those_of_an_evalset(scored):
    assert verdicts(scored("exact_match", [({"answer": "Yes"}, " yes")], normalizers=("casefold", "strip"))) == [True]
    assert verdicts(scored("json", [(SCHEMA, '```json\n{"a": 1}\n```')], lenient=("code_fence",))) == [True]


@pytest.mark.parametrize(("given", "right"), [((), True), (("code_fence",), False)])
def test_the_yaml_beside_the_cases_says_what_is_forgiven_where_no_option_does(tmp_path, given, right):
    write(tmp_path / "c.jsonl", [{"id": "a", "schema": {}}])
    (tmp_path / "c.yaml").write_text("name: c\nversion: '1'\nmetrics: [json.schema]\nlenient: [trailing_text]\n")
    write(tmp_path / "o.jsonl", [{"id": "a", "text": "{} is it"}])
    found = score_files(tmp_path / "c.jsonl", tmp_path / "o.jsonl", registry.find("json"), lenient=given)
    assert [row.score.verdict for row in found.rows] == [right]


def test_drops_f1_takes_spans_and_numbers_where_squads_takes_tokens(scored):
    """The values are those of lm-eval's own process_results (tests/scoring/test_overlap.py holds them together)."""
    spans = {"answer": [["Smith", "Jones"], ["3.0 yards"]]}
    pairs = [(spans, "Smith"), (spans, "3 yards"), (spans, "4 yards"), ({"answer": "non-stop"}, "non stop")]
    found = scored("f1.drop", pairs)
    assert [row.score.value for row in found.rows] == [0.5, 1.0, 0.0, 1.0]
    assert {row.score.scorer for row in found.rows} == {"f1.drop/1"}
    assert scored("f1", pairs[3:]).rows[0].score.value == 0.0
    for answer in ([], [[]], [["a", ""]], [["a", 3]], 3):
        with pytest.raises(UsageError, match=r"cases.jsonl:1: f1.drop needs `answer`"):
            scored("f1.drop", [({"answer": answer}, "a")])


WITHOUT_EFFECT = [
    (("numeric",), {"normalizers": ("casefold",)}, "--normalizer casefold: the scorer numeric (strict) reads no"),
    (
        ("exact_match", "compat"),
        {"normalizers": ("strip",)},
        "exact_match (compat) reads no normalizer; of exact_match",
    ),
    (("tool_call",), {"lenient": ("code_fence",)}, "no lenient mode code_fence; of json (strict), code (strict) it"),
    (("code",), {"lenient": ("trailing_text",)}, "of json (strict), multiple_choice (strict) it is an option"),
    (("multiple_choice",), {"lenient": ("code_fence",)}, "Leave it out, or choose such a scorer."),
    (("json",), {"lenient": ("code_fence", "trailing_text", "code_fence")}, "--lenient code_fence is given twice"),
    (("exact_match",), {"normalizers": ("strip", "strip")}, "--normalizer strip is given twice"),
]


@pytest.mark.parametrize(("scorer", "options", "said"), WITHOUT_EFFECT)
def test_an_option_that_would_change_no_score_is_refused(tmp_path, scorer, options, said):
    with pytest.raises(UsageError) as error:  # before any file is read
        score_files(tmp_path / "no cases", tmp_path / "no outputs", registry.find(*scorer), **options)
    assert said in str(error.value)


HERMES = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@pytest.mark.parametrize(
    ("cases", "outputs", "said"),
    [
        ([CALL, CALL], [{"calls": []}, {"calls": []}], "every row of {outputs} has `calls`, which are decoded already"),
        ([{**CALL, "dialect": "xlam"}, CALL], [{"text": HERMES}, {"calls": []}], None),
        ([{**CALL, "dialect": "xlam"}, CALL], [{"calls": []}, {"text": HERMES}], None),
        ([CALL], [{"text": ""}], None),
    ],
)
def test_a_dialect_that_no_answer_is_read_in_is_refused(tmp_path, cases, outputs, said):
    files = {name: tmp_path / f"{name}.jsonl" for name in ("cases", "outputs")}
    write(files["cases"], [{"id": str(n), **case} for n, case in enumerate(cases)])
    write(files["outputs"], [{"id": str(n), **output} for n, output in enumerate(outputs)])
    hermes = registry.in_dialect(registry.find("tool_call"), "hermes")
    if said is None:
        assert len(score_files(files["cases"], files["outputs"], hermes).rows) == len(cases)
        return
    with pytest.raises(UsageError) as error:
        score_files(files["cases"], files["outputs"], hermes)
    assert str(error.value).startswith(f"--dialect hermes: {said.format(**files)}")
    assert "Leave the option out" in str(error.value)


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ([{"name": "f", "arguments": {"a": 1}}], "must be one name with an object, as {"),
        ([{"f": {"a": 1}}], "where \"\" says that it may be left out; 'a' has 1"),
        ([{"f": [1]}], "must be one name with an object"),
        (None, "a list of calls as {"),
    ],
)
def test_the_shape_that_bfcl_wants_is_shown_by_an_example_that_it_takes(tmp_path, expected, said):
    write(tmp_path / "cases.jsonl", [{"id": "a", "tools": TOOLS, "expected_calls": expected}])
    write(tmp_path / "outputs.jsonl", [{"id": "a", "text": "[f(a=1)]"}])
    compat = registry.find("tool_call", "compat")
    with pytest.raises(UsageError) as error:
        score_files(tmp_path / "cases.jsonl", tmp_path / "outputs.jsonl", compat)
    assert said in str(error.value)
    example, _ = json.JSONDecoder().raw_decode(str(error.value).partition(" as ")[2])
    weather = {"properties": {key: {"type": "string"} for key in ("city", "unit")}, "required": ["city"]}
    case = {"id": "a", "tools": [{"name": "weather", "parameters": weather}], "expected_calls": [example]}
    write(tmp_path / "cases.jsonl", [case])
    write(tmp_path / "outputs.jsonl", [{"id": "a", "text": "[weather(city='Paris')]"}])
    assert verdicts(score_files(tmp_path / "cases.jsonl", tmp_path / "outputs.jsonl", compat)) == [True]


def test_every_scorer_reads_exactly_the_options_it_declares():
    """Each text below scores otherwise with the option than without it, where the scorer declares the option."""
    body = {"id": "1", "answer": "1E0", "choices": ["1E0", "2"], "schema": {}, "refuse": False, "pattern": "(A)"}
    texts = ("1e0", "```json\n1\n```", "1\nand so on", "The answer is (A), I think.")
    options = [("normalizers", ("casefold",)), ("lenient", ("code_fence",)), ("lenient", ("trailing_text",))]

    def values(scorer: registry.Scorer, **given) -> list[float | None]:
        evalset = Evalset(name="set", version="1", sha256="", metrics=scorer.metrics, **given)
        return [
            s.value for text in texts for s in scorer.function(Case(evalset="s", body=body), evalset, text).values()
        ]

    for scorer in registry.SHIPPED:
        if scorer.name in ("tool_call", "turns", "state", "ifeval", "code"):
            continue  # these read the case alone; code: test_code.py
        for option, given in options:
            declared = scorer.normalizes if option == "normalizers" else given[0] in scorer.lenient
            assert (values(scorer) != values(scorer, **{option: given})) is declared, (scorer.name, scorer.mode, given)


FAULTS = {
    "a missing id": ([{"id": "a", "text": "1"}], "cases.jsonl:2: no output for the id 'b'"),
    "an extra id": ([{"id": i, "text": "1"} for i in "abz"], "outputs.jsonl:3: no case has the id 'z'"),
    "a duplicate id": ([{"id": i, "text": "1"} for i in "aba"], "outputs.jsonl:3: duplicate id 'a'; first on line 1"),
    "no text": ([{"id": "a"}, {"id": "b", "text": "1"}], "outputs.jsonl:1: an output needs `text`; it is missing"),
    "text of another type": ([{"id": "a", "text": 1}, {"id": "b", "text": "1"}], "outputs.jsonl:1: an output needs"),
    "calls for a scorer of text": ([{"id": "a", "calls": []}, {"id": "b", "text": "1"}], "reads `text`, not `calls`"),
    "no id": ([{"text": "1"}, {"id": "b", "text": "1"}], "outputs.jsonl:1: `id` must be a text"),
    "no JSON": (['{"id": "a", ', {"id": "b", "text": "1"}], "outputs.jsonl:1: not a JSON object"),
    "an array": (["[]", {"id": "b", "text": "1"}], "outputs.jsonl:1: the file is one JSON array"),
    "a key twice": (['{"id": "a", "text": "1", "text": "2"}', {"id": "b", "text": "1"}], "'text' twice"),
    "an empty line": (["", {"id": "b", "text": "1"}], "outputs.jsonl:1: an empty line"),
    "a nesting bomb": (['{"id": "a", "calls": ' + "[" * 100_000, {"id": "b", "text": "1"}], "64 levels"),
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_of_the_outputs_is_named_and_nothing_is_written(tmp_path, what):
    rows, said = FAULTS[what]
    write(tmp_path / "cases.jsonl", [{"id": i, "answer": "1"} for i in "ab"])
    write(tmp_path / "outputs.jsonl", rows)
    out = tmp_path / "out.jsonl"
    files = [str(tmp_path / "cases.jsonl"), str(tmp_path / "outputs.jsonl"), "--json", str(out)]
    done = CliRunner().invoke(app, ["score", "--scorer", "numeric", *files])
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert done.exception.exit == 64
    assert not out.exists()


def test_every_fault_of_both_files_is_found_in_one_go(tmp_path):
    cases = [{"id": "a"}, {"id": "b", "answer": "none"}, {"id": "b", "answer": "1"}]
    with pytest.raises(UsageError) as error:
        scored_files(tmp_path, cases, [{"id": "a", "txt": ""}, "{"], "numeric")
    lines = [line.partition(": ")[0].rpartition("/")[2] for line in str(error.value).splitlines()]
    assert lines == ["cases.jsonl:1", "cases.jsonl:2", "outputs.jsonl:1", "outputs.jsonl:2"]


def test_a_line_that_is_no_utf8_and_a_file_that_is_not_there_are_named(tmp_path):
    write(tmp_path / "cases.jsonl", [{"id": "a", "answer": "1"}])
    (tmp_path / "outputs.jsonl").write_bytes(b'{"id": "a", "text": "\xff"}\n')
    with pytest.raises(UsageError, match=r"outputs.jsonl:1: not valid UTF-8 at byte 22"):
        score_files(tmp_path / "cases.jsonl", tmp_path / "outputs.jsonl", registry.find("numeric"))
    with pytest.raises(UsageError, match=r"nothing.jsonl: no such file$"):
        score_files(tmp_path / "cases.jsonl", tmp_path / "nothing.jsonl", registry.find("numeric"))
    write(tmp_path / "empty.jsonl", [])
    with pytest.raises(UsageError, match=r"empty.jsonl: no outputs"):
        score_files(tmp_path / "cases.jsonl", tmp_path / "empty.jsonl", registry.find("numeric"))


def test_what_a_model_says_is_scored_and_never_a_fault(scored):
    said = ["\ud800 4", "\0", "4\u202e", "[" * 100_000, "9" * 5000, "\x1b[1m 4", "x" * 1_500_000]
    found = scored("numeric", [({"answer": "4"}, text) for text in said])
    assert verdicts(found) == [True, False, True, False, False, True, False]


def test_the_rate_has_the_exact_interval_of_clopper_and_pearson(scored):
    found = scored("numeric", [({"answer": "4"}, "4" if number % 3 else "5") for number in range(40)])
    rate, truth = found.rate, binomtest(26, 40).proportion_ci(0.95, method="exact")
    assert (rate.n, rate.mean) == (40, 26 / 40)
    assert (rate.lower, rate.upper) == pytest.approx((truth.low, truth.high), rel=1e-9)
    assert found.error_counts == {"different": 14}
    one = scored("numeric", [({"answer": "4"}, "4")]).rate
    assert (one.lower, one.upper) == (pytest.approx(0.025), 1.0)


def test_cases_of_one_cluster_do_not_narrow_the_interval(scored):
    pairs = [({"answer": "4"}, "4" if number < 30 else "5") for number in range(40)]
    apart = scored("numeric", pairs).rate
    together = [({**case, "cluster": f"group {number // 4}"}, said) for number, (case, said) in enumerate(pairs)]
    grouped = scored("numeric", together).rate
    assert apart.mean == grouped.mean
    assert grouped.lower < apart.lower < apart.upper < grouped.upper


def test_a_case_that_nothing_can_judge_is_null_and_outside_the_rate(scored, monkeypatch):
    from qualgate.scoring import schema, structure

    def too_much(wanted, value, *, formats):
        if isinstance(value, dict):
            raise schema.CannotValidate("the check took more than a second")
        return "not an object"

    monkeypatch.setattr(structure, "first_error", too_much)
    deep = {"schema": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}}}
    found = scored("json", [(deep, '{"a": [1, 2, 3, 4, 5, 6]}'), (deep, "3")])
    assert verdicts(found) == [None, False]
    assert found.rows[0].as_json()["value"] is None
    assert found.rate.n == 1


def test_the_command_shows_a_summary_and_refuses_to_overwrite_its_input(tmp_path):
    write(tmp_path / "cases.jsonl", [{"id": i, "answer": "1"} for i in "ab"])
    write(tmp_path / "outputs.jsonl", [{"id": "a", "text": "1"}, {"id": "b", "text": "2"}])
    files = [str(tmp_path / "cases.jsonl"), str(tmp_path / "outputs.jsonl")]
    done = CliRunner().invoke(app, ["score", "--scorer", "numeric", *files])
    assert done.exit_code == 0
    assert "numeric: 2 rows, scorer numeric/6, strict mode" in done.stdout
    assert "50.00%   95 % interval 1.26% to 98.74%" in done.stdout
    assert "1  different" in done.stdout
    refused = CliRunner().invoke(app, ["score", "--scorer", "numeric", *files, "--json", files[1]])
    assert "would overwrite" in str(refused.exception)
    for options in (["--mode", "loose"], ["--normalizer", "upper"], ["--lenient", "all"]):
        refused = CliRunner().invoke(app, ["score", "--scorer", "numeric", *files, *options])
        assert isinstance(refused.exception, UsageError), options


# --------------------------------------------------------------------------------------------- hostile files


HELD = {  # a case and an output that each scorer takes
    "exact_match": ({"answer": "Paris"}, "Paris"),
    "numeric": ({"answer": 3.5, "tolerance": {"abs": 0.1, "rel": 0}}, "3.5"),
    "json": (
        {"schema": {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"pattern": "^a+$"}}}},
        '{"a": "a"}',
    ),
    "tool_call": ({**CALL, "dialect": "hermes"}, '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'),
    "multiple_choice": ({"choices": ["red", "blue"], "answer": "blue"}, "B"),
    "f1": ({"answer": ["the house", "home"]}, "house"),
    "f1.drop": ({"answer": [["a b", "3"], "x"]}, "3"),
    "refusal": ({"refuse": True}, "I cannot help with that."),
    "ifeval": ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}, "one two"),
    "code": ({"prompt": "def f(a):\n", "entry_point": "f", "tests": "assert f(1) == 2"}, "    return 2"),
}
ODD = [None, True, 0, -1, 1e308, 10**400, "", "x", "\0", "\ud800", "\u202e", [], {}, [[]], [None], {"": None}, [{}],
       ["x"] * 50, {"$ref": "#"}, "auto", "irrelevance", "(a+)+$", "9" * 5000, {"abs": -1}, {"abs": "x"}]  # fmt: skip
BROKEN = ['"', "{", "]", "\\", "NaN", "\0", "[" * 5000, '{"a":' * 5000, "9" * 100_000, "1e99999"]


def places(value: Any, at: tuple = ()) -> list[tuple]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, item in inner for place in places(item, (*at, key)))]


def altered(draw: random.Random, row: dict) -> str:
    """A row's line with one or two values replaced, removed or nested beyond sense, or with its text broken."""
    row = json.loads(json.dumps(row))
    for _ in range(draw.randint(1, 2)):
        *way, last = draw.choice(places(row)[1:])
        holder = reduce(lambda value, key: value[key], way, row)
        if draw.random() < 0.2:
            del holder[last]
        else:
            deep = reduce(lambda value, _: [value], range(draw.choice([30, 200])), 1)
            holder[last] = draw.choice([*ODD, deep])
        if draw.random() < 0.2:
            row[draw.choice(["id", "text", "calls", "repeat", "cluster", "tags", "category"])] = draw.choice(ODD)
        if len(places(row)) == 1:
            break
    line = json.dumps(row)
    cut = draw.randrange(len(line))
    return line if draw.random() < 0.9 else line[:cut] + draw.choice(BROKEN) + line[cut:]


def test_no_line_of_either_file_gives_anything_but_scores_or_a_usage_error(tmp_path, monkeypatch):
    """A slice of 4,000 such files, of which 8 found a reference to what is no schema."""
    monkeypatch.setattr(code, "local_sandbox", lambda: None)
    draw, outcomes = random.Random(8), {"scored": 0, "refused": 0}
    for turn in range(180):
        name = list(HELD)[turn % len(HELD)]
        body, said = HELD[name]
        files = {"cases": {"id": "a", **body}, "outputs": {"id": "a", "text": said}}
        hit = draw.choice(list(files))
        for file, row in files.items():
            write(tmp_path / file, [altered(draw, row) if file == hit else row])
        try:
            found = score_files(tmp_path / "cases", tmp_path / "outputs", registry.find(name))
            told = json.dumps([row.as_json() for row in found.rows], allow_nan=False)
            outcomes["scored"] += 1
        except UsageError as error:
            told = str(error)
            outcomes["refused"] += 1
        told.encode()
        assert all(line.isprintable() for line in told.splitlines())
    assert min(outcomes.values()) > 10
