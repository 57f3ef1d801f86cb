"""The baseline's first answers decide how a set is scored: by the strictest metric under which it can be judged."""

from __future__ import annotations

import pytest

from qualgate.errors import UsageError
from qualgate.evalsets.own_rows import FORMS, METRICS, OwnSet
from qualgate.pipeline.first_answers import FORGIVING, Answer, choose, length_for, refuse_unjudgeable, why_chosen

CITIES = ("Paris", "Rome", "Oslo", "Cairo", "Lima", "Quito", "Bern", "Riga", "Sofia", "Tunis", "Accra", "Minsk")
ONE = {"schema": {"type": "object"}, "answer": '{"a":1}'}
COLOURS = {"choices": ["red", "blue"], "answer": "red"}


def chosen(kind: str, bodies: list[dict], texts: list[str], count: int = 80, cut: bool = False):
    """What is chosen for a set of `count` cases of which the first were asked."""
    cases = [{"id": f"c{n}", "prompt": "Ask", "max_new_tokens": 9, **bodies[n % len(bodies)]} for n in range(count)]
    made = OwnSet(name="own", kind=kind, metrics=METRICS[kind], cases=tuple(cases), lines=(), length=9)
    answers = [Answer(case=case, text=text, tokens=7, cut=cut) for case, text in zip(cases, texts, strict=False)]
    return choose(made, answers, 0.08)


@pytest.mark.parametrize(
    ("kind", "bodies", "say", "label"),
    [
        ("answers", [{"answer": one} for one in CITIES], "{}", "exact_match"),
        ("answers", [{"answer": one} for one in CITIES], " {}.", f"exact_match (normalizers: {', '.join(FORGIVING)})"),
        ("answers", [{"answer": one} for one in CITIES], "It is {}, as everyone knows.", "contains"),
        ("answers", [{"references": [one, "x!"]} for one in CITIES], "It is {}.", "contains"),
        ("answers", [{"answer": "yes"}, {"answer": "no"}], "The answer is {}.", r"pattern (pattern: (?i)\b(yes|no)\b)"),
        ("numbers", [{"answer": str(n)} for n in range(10, 22)], "so {}", "numeric"),
        ("numbers", [{"answer": str(n)} for n in range(10, 22)], "{} of 99", "contains"),
        ("choices", [COLOURS], "I think the answer is A", "multiple_choice (lenient: trailing_text)"),
        ("json-answers", [ONE], '{{"a": 1.0}}', "json.schema, exact_match (normalizers: json)"),
        ("json-answers", [ONE], '{{"a": 2}}', "json.schema"),
        ("json", [{"schema": {"type": "object"}}], "```json\n{{}}\n```", "json.schema (lenient: code_fence)"),
    ],
)  # fmt: skip
def test_the_strictest_way_by_which_the_baseline_is_right_is_taken(kind, bodies, say, label):
    said = [say.format(bodies[n % len(bodies)].get("answer", CITIES[n])) for n in range(12)]
    looked = chosen(kind, bodies, said)
    assert looked.way is not None
    assert looked.way.label == label
    assert f"by {label} it is right on 12 of 12" in why_chosen(looked)


@pytest.mark.parametrize(
    ("kind", "text", "taken", "left"),
    [
        ("prompts", "A thing.", FORMS, ""),
        ("json-prompts", "{}", (*FORMS, "json.valid"), ""),
        ("json-prompts", "```json\n{}\n```", (*FORMS, "json.valid"), ""),
        ("json-prompts", "A thing.", FORMS, "json.valid, json.valid (lenient: code_fence)"),
        ("calls", '<tool_call>{"name": "f", "arguments": {}}</tool_call>', (*FORMS, "tool_call.valid"), ""),
        ("calls", "A thing.", FORMS, "tool_call.valid"),
        ("prompts", "I'm sorry, but I can't help with that.", (*FORMS[:3], FORMS[4]), "format.no_refusal"),
    ],
)
def test_without_references_every_metric_is_taken_that_the_baseline_can_lose_by(kind, text, taken, left):
    tools = [{"name": "f", "parameters": {"type": "object"}}]
    looked = chosen(kind, [{"tools": tools, "category": "relevance"} if kind == "calls" else {}], [text] * 12)
    assert looked.way is not None
    assert looked.way.metrics == taken
    ends = f"Left out, as it is right too rarely to lose any: {left}." if left else "of 12."
    assert why_chosen(looked).endswith(ends)


@pytest.mark.parametrize(
    ("answers", "say", "cut", "told"),
    [
        (CITIES, "I do not know.", False, "0 of 12 by contains. Ask for the form of the reference in the prompt"),
        (CITIES, "Well", True, "Most answers were cut at 9 tokens: give --max-new-tokens more"),
        (("A", *CITIES[1:]), "It is {}", False, "`contains` was not tried, as references of one character"),
    ],
)
def test_a_set_on_which_the_baseline_can_lose_nothing_is_refused_with_what_to_change(answers, say, cut, told):
    looked = chosen("answers", [{"answer": one} for one in answers], [say.format(one) for one in answers], cut=cut)
    with pytest.raises(UsageError) as refused:
        refuse_unjudgeable({"own": looked})
    assert told in str(refused.value)
    assert "'Ask' -> " in str(refused.value), "the answers themselves"


@pytest.mark.parametrize(
    ("kind", "body", "advice"),
    [
        (
            "tools",
            {"tools": [{"name": "f"}], "expected_calls": [{"name": "f", "arguments": {}}]},
            "shows the model its",
        ),
        ("choices", COLOURS, "the choice alone"),
        ("json", {"schema": {"type": "object"}}, "the JSON object alone"),
    ],
)
def test_the_advice_is_of_the_kind_of_the_cases(kind, body, advice):
    with pytest.raises(UsageError, match=f"Ask in the prompt for .*{advice}"):
        refuse_unjudgeable({"own": chosen(kind, [body], ["I cannot say."] * 12)})


def test_the_share_that_is_right_has_to_do_for_all_cases_of_the_set():
    bodies, said = [{"answer": one} for one in CITIES], [*(f"It is {one}." for one in CITIES[:7]), *["No idea."] * 5]
    assert chosen("answers", bodies, said, count=12).way is None
    assert chosen("answers", bodies, said, count=200).way is not None


def test_answers_may_become_four_times_as_long_as_the_longest():
    assert [length_for([Answer(case={}, text="", tokens=n, cut=False)]) for n in (1, 9, 60, 64)] == [32, 64, 256, 256]
