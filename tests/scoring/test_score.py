"""The one function the rest of the program calls."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.records import Score
from qualgate.records.metrics import BY_LIKELIHOOD, LM_EVAL, METRICS, STATE
from qualgate.scoring import MAX_ANSWER, scorer_versions
from qualgate.scoring.outcome import SHOWN
from tests.depth import examples
from tests.scoring.cases import scored

# Not by likelihood: what is no list of likelihoods gets no verdict there. Nor what a sandbox runs.
OTHERS = (LM_EVAL, "code.", "multiple_choice.", STATE)
QUALITY = tuple(n for n, m in METRICS.items() if m.kind == "quality" and not n.startswith(OTHERS))
BODY = {
    "answer": "4",
    "pattern": "([0-9]+)",
    "refuse": False,
    "schema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^(a+)+$"},
            "ages": {"type": "array", "uniqueItems": True},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    "tools": [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"pattern": "^(a|a)*$"}}}}],
    "expected_calls": [{"name": "f", "arguments": {"a": "aa"}}],
    "choices": ["3", "4"],
    "instruction_id_list": ["punctuation:no_comma"],
    "kwargs": [{}],
    "tests": "assert f(1) == 2",
}


def test_every_quality_metric_has_a_versioned_scorer():
    every = (*QUALITY, "code.pass", STATE, *BY_LIKELIHOOD)
    assert set(scorer_versions()) == set(every)
    found = {name: item.scorer for name, item in scored(BODY, every, "4").items()}
    assert found == {name: version for name, version in scorer_versions().items() if name in found}


def test_scores_come_in_the_order_the_set_declares():
    scored(BODY, tuple(reversed(QUALITY)), "4")  # `scored` checks the order


def test_a_cut_answer_is_scored_as_it_stands_and_says_so():
    assert scored(BODY, ("exact_match",), "4", "length")["exact_match"].verdict is True
    assert scored(BODY, ("exact_match",), "5", "length")["exact_match"].reason.endswith("(cut at max_new_tokens)")


HOSTILE = {
    "nothing": "",
    "ten megabytes": "x" * 10_000_000,
    "a megabyte of brackets": "[" * MAX_ANSWER,
    "a megabyte of objects": '{"a":' * (MAX_ANSWER // 5),
    "calls of brackets": "<tool_call>" + "[" * 900_000 + "</tool_call>",
    "many calls": '<tool_call>{"name": "f", "arguments": {}}</tool_call>' * 900,
    "endless calls": '<tool_call>{"name": "f", "arguments": {}}</tool_call>' * 15_000,
    "a long number": "9" * 5000,
    "a megabyte of digits": "9" * MAX_ANSWER,
    "backtracking in the schema": json.dumps({"name": "a" * 100_000 + "!"}),
    "backtracking in a tool": '<tool_call>{"name": "f", "arguments": {"a": "' + "a" * 100_000 + '!"}}</tool_call>',
    "many objects to compare": json.dumps({"name": "a", "ages": [{"a": n} for n in range(20_000)]}),
    "a repetition": "the same again and " * 50_000,
    "terminal colours": '\x1b[31m{"name": "\x1b[0m"}',
    "bidi and zero-width": "\u202e4\u202c\u200b\ufeff",
    "combining marks": "4" + "\u0301\u0316" * 300_000,
    "special tokens": "<|im_end|><|endoftext|>4",
    "lone surrogates": '{"name": "\ud800"} \udfff <tool_call>\ud800</tool_call>',
    "nul": '\0{"name": "\0"}',
    "our own report": "4\nint8  APPROVE  every critical rule proven\n",
    "markup": '<script>alert(1)</script>![x](http://x/y.png)=cmd|"/c calc"!A0',
}


def nobody_reads(score: Score) -> bool:
    """Whether it is what nobody reads here, or what can be read two ways: no fault of the answer's."""
    kinds = {
        "math": ("unknown", "limit", "undecided", "stopped", "not_meant"),
        "numeric": ("unread_number", "not_meant"),
        "multiple_choice": ("ambiguous",),
        "tool_call.served": ("no_served_reading",),
        "refusal": ("unclear", "late", "both", "quoted", "language", "thought"),
    }
    return score.value is None and score.error_type in kinds.get(score.metric, ())


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_no_answer_breaks_or_stalls_a_scorer(text):
    start = time.process_time()
    found = scored(BODY, QUALITY, text, normalizers=("nfc", "strip_invisible"), lenient=("code_fence", "trailing_text"))
    assert time.process_time() - start < 15  # a hang, not a speed: how busy the machine is must not decide
    for item in found.values():
        assert item.verdict in (True, False) or nobody_reads(item)
        assert item.verdict is None or 0 <= item.value <= 1
        assert item.verdict is None or item.value == float(item.verdict) or not METRICS[item.metric].binary
        assert item.verdict or item.error_type
        assert item.reason.isprintable()
        assert len(item.extracted or "") <= SHOWN + 1
        f"{item.extracted}{item.reason}".encode()  # any store takes it


@examples(300)
@given(st.text(st.characters()) | st.text('<tool_call>/{}[]",:\\u0d8name arguments19eE+-.`\n', max_size=120))
def test_scoring_never_fails(text):
    found = scored(BODY, QUALITY, text, lenient=("code_fence", "trailing_text"))
    assert all(item.verdict in (True, False) or nobody_reads(item) for item in found.values())
