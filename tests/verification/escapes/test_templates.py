"""A chat template of a stranger's renders, or fails in words, within its bounds, whatever it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from transformers import PreTrainedTokenizerBase

from qualgate.engine import chat_template
from qualgate.engine.chat_template import MOST_CHARACTERS, TemplateFault, render_chat
from tests.depth import with_proofs

TEMPLATES = yaml.safe_load((Path(__file__).parent / "programs" / "templates.yaml").read_text(encoding="utf-8"))
MESSAGES = [{"role": "user", "content": "Hello"}]
SECRET = "SECRET-OF-THE-HOST"


QUICK = ("a long text", "doubling lists", "classes", "an import", "a changed dict", "an exception of its own")


@pytest.mark.parametrize("name", with_proofs(TEMPLATES, {*TEMPLATES} - {*QUICK}))
def test_a_template_ends_in_a_text_or_in_words(monkeypatch, name):
    monkeypatch.setenv("QUALGATE_CANARY", SECRET)
    monkeypatch.setattr(chat_template, "BOUNDS", replace(chat_template.BOUNDS, cpu_seconds=1.0))
    tokenizer = PreTrainedTokenizerBase()
    tokenizer.chat_template = TEMPLATES[name]
    try:
        said = render_chat(tokenizer, MESSAGES)
        assert len(said) <= MOST_CHARACTERS
    except TemplateFault as fault:
        said = str(fault)
        assert said
        assert len(said) < 2_000
    assert SECRET not in said
    assert "root:" not in said
    assert MESSAGES == [{"role": "user", "content": "Hello"}]
