"""What our own server answers, held against the engine itself."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2
import pytest
import torch

from qualgate.engine.answers import Answers
from qualgate.engine.choice import open_engine
from qualgate.engine.request import Read, Request
from tests.served.server.answering import Asking, Token
from tests.served.server.app import _streamed
from tests.served.server.asked import Asked, question_of
from tests.served.server.said import Said
from tests.served.server.serving import serving
from tests.tiny_models import END, save_tiny_model

PROMPT = [7, 11, 13]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    model = save_tiny_model(folder / "model", seed=1, dtype="float32", eos_token_ids=[END, *range(0, 256, 5)])
    with (
        serving(model, "tiny", folder / "cache") as (address, answering),
        httpx2.Client(base_url=address, timeout=60, trust_env=False) as client,
    ):
        yield client, answering


def spoken(answering, prompt: list[int], most: int) -> tuple[list[int], str | None]:
    """By the engine itself, asked without a server."""
    answers = Answers(1)
    request = Request(prompt=tuple(prompt), max_new_tokens=most, stop_ids=frozenset(answering.arm.stop_ids))
    with open_engine(answering.arm.model, answering.arm.choice) as engine:
        engine.run([request], None, answers)
    return answers.tokens[0], answers.reasons[0]


def test_it_says_what_it_serves(served):
    client, _ = served
    [model] = client.get("/models").json()["data"]
    assert model["id"] == "tiny"
    assert Path(model["root"]).is_dir()
    assert httpx2.get(str(client.base_url.join("/version"))).json()["engine"] == "qualgate"
    assert httpx2.get(str(client.base_url.join("/health"))).status_code == 200


def test_its_tokens_are_the_engines(served):
    client, answering = served
    tokens, reason = spoken(answering, PROMPT, 12)
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "return_token_ids": True, "logprobs": 0}
    reply = client.post("/completions", json=body).json()
    [choice] = reply["choices"]
    assert choice["token_ids"] == tokens
    assert choice["finish_reason"] == ("length" if reason == "length" else "stop")
    assert len(choice["logprobs"]["token_logprobs"]) == len(tokens)
    assert reply["usage"]["completion_tokens"] == len(tokens)


def pieces(response: httpx2.Response) -> list[dict]:
    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    return [json.loads(one) for one in events[:-1]]


def test_a_stream_says_what_the_whole_answer_says(served):
    client, _ = served
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "return_token_ids": True}
    [whole] = client.post("/completions", json=body).json()["choices"]
    *some, usage = pieces(client.post("/completions", json={**body, "stream": True}))
    assert "".join(piece["choices"][0]["text"] for piece in some) == whole["text"]
    assert [token for piece in some for token in piece["choices"][0]["token_ids"]] == whole["token_ids"]
    assert some[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]
    assert usage["usage"]["completion_tokens"] == len(whole["token_ids"])


@pytest.mark.parametrize("k", [0, 3, -1])
def test_a_prompts_log_probs_are_the_engines_in_vllms_form(k, served):
    client, answering = served
    reads: list[Read] = []

    def keep(event: object) -> None:
        if isinstance(event, Read):
            reads.append(event)

    with open_engine(answering.arm.model, answering.arm.choice) as engine:
        engine.run([Request(prompt=(7,), answer=(11, 13, 17))], None, keep)
    logprobs = torch.cat([read.logits for read in reads]).double().log_softmax(-1)
    body = {"model": "tiny", "prompt": [7, 11, 13, 17], "max_tokens": 0, "prompt_logprobs": k}
    reply = client.post("/completions", json=body).json()
    first, *told = reply["choices"][0]["prompt_logprobs"]
    assert first is None
    assert reply["usage"]["completion_tokens"] == 0
    assert len(told) == 3
    for entries, expected, token in zip(told, logprobs, (11, 13, 17), strict=True):
        ranked = expected.argsort(descending=True, stable=True).tolist()
        likeliest = ranked if k < 0 else ranked[:k]
        assert set(entries) == {str(one) for one in (*likeliest, token, ranked[-1])}
        for name, entry in entries.items():
            assert entry["logprob"] == pytest.approx(float(expected[int(name)]), abs=1e-12)
            assert entry["rank"] == ranked.index(int(name)) + 1


def test_a_prompt_is_read_and_gone_on_from_in_one_request(served):
    client, answering = served
    tokens, _ = spoken(answering, PROMPT, 4)
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 4, "prompt_logprobs": 1, "return_token_ids": True}
    [choice] = client.post("/completions", json=body).json()["choices"]
    assert choice["token_ids"] == tokens
    assert len(choice["prompt_logprobs"]) == len(PROMPT)


def test_a_seed_draws_the_same_again_and_another_something_else(served):
    client, _ = served
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 2.0, "return_token_ids": True}

    def drawn(seed: int) -> list[int]:
        return client.post("/completions", json={**body, "seed": seed}).json()["choices"][0]["token_ids"]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1


def test_a_stop_text_ends_an_answer_and_is_no_part_of_it(served):
    client, _ = served
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12}
    whole = client.post("/completions", json=body).json()["choices"][0]["text"]
    stop = whole[len(whole) // 2]
    for stream in (False, True):
        response = client.post("/completions", json={**body, "stop": [stop], "stream": stream})
        choices = [
            piece["choices"][0] for piece in (pieces(response) if stream else [response.json()]) if piece["choices"]
        ]
        assert "".join(choice["text"] for choice in choices) == whole.split(stop)[0]
        assert choices[-1]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"model": "other"}, 404, "does not exist"),
        ({"prompt": None}, 400, "missing"),
        ({"prompt": [10**6]}, 400, "no token 1000000"),
        ({"prompt": []}, 400, "prompt"),
        ({"max_tokens": 10**6}, 400, "maximum context length"),
        ({"temperature": -1}, 400, "temperature"),
        ({"n": 2}, 400, "n:"),
        ({"messages": [{"role": "user", "content": "x"}]}, 400, "chats have `messages`"),
        ({"response_format": {"type": "yaml"}}, 400, "response_format"),
        ({"max_tokens": 0}, 400, "answers nothing"),
        ({"prompt_logprobs": 1, "stream": True}, 400, "not streamed"),
        ({"prompt_logprobs": -2}, 400, "prompt_logprobs"),
    ],
)
def test_what_it_cannot_answer_it_refuses(change, status, said, served):
    client, _ = served
    response = client.post("/completions", json={"model": "tiny", "prompt": PROMPT, "max_tokens": 4, **change})
    assert response.status_code == status
    assert said in response.json()["error"]["message"]


def test_more_than_a_reply_may_hold_is_not_read(served, monkeypatch):
    client, _ = served
    monkeypatch.setattr("tests.served.server.asked.MOST_LISTED", 8)
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 0}
    assert client.post("/completions", json={**body, "prompt_logprobs": 2}).status_code == 200
    assert client.post("/completions", json={**body, "prompt_logprobs": 3}).status_code == 400


def test_an_answer_that_nobody_waits_for_is_said_no_further(served):
    _, answering = served
    tokens, _ = spoken(answering, [9, 9], 200)
    asked = Asked(prompt=[9, 9], max_tokens=200, stream=True)
    question = question_of(asked, answering.arm)

    async def abandoned() -> list[object]:
        asking = Asking(question, asyncio.get_running_loop())
        streamed = _streamed(asking, Said(answering.arm, asked, question), {})
        asking.tell(Token(1, 0.0))
        await anext(streamed)
        await streamed.aclose()  # as the client goes
        assert asking.cancelled.is_set()
        answering.take(asking)
        heard = []
        while isinstance(told := await asking.told.get(), Token):
            heard.append(told)
        return [*heard, told]

    *heard, reason = asyncio.run(abandoned())
    assert reason == "abort"
    assert len(heard) < len(tokens)
