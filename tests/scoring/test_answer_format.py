"""Format damage: what each metric sees, what it does not, and that no text stalls it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.records import Case
from qualgate.scoring.answer_format import METRICS, looping_block, score_format
from tests.depth import examples
from tests.scoring.cases import scored, table
from tests.tables import each_row


def wrong(text: str, finish_reason: str = "eos", **body) -> dict[str, str]:
    """The metrics that see damage, short names, with what they call it."""
    case = Case(evalset="set", body={"id": "1", "prompt": "What is it?", "max_new_tokens": 8, **body})
    found = score_format(case, text, finish_reason)
    assert tuple(found) == METRICS
    return {name.removeprefix("format."): score.error_type for name, score in found.items() if not score.verdict}


def test_a_plain_answer_is_undamaged():
    assert wrong("It is 4.") == {}
    assert wrong('{"name": "Ada", "ages": [1, 2, 3]}') == {}


# ------------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize(
    ("reason", "fault"), [("eos", None), ("stop", None), ("length", "truncated"), ("abort", "aborted")]
)
def test_an_answer_is_finished_when_it_ended_by_itself(reason, fault):
    assert wrong("It is 4.", reason) == ({"finished": fault} if fault else {})


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b\u200d", "\ufeff", "\u202e", "\0", "\u00a0"])
def test_nothing_visible_is_empty(text):
    assert wrong(text) == {"nonempty": "empty"}


# ------------------------------------------------------------------------------------------------ loops


def loops_by_definition(text: str) -> str | None:
    """The shortest block that fills the end at least 4 times over, 32 characters at least; found by trying them all."""
    for period in range(1, len(text) // 4 + 1):
        reach = period
        while reach < len(text) and text[-reach - 1] == text[-reach - 1 + period]:
            reach += 1
        if reach >= max(32, 4 * period):
            return text[-period:]
    return None


@examples(300)
@given(
    st.text("ab \n", max_size=40),
    st.text("ab.", min_size=1, max_size=12),
    st.integers(0, 40),
    st.text("ab", max_size=5),
)
def test_a_loop_is_what_the_definition_says(before, block, times, after):
    text = before + block * times + after
    assert looping_block(text) == loops_by_definition(text)


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 4. " * 4, "Let me think. " + "so so " * 6, "=" * 32, "\n" * 40, "a" * 8192,
        "and then " * 20 + "and th", ("x" * 2047 + "y") * 4, "哈" * 40, "🙂👍" * 20,
    ],
)  # fmt: skip
def test_what_repeats_to_the_end_is_a_loop(text):
    assert wrong(text, prompt="哈 a")["no_loop"] == "loop"


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 4. " * 3, "=" * 31, "ha ha ha ha", "so so " * 20 + "much for that.",
        '{"a": {"b": {"c": [[[]]]}}}',
        "[" + "0, " * 30 + "0]", "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |", ("x" * 2048 + "y") * 4, "1000000000000",
    ],
)  # fmt: skip
def test_what_ends_otherwise_is_none(text):
    assert wrong(text) == {}


# ------------------------------------------------------------------------------------------------ refusals


@each_row("text", table("refusals")["refusals"])
def test_a_refusal_is_seen(text):
    assert wrong(text, prompt=text) == {"no_refusal": "refusal"}


@pytest.mark.parametrize("text", table("refusals")["others"])
def test_what_only_sounds_like_one_is_not(text):
    assert wrong(text, prompt=text) == {}


def test_a_refusal_that_the_case_expects_is_right():
    said = "I'm sorry, but I can't help with that."
    assert wrong(said, answer="Sorry, I cannot do this.") == {}
    assert wrong(said, answer="4") == {"no_refusal": "refusal"}


# ------------------------------------------------------------------------------------------------ language


@pytest.mark.parametrize(("prompt", "text", "switched"), table("languages")["switched"])
def test_a_switch_of_script_is_seen(prompt, text, switched):
    assert wrong(text, prompt=prompt) == ({"same_language": "language"} if switched else {})


def test_what_the_case_needs_is_not_foreign():
    call = '<tool_call>{"name": "get_weather", "arguments": {"city": "北京"}}</tool_call>'
    assert wrong(call, prompt="北京天气如何？") == {"same_language": "language"}
    assert wrong(call, prompt="北京天气如何？", tools=[{"name": "get_weather", "parameters": {}}]) == {}
    assert wrong("Столица Москва", answer="Москва") == {}
    assert wrong("Beijing city", messages=[{"role": "user", "content": "首都"}], prompt=None) == {
        "same_language": "language"
    }
    assert wrong("Beijing city", prompt="首都", id="latin", task="latin", tags=["latin"], cluster="latin") == {
        "same_language": "language"
    }


# ---------------------------------------------------------------------------------------- hostile answers


HOSTILE = {
    "ten megabytes": "x" * 10_000_000,
    "ten megabytes without a loop": "".join(chr(0x4E00 + n * n % 20_000) for n in range(20_000)) * 500 + ".",
    "invisible": "\u200b" * 10_000_000,
    "nearly a loop": ("a" * 2000 + "b") * 5000 + "c",
    "fibonacci": "abaababaabaababaababaabaababaabaab" * 300_000,
    "marks": "a" + "\u0301\u0316" * 5_000_000,
    "every character": "".join(map(chr, range(0x110000))) * 9,
    "surrogates": "\ud800\udfff" * 5_000_000,
    "ligatures that grow": "\ufdfa" * 10_000_000,
    "nearly a refusal": "i'm sorry, " * 1_000_000,
    "nearly a japanese refusal": "申し訳ありませんが、" * 1_000_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_ten_megabytes_take_less_than_a_second(name):
    text = HOSTILE[name]
    start = time.process_time()
    wrong(text, "length")
    assert time.process_time() - start < 1


@examples(300)
@given(st.text(st.characters()), st.sampled_from(["eos", "stop", "length", "abort", "", "\ud800"]))
def test_any_text_is_scored(text, reason):
    case = Case(evalset="set", body={"id": "1", "prompt": text[::-1], "messages": 3, "answer": None})
    for score in score_format(case, text, reason).values():
        assert score.verdict in (True, False)
        assert score.value == float(score.verdict)
        assert score.reason.isprintable()


# --------------------------------------------------------------------------------------- with other metrics


def test_a_set_may_declare_them_like_any_other():
    found = scored({"answer": "4", "prompt": "2+2"}, ("exact_match", "format.finished"), "4", "length")
    assert found["exact_match"].verdict is True
    assert found["format.finished"].error_type == "truncated"
    assert found["format.finished"].scorer == "format/4"


# --------------------------------------------------------------------------------------------- of an arm
