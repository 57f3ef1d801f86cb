"""A scripted server that speaks as an engine does: tokens by probabilities of its own, which it tells."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from qualgate.records import ArmSpec, Job, JobResult, Prompt, Sampling, Served, UnitKey
from qualgate.served.job import run_served
from tests.served.scripted import Reply, Scripted, as_json

WORDS = 20  # of its vocabulary
LONG = 10  # tokens of an answer
PEAK = 8.0  # the likeliest token mostly holds nearly all, as of a language model


class Speaker:
    """greedy: whatever temperature it is asked for. flips: at gaps up to this its greedy token is the next likeliest,
    as where a pass that verifies rounds otherwise. wrong: in so many answers of a hundred it says another token."""

    def __init__(self, *, greedy: bool = False, flips: float = 0.0, wrong: int = 0, model: int = 0) -> None:
        self._greedy, self._flips, self._wrong = greedy, flips, wrong
        self._known = PEAK * np.random.default_rng(model).normal(size=(4001, WORDS))

    def __call__(self, body: dict[str, Any]) -> Reply:
        drawn = np.random.default_rng(body.get("seed", 0))
        said: list[int] = []
        told: list[float] = []
        tops: list[dict[str, float]] = []
        while len(said) < LONG:
            logits = self._logits(body["prompt"], said)
            token = self._token(logits, body, len(said), drawn)
            logprobs = logits - np.log(np.exp(logits).sum())
            likeliest = [int(one) for one in np.argsort(-logits)[: body["logprobs"]]]
            said.append(token)
            told.append(float(logprobs[token]))
            tops.append({f"w{one}": float(logprobs[one]) for one in (*likeliest, token)})
        choice = {"index": 0, "text": "x", "finish_reason": "length", "token_ids": said,
                  "logprobs": {"token_logprobs": told, "top_logprobs": tops}}  # fmt: skip
        return as_json({"choices": [choice], "usage": {"prompt_tokens": 2, "completion_tokens": LONG}})

    def _logits(self, prompt: list[int], said: list[int]) -> np.ndarray:
        return self._known[zlib.crc32(repr((prompt, said)).encode()) % len(self._known)]

    def _token(self, logits: np.ndarray, body: dict[str, Any], place: int, drawn: np.random.Generator) -> int:
        temperature = body["temperature"]
        if temperature and not self._greedy:
            return int((logits / temperature + drawn.gumbel(size=WORDS)).argmax())
        first, second = (int(one) for one in np.argsort(-logits)[:2])
        if body["prompt"][0] % 100 < self._wrong and place == 5:
            return int(np.argsort(-logits)[7])
        return second if logits[first] - logits[second] <= self._flips else first


def asked(server: Scripted, tokenizer: str, arm: str, prompts: int, sampling: Sampling) -> JobResult:
    """Its answers to so many prompts, by token ids."""
    served = Served(endpoint=server.address, engine="vllm", tokenizer=tokenizer, stream=False)
    given = tuple(
        Prompt(key=UnitKey(arm, "code", f"c-{number:04d}"), case_hash=f"sha {number}", token_ids=(number, 1),
               max_new_tokens=LONG, sampling=sampling)
        for number in range(prompts)
    )  # fmt: skip
    spec = ArmSpec(name=arm, model="m", served=served)
    return run_served(Job(index=0, arm=spec, prompts=given, artifact="", drafted=False, seed=5, timed=True), {}, 8)
