"""What every family promises: enough templates, same seed same cases, references that pass their own checks."""

from __future__ import annotations

import json
import random
import re

import pytest
from jsonschema import Draft202012Validator

from qualgate_evalsets.families import FAMILIES, family
from qualgate_evalsets.families.grounded_qa import NOT_STATED
from qualgate_evalsets.families.tool_calls import NO_TOOL
from qualgate_evalsets.making.values import Values


def draw(name: str, split: str, count: int, seed: int = 0) -> tuple[list[dict], set[str]]:
    """`count` cases over all templates and levels, and every value that went into them."""
    rng = random.Random(seed)
    module = family(name)
    templates = list(module.TEMPLATES)
    cases, drawn = [], set()
    for number in range(count):
        values = Values(rng, split)
        cases.append(module.make_case(values, rng.random(), templates[number % len(templates)]))
        drawn |= values.drawn
    return cases, drawn


@pytest.fixture(scope="module", params=FAMILIES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_family_has_at_least_25_templates_with_wordings_of_their_own(name: str):
    assert len(family(name).TEMPLATES) >= 25
    rng = random.Random(0)
    prompts = [family(name).make_case(Values(rng, "eval"), 0.5, key) for key in family(name).TEMPLATES]
    # What is left of a prompt without its values: template words and punctuation.
    if name not in ("code", "grounded_qa", "tool_calls", "json_extract"):  # those add words at random
        shapes = {re.sub(r"\b[a-z]{4,6}\b|\d+", "#", case["messages"][0]["content"].lower()) for case in prompts}
        assert len(shapes) >= 25


def test_no_value_of_an_eval_case_is_ever_drawn_for_training(name: str):
    _, train = draw(name, "train", 1500)
    _, held_out = draw(name, "eval", 400)
    assert held_out
    assert not train & held_out


def test_every_case_has_one_canonical_answer_and_names_its_template(name: str):
    for case in draw(name, "eval", 200)[0]:
        assert case["task"] == name
        assert case["answer"]
        assert case["answer"] == case["answer"].strip()
        assert sum(tag.startswith("template:") for tag in case["tags"]) == 1


def test_harder_levels_ask_for_longer_answers():
    def mean_length(name: str, level: float) -> float:
        rng, module = random.Random(0), family(name)
        answers = [module.make_case(Values(rng, "eval"), level, key)["answer"] for key in list(module.TEMPLATES) * 3]
        return sum(map(len, answers)) / len(answers)

    for name in ("arithmetic", "transform", "reformat", "json_extract"):
        assert mean_length(name, 1.0) > 1.2 * mean_length(name, 0.0), name


def test_arithmetic_steps_are_true_sums_that_end_in_the_answer():
    for case in draw("arithmetic", "eval", 400)[0]:
        *steps, last = case["answer"].split("\n")
        assert re.fullmatch(r"Answer: \d+( r \d+)?", last)
        for step in steps:
            if match := re.fullmatch(r"([\d+*-]+)=(\d+)", step):
                assert eval(match[1]) == int(match[2]), step
            elif match := re.fullmatch(r"(\d+)/(\d+)=(\d+) r (\d+)", step):
                assert divmod(int(match[1]), int(match[2])) == (int(match[3]), int(match[4])), step


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (r"(\d+) \+ (\d+) = \?", lambda a, b: a + b),
        (r"(\d+) - (\d+) = \?", lambda a, b: a - b),
        (r"(\d+) \* (\d+) = \?", lambda a, b: a * b),
        (r"What remains of (\d+) divided by (\d+)\?", lambda a, b: a % b),
        (r"Take (\d+) away from (\d+)\.", lambda a, b: b - a),
        (r"Mean of (\d+), (\d+) and (\d+)\?", lambda a, b, c: (a + b + c) / 3),
    ],
)
def test_arithmetic_answers_its_question(question: str, answer):
    cases = draw("arithmetic", "eval", 520)[0]
    asked = [(re.fullmatch(question, case["messages"][0]["content"]), case) for case in cases]
    found = [(match, case) for match, case in asked if match]
    assert len(found) >= 10
    for match, case in found:
        assert int(case["answer"].rsplit(" ", 1)[1]) == answer(*map(int, match.groups()))


def test_extraction_answers_are_compact_json_that_the_schema_accepts():
    kinds = set()
    for case in draw("json_extract", "eval", 400)[0]:
        Draft202012Validator.check_schema(case["schema"])
        record = json.loads(case["answer"])
        Draft202012Validator(case["schema"]).validate(record)
        assert list(record) == case["schema"]["required"]
        assert json.dumps(record, separators=(",", ":")) == case["answer"]
        kinds |= {type(value).__name__ for value in record.values()}
    assert kinds == {"str", "int", "float", "bool", "list", "NoneType"}


def test_a_calls_text_is_the_expected_calls_and_each_fits_an_offered_tool():
    situations = set()
    for case in draw("tool_calls", "eval", 400)[0]:
        texts = re.findall(r"<tool_call>\n(.*)\n</tool_call>", case["answer"])
        assert [json.loads(text) for text in texts] == case["expected_calls"]
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case["tools"]}
        for call in case["expected_calls"]:
            Draft202012Validator(schemas[call["name"]]).validate(call["arguments"])
        situation = next(tag for tag in case["tags"] if tag.startswith("situation:"))
        situations.add(situation)
        assert (case["answer"] == NO_TOOL) == (situation == "situation:none") == (not case["expected_calls"])
        assert (len(case["expected_calls"]) == 2) == (situation == "situation:parallel")
        assert "{" not in case["messages"][0]["content"]
        assert "[" not in case["messages"][0]["content"]
    assert len(situations) == 4


def test_code_references_define_the_entry_point_and_pass_their_tests():
    for case in draw("code", "eval", 300)[0]:
        scope: dict = {}
        exec(case["answer"] + "\n" + case["tests"], scope)  # our own generated reference, not a model's text
        assert callable(scope[case["entry_point"]])
        assert case["tests"].count("assert ") >= 3
        assert not re.search(r"@|KEEP|CHANGE|RETURN", case["messages"][0]["content"] + case["answer"])


def test_list_answers_use_only_what_the_prompt_gave():
    for case in draw("transform", "eval", 400)[0]:
        prompt = case["messages"][0]["content"].lower()
        for word in re.findall(r"[a-z]{4,}", case["answer"].lower()):
            assert word in prompt or "first letters" in prompt


def test_reformatted_records_keep_every_value():
    for case in draw("reformat", "eval", 200)[0]:
        source = case["messages"][0]["content"].split("\n", 1)[1]
        values = set(re.findall(r"[A-Za-z]{4,}|\d{2,}", source))
        assert values == set(re.findall(r"[A-Za-z]{4,}|\d{2,}", case["answer"]))


def test_a_grounded_answer_quotes_the_passage_and_what_is_not_stated_says_so():
    forms = set()
    for case in draw("grounded_qa", "eval", 500)[0]:
        passage = case["messages"][0]["content"].split("\n")[0]
        form = next(tag for tag in case["tags"] if tag.startswith("form:"))
        forms.add(form)
        assert (case["answer"] == NOT_STATED) == (form == "form:missing")
        if form != "form:missing":
            quote, answer = case["answer"].rstrip().rsplit(" Answer: ", 1)
            for sentence in re.findall(r"[^.]+\.", quote):
                assert sentence.strip() in passage
            assert answer in quote
        if form == "form:back":  # who did it: only one
            said = case["answer"].split(" Answer: ")[0].split(" ", 1)[1]  # the sentence after its subject
            assert sum(sentence.endswith(said) for sentence in re.findall(r"\w+ [^.]+\.", passage)) == 1
    assert len(forms) == 4
