"""The row `chaos` on a few misbehaviours: the client holds, and one that is made worse is found out."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from qualgate.served import answer, client
from tests.tiny_models import save_byte_tokenizer
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
    ("kind", "what"),
    [
        ("whole", "answered twice"), ("whole", "a gzip bomb"), ("stream", "slow-loris, its body"),
        ("stream", "a piece twice"), ("told", "a piece lost"), ("calls", "arguments backwards"),
        ("calls", "the last of the arguments twice"),
    ],
)  # fmt: skip
def test_every_answer_is_the_right_one_in_the_end(folder, kind, what):
    found = outcome(folder, kind, what)
    assert (found.came, found.holds) == ("answered", True)


def test_what_never_passes_fails_the_job_whole_and_is_answered_when_it_is_mended(folder):
    found = outcome(folder, "stream", "an error in the midst", "for good")
    assert (found.came, found.holds) == ("the machinery's fault", True)


@pytest.mark.parametrize(
    ("where", "name", "worse", "kind", "what"),
    [
        (client, "rearranged", lambda *_: False, "calls", "arguments backwards"),
        (answer, "doubtful", lambda *_: False, "stream", "a piece twice"),
    ],
)
def test_a_client_that_is_made_worse_is_found_out(folder, where, name, worse, kind, what):
    with patch.object(where, name, worse):
        assert not outcome(folder, kind, what).holds
