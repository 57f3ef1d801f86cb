"""The row `chaos` on a few misbehaviours: whatever becomes of answers, they are right in the end."""

from __future__ import annotations

import pytest

from tests.tiny_models import save_byte_tokenizer
from tests.verification.served import wire_chaos
from tests.verification.served.chaos import KINDS, Lasts, Trying, hurried


def outcome(folder, kind, what, lasts: Lasts = "for a while"):
    act = next(table[what] for table in KINDS[kind] if what in table)
    with hurried():
        return Trying(str(folder), kind, what, act).outcome(lasts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(made)
    return made


@pytest.mark.parametrize(
    ("kind", "what"), [("whole", "answered twice"), ("stream", "a piece twice"), ("calls", "arguments backwards")]
)
def test_every_answer_is_the_right_one_in_the_end(folder, kind, what):
    found = outcome(folder, kind, what)
    assert (found.came, found.holds) == ("answered", True)


def test_what_never_passes_fails_the_job_whole_and_is_answered_when_it_is_mended(folder):
    found = outcome(folder, "stream", "an error in the midst", "for good")
    assert (found.came, found.holds) == ("the machinery's fault", True)


@pytest.mark.parametrize(
    "name",
    [
        "events: every piece repeats all before",
        "events: a message in each frame, with its piece",
        "calls: another id and the name in each piece",
        "lasting, streamed: a stream refused",
        "lasting, whole: Ollama's own API",
    ],
)
def test_a_form_is_read_right_and_a_lasting_fault_is_named(name):
    trial = next(one for one in wire_chaos.trials() if one.name == name)
    with wire_chaos.short_waits():
        tried = wire_chaos.attempt(trial, wire_chaos.answered(trial.calls, trial.stream))
    assert tried.wrong == ""
