"""Sets whose choices are read by likelihood: nothing is written, and mixing them with answers is refused."""

from __future__ import annotations

import pytest

from qualgate import evalsets
from qualgate.scoring import score
from tests.evalsets.tables import rows_of
from tests.evalsets.test_evalsets import GOOD, messages

CHOICE = {"id": "c", "prompt": "2 + 2 =", "choices": ["3", "4"], "answer": "4"}
BY_LIKELIHOOD = "metrics: [multiple_choice.acc, multiple_choice.acc_norm]"


def test_a_set_by_likelihood_has_its_choices_read_and_nothing_written(write, tmp_path):
    write([CHOICE, {**CHOICE, "id": "d", "choices": ["3", "4", "5"], "delimiter": "\n"}], BY_LIKELIHOOD)
    one, two = evalsets.load("./mine.yaml", tmp_path).cases
    assert (one.body["requests"], one.max_new_tokens) == ([["2 + 2 =", " 3"], ["2 + 2 =", " 4"]], 0)
    assert two.body["requests"][2] == ["2 + 2 =", "\n5"]
    found = score(one, evalsets.load("./mine.yaml", tmp_path), "[[-3.0, false], [-1.0, true]]", "stop")
    assert [(s.metric, s.verdict) for s in found] == [("multiple_choice.acc", True), ("multiple_choice.acc_norm", True)]


@pytest.mark.parametrize(("body", "said"), rows_of("likelihood"))
def test_a_case_that_cannot_be_judged_by_likelihood_is_named(write, body, said):
    assert any(said in message for message in messages(write([body], BY_LIKELIHOOD)))


def test_likelihoods_and_answers_are_sets_of_their_own(write):
    [fault] = messages(write([CHOICE], "metrics: [exact_match, multiple_choice.acc]"))
    assert "'multiple_choice.acc' scores given choices, 'exact_match' a written answer: make two sets" in fault
    assert messages(write([{**GOOD, "until": 5}])) == [
        "mine.jsonl:1: `until` is of lm-eval's tasks; a case of a file says what it asks in `messages` or `prompt`"
    ]
