"""A thought is taken off before anything is scored, whatever stands in it."""

from __future__ import annotations

import pytest

from qualgate.records import Case, Evalset
from qualgate.scoring import MAX_ANSWER, reasoning, registry, scorer_versions
from qualgate.scoring.reasoning import Said, apart, of_template, parted, split, today, way_of, written
from qualgate.scoring.reasoning_forms import FORMS
from tests.scoring.cases import scored, table
from tests.tables import each_row

FINAL = "<|start|>assistant<|channel|>final<|message|>"
CALL = '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 5}<|call|>'
SPLIT = table("splits")


@each_row("what", SPLIT)
def test_a_text_is_split_by_the_way_that_is_declared(what):
    way, text, thought, answer, state = SPLIT[what].values()
    said = split(text, way)
    assert (said.thought, said.answer, said.state) == (thought, answer, state)
    assert "\n".join(text[first:last] for first, last in said.spans) == thought


def test_a_prompt_that_ends_in_the_marker_opens_the_thought():
    assert split("x", "think", prompt="Q <think>\n") == Said(thought="x", answer="", state="open", spans=((0, 1),))
    assert apart({"reasoning": "think", "prompt": "Q"}, "x").answer == "x"
    assert apart({"prompt": "Q <think>"}, "x").answer == "x", "a case that declares nothing is read whole"


@each_row("prompt", ["Q", "Q <think>", "Q <think> \n", None])
@each_row("way", [*reasoning.WAYS, None])
def test_a_way_tells_without_its_case_how_an_answer_is_split(prompt, way):
    body = {name: value for name, value in (("prompt", prompt), ("reasoning", way)) if value is not None}
    for text in ("x", "x</think>A", "<think>x</think>A", f"<|channel|>analysis<|message|>x<|end|>{FINAL}A"):
        assert split(text, way_of(body)) == apart(body, text)


@pytest.mark.parametrize("way", ["think", "seed", "harmony", "inkling", "gemma4", "granite"])
def test_every_scorer_says_of_an_answer_behind_a_thought_what_it_says_of_the_answer(way):
    bodies = {
        "exact_match": ({"answer": "Paris"}, ["Paris", "Rome"]),
        "numeric": ({"answer": 3}, ["it is 3", "4"]),
        "json.schema": ({"schema": {"type": "object"}}, ["{}", "[]", ""]),
        "multiple_choice": ({"choices": ["a", "b"], "answer": "b"}, ["(B)", "A"]),
        "format.nonempty": ({"prompt": "Q"}, ["x", ""]),
        "format.no_loop": ({"prompt": "Q"}, ["loop " * 50, "x"]),
    }
    for metric, (body, answers) in bodies.items():
        for answer in answers:
            alone = scored(body, (metric,), answer)[metric]
            behind = scored({**body, "reasoning": way}, (metric,), written("17 {} (A)\n" * 9, answer, "", way))[metric]
            assert (behind.verdict, behind.error_type, behind.extracted) == (
                alone.verdict, alone.error_type, alone.extracted,
            )  # fmt: skip
            assert behind.scorer == f"{alone.scorer} reasoning/3 {way}"
            assert today(behind.scorer, scorer_versions()[metric]) == behind.scorer


def test_a_call_is_read_behind_a_thought_that_speaks_of_another():
    tools = [{"name": "f", "parameters": {"type": "object"}}]
    body = {"tools": tools, "expected_calls": [{"name": "f", "arguments": {"a": 5}}], "reasoning": "harmony"}
    text = f"<|channel|>analysis<|message|>f or g?<|end|>{CALL}"
    assert scored({**body, "dialect": "harmony"}, ("tool_call.correct",), text)["tool_call.correct"].verdict is True
    hermes = '<think><tool_call>{"name": "g"}</tool_call></think><tool_call>{"name": "f", "arguments": {"a": 5}}'
    body |= {"reasoning": "think", "dialect": "hermes"}
    found = scored(body, ("tool_call.correct",), f"{hermes}</tool_call>")["tool_call.correct"]
    assert found.verdict is True


def test_what_no_template_told_gets_no_verdict():
    found = scored({"answer": "A", "reasoning": "auto"}, ("exact_match",), "<think>x</think>A")["exact_match"]
    assert (found.verdict, found.error_type) == (None, "reasoning_auto")


def test_a_score_of_another_split_is_another_version():
    assert today("exact_match/1 reasoning/0 think", "exact_match/2") == "exact_match/2 reasoning/3 think"
    assert today("exact_match/1", "exact_match/2") == "exact_match/2"
    assert today("gone/1 reasoning/1 think", "") == ""


@each_row("way", [way for way in reasoning.WAYS if way != "none"])
@each_row("calls", ["", "<tool_call>{}</tool_call>"])
@each_row("answer", ["A", "", "  two\nlines"])
def test_what_a_server_took_apart_is_written_so_that_it_is_split_again(way, calls, answer):
    calls = CALL.removeprefix("<|start|>assistant") if calls and way == "harmony" else calls
    said = split(written("why not", answer, calls, way), way)
    assert said.thought == "why not"
    assert said.answer.endswith(calls)
    assert answer in said.answer
    assert calls or said.answer == answer
    assert said.state == ("ended" if answer or calls else "open")


def test_what_differs_first_is_the_thought_or_the_answer():
    def of(text: str) -> Said:
        return split(text, "think")

    assert parted(of("<think>x</think>A"), of("<think>y</think>A")) == "thought"
    assert parted(of("<think>x</think>A"), of("<think>x</think>B")) == "answer"
    assert parted(of("<think>x</think>A"), of("<think>x")) == "thought"
    assert parted(of("<think>x</think>A"), of("<think>x</think>A")) == ""
    one, other = of("<think>x</think>A").hashes, of("<think>x</think>B").hashes
    assert (one[0] == other[0], one[1] == other[1]) == (True, False)


@pytest.mark.parametrize(("prompt", "template", "way"), table("templates"))
def test_a_chat_template_tells_the_way_and_by_what(prompt, template, way):
    found, why = of_template(prompt, template)
    assert found == way
    assert "its template" in why


HOSTILE = ["<think>" * 150_000, "</think>" * 120_000, '"</think>"' * 100_000, "`</think>`" * 50_000 + "</think>",
           "<|end|>" * 140_000, "<|channel|>analysis<|message|>" * 30_000, " " * 2**20, "{" * 2**20 + "</think>",
           "<think>\ud800</think>\0", "to=" * 300_000 + "<|message|>"]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_makes_it_fail_or_hang(text):
    for way in ("think", "granite", "gemma4_opened", "hunyuan", "kimi_k3", "harmony", "inkling"):
        assert len(split(text, way).thought) <= len(text)


def test_a_thought_is_a_part_of_the_answers_length():
    scorer, case = (
        registry.find("exact_match"),
        Case(evalset="s", body={"id": "1", "answer": "A", "reasoning": "think"}),
    )
    text = f"<think>{'x' * MAX_ANSWER}</think>A"
    found = registry.apply(scorer, case, Evalset(name="s", version="1", sha256="", metrics=scorer.metrics), text)
    assert found["exact_match"].error_type == "too_long"


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('<answer>{"html": "<b></answer>"}</answer>', '{"html": "<b></answer>"}'),
        ("Close it with `</answer>` please", "Close it with `</answer>` please"),
        ("<answer>A</answer>\n", "A"),
        ("A</answer> and more", "A"),
        ("<answer>\nA", "A"),
    ],
)
def test_what_stands_around_an_answer_ends_where_nothing_follows_or_first_unquoted(text, inner):
    assert FORMS["think_answer"].unwrapped(text) == inner
