"""What SGLang lists of a prompt is taken as the same lists in vLLM's form are: one model, told in both."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from qualgate.errors import InfrastructureError
from qualgate.served import sglang
from qualgate.served.engines import PROFILES
from qualgate.served.places import places
from qualgate.served.replies import Completed
from tests.served.chance import LISTED, SIZE, Model
from tests.served.scripted import Reply, as_json
from tests.served.test_answering import answered, plain, said, tokenizer  # noqa: F401  # a fixture

SENT = [1, 20, 7, 7, 200, SIZE - 1, 41]


@dataclass
class AsSGLang(Model):
    """As SGLang 0.5.23 lays it out, from the source and of a server: [None] + the log-probs behind the first place; the
    vocabulary's last token as 0."""

    def __call__(self, body: dict[str, Any]) -> Reply:
        if "input_ids" not in body:
            return Model.__call__(self, body)
        assert "model" not in body
        with self.lock:
            self.asked.append({"prompt_logprobs": 1} | body)
        sent, start, count = body["input_ids"], body["logprob_start_len"], body["top_logprobs_num"]
        own, tops = [[None, sent[start], None]], [None]
        for last, token in pairwise(sent[start:]):
            logprobs = self.logprobs(last, self.reading)
            order = (-logprobs).argsort(kind="stable")[:count].tolist()
            own.append([float(logprobs[token]), token if token < SIZE - 1 else 0, None])
            tops.append([[float(logprobs[one]), one, None] for one in order])
        meta = {"id": "x", "finish_reason": {"type": "length", "length": 0}, "prompt_tokens": len(sent),
                "completion_tokens": 0, "input_token_logprobs": own,
                "input_top_logprobs": self.spoil(tops)}  # fmt: skip
        return as_json({"text": "", "output_ids": [], "meta_info": meta})


def both(begins: int) -> tuple[list, list]:
    of_vllm = Completed.model_validate_json(Model()({"prompt": SENT, "max_tokens": 1, "prompt_logprobs": LISTED}).body)
    of_sglang = sglang.Generated.model_validate_json(AsSGLang()(sglang.reading(SENT, begins, LISTED)).body)
    told = of_vllm, of_sglang.completed(SENT)
    return [places(one.choices[0].prompt_logprobs, begins, SENT[begins:], SIZE) for one in told]


@pytest.mark.parametrize("begins", [1, 3, len(SENT) - 1])
def test_each_place_is_what_vllms_list_of_it_says(begins):
    theirs, ours = both(begins)
    assert len(ours) == len(SENT) - begins
    for one, other in zip(theirs, ours, strict=True):
        assert (one.top, one.given) == (other.top, other.given)
        assert np.array_equal(one.listed.tokens, other.listed.tokens)
        assert np.array_equal(one.listed.logprobs, other.listed.logprobs)
        assert other.listed.most >= one.listed.most  # vLLM tells where the token there is the next of them
        assert other.listed.least == one.listed.least


def test_a_token_behind_the_likeliest_is_not_taken_for_the_next_of_them():
    _, ours = both(1)
    behind = [place for place in ours if place.given < place.listed.most]
    assert behind  # some are
    assert all(place.given == place.listed.logprobs.min() for place in behind)


@pytest.mark.parametrize("endpoint", ["http://h:1/v1", "http://h:1/v1/"])
def test_it_is_asked_beside_the_api_and_all_else_below_it(endpoint):
    assert sglang.address(endpoint, sglang.PATH) == "http://h:1/generate"
    assert sglang.address(endpoint, "/completions") == "http://h:1/v1/completions"
    assert sglang.address("https://h/gateway/v1", sglang.PATH) == "https://h/gateway/generate"


def test_drafted_answers_and_drift_are_those_of_vllms_form(tokenizer, tmp_path):  # noqa: F811
    found = {}
    for engine, kind in (("vllm", Model), ("sglang", AsSGLang)):
        artifact = tmp_path / engine / "job-0.safetensors"
        answered(kind(), tokenizer, artifact, "baseline", engine=engine)
        model = kind(other=0.3)
        found[engine] = result = answered(model, tokenizer, artifact, engine=engine)
        assert said(result) == plain(model)
        assert any("input_ids" in body for body in model.asked) == (engine == "sglang")
    theirs, ours = found["vllm"], found["sglang"]
    for one, other in zip(theirs.drifts, ours.drifts, strict=True):
        assert all(mine <= known for mine, known in zip(other.kl, one.kl, strict=True))  # as much as is known
        assert sum(other.kl) > 0.98 * sum(one.kl)
        assert replace(other, kl=one.kl) == one
    assert said(theirs) == said(ours)
    assert ours.generation.tokens < theirs.generation.tokens  # reading costs no token


@pytest.mark.parametrize("sent", [[*SENT[:3], 9, *SENT[4:]], [*SENT[:-2], 3, 41]])
def test_a_token_that_is_told_otherwise_than_it_was_sent_is_not_taken_for_the_last_of_the_vocabulary(sent):
    told = sglang.Generated.model_validate_json(AsSGLang()(sglang.reading(SENT, 1, LISTED)).body).completed(sent)
    with pytest.raises(ValueError, match="it read other tokens than were sent"):
        places(told.choices[0].prompt_logprobs, 1, sent[1:], SIZE)


@pytest.mark.parametrize(
    "spoiled", [lambda tops: tops[:-1], lambda tops: [*tops[:-1], [["a", 1, None]]], lambda tops: []]
)
def test_lists_that_are_none_of_sglangs_are_no_answer(spoiled):
    with pytest.raises(ValidationError):
        sglang.Generated.model_validate_json(AsSGLang(spoil=spoiled)(sglang.reading(SENT, 2, LISTED)).body)


def test_such_lists_end_the_job_and_are_asked_for_again_first(tokenizer, tmp_path):  # noqa: F811
    artifact = tmp_path / "job-0.safetensors"
    with pytest.raises(InfrastructureError, match=r"what it sends is not this API's \(meta_info"):
        answered(AsSGLang(spoil=lambda tops: tops[:-1]), tokenizer, artifact, "baseline", engine="sglang")


def test_the_table_says_that_it_tells_tokens():
    assert next(one for one in PROFILES if one.name == "sglang").token_ids
    assert json.loads(json.dumps(sglang.reading([1, 2, 3], 2, 5)))["logprob_start_len"] == 1
