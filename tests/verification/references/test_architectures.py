"""What the proof of architectures counts."""

from __future__ import annotations

import signal

import pytest

from qualgate.engine import choice
from tests.verification.references import architectures
from tests.verification.references.architectures import at_most, tried_out


def test_a_decoder_is_let_through_an_encoder_refused_and_what_cannot_be_made_left_out():
    through = tried_out("llama")
    assert (through.same, through.engine) == (True, "plain")
    refused = tried_out("bert")
    assert "(bert) gives other logits" in refused.refused
    assert refused.same is None
    assert tried_out("no-such").left_out.startswith("ValueError")


@pytest.mark.proof
def test_what_is_let_through_with_other_tokens_misses_the_goal(monkeypatch):
    monkeypatch.setattr(choice, "check_runs_right", lambda model: 1)
    monkeypatch.setattr(architectures, "QUICK", 1)
    names = "transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
    monkeypatch.setattr(names, {"llama": "", "trocr": ""})
    tokens, let_through = architectures.run(quick=True)["goals"]
    assert (tokens["met"], tokens["measured"]) == (False, ["trocr"])
    assert (let_through["met"], let_through["measured"]) == (None, 2), "a quick run tries few"


def test_what_takes_too_long_ends():
    with pytest.raises(TimeoutError, match="over 600 s"), at_most(600):
        signal.raise_signal(signal.SIGALRM)
