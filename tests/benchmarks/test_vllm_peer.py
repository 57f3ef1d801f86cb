"""vLLM as a peer, with a stand-in for its package: what is asked, in which order, and what is asked of it meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qualgate.records import Prompt, UnitKey
from tests.benchmarks import vllm_peer

STAND_IN = """\
__version__ = "9.9"
print("something that a library prints")

class SamplingParams:
    def __init__(self, temperature, max_tokens, detokenize):
        assert temperature == 0
        self.max_tokens = max_tokens

class Said:
    def __init__(self, token_ids):
        self.token_ids, self.outputs = token_ids, [self]

class LLM:
    def __init__(self, model, dtype, max_model_len, enable_prefix_caching, disable_log_stats, **more):
        self.more = more
        if model.endswith("broken"):
            raise SystemExit("no such model")
        assert (dtype, max_model_len, enable_prefix_caching) == ("float32", 7, True)
        self.cached = set()
    def reset_prefix_cache(self):
        self.cached = set()
    def generate(self, prompts, how, use_tqdm):
        asked = [tuple(one["prompt_token_ids"]) for one in prompts]
        found = [Said([*ids[-1:], one.max_tokens, int(ids in self.cached)]) for ids, one in zip(asked, how)]
        self.cached |= set(asked)
        return found
"""


def prompt(number: int) -> Prompt:
    return Prompt(
        key=UnitKey("baseline", "set", str(number)), case_hash="", token_ids=(1, number), max_new_tokens=number
    )


PROMPTS = {"short": [prompt(2), prompt(3)], "long": [prompt(4)]}


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    (tmp_path / "vllm.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv(vllm_peer.INTERPRETER, sys.executable)


@pytest.mark.usefixtures("stand_in")
def test_prompts_are_asked_by_kind_and_fresh_in_every_turn(tmp_path):
    with vllm_peer.serving(Path("folder"), "float32", PROMPTS, tmp_path) as vllm:
        assert vllm.version == "9.9"
        for _ in range(2):
            assert vllm.contender.answer("long") == [(4, 4, 0)]
            assert vllm.contender.answer("short") == [(2, 2, 0), (3, 3, 0)]
        assert vllm.contender.cpu() > 0


@pytest.mark.usefixtures("stand_in")
def test_one_that_does_not_come_up_says_why(tmp_path):
    with (
        pytest.raises(vllm_peer.Down, match="no such model"),
        vllm_peer.serving(Path("broken"), "float32", PROMPTS, tmp_path),
    ):
        pass
