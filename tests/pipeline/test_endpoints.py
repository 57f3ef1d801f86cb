"""Two servers asked within a budget of tokens: what is spent, what is stated, and which faults leave it open."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qualgate.errors import InfrastructureError, UsageError
from qualgate.pipeline.endpoint_statement import Statement, state
from qualgate.pipeline.endpoints import Asked, ask_endpoints, chosen_prompts
from qualgate.pipeline.first_look import Address
from qualgate.stats.planted import Shift
from tests.served.scripted import Reply, as_json, scripted

WORDS, READ, IDS = ("rain", "sun", "snow", "wind"), 12, itertools.count()
PLANTED = {"4-bit weights": Shift(noise=3.0)}
Answer = Callable[[dict[str, Any]], Reply]


def sampler(odds: tuple[int, ...] = (4, 3, 2, 1), **planted: Any) -> Answer:
    """A server that draws three words by these odds, with their log-probs. planted: fields of its reply, of its choice,
    and `said` in place of its text."""

    def answer(body: dict[str, Any]) -> Reply:
        drawn = random.Random(f"{body['seed']} {body['messages']}").choices(WORDS, odds, k=3)
        spelled = [*(planted.get("spelled", "{} ").format(word) for word in drawn), *planted.get("end", ())]
        content = planted.get("content", [{"token": token, "logprob": planted.get("nats", -1.0)} for token in spelled])
        text = planted["said"](body) if "said" in planted else " ".join(drawn)
        choice = {
            "index": 0,
            "finish_reason": planted.get("finish", "stop"),
            "message": {"role": "assistant", "content": text},
        }
        if body.get("logprobs"):
            choice["logprobs"] = {"content": content}
        usage = {"prompt_tokens": planted.get("read", READ), "completion_tokens": planted.get("counted", 3)}
        whole = {"choices": [choice], "usage": usage, "model": planted.get("model", "m")}
        return as_json(whole | {"id": planted.get("id") or f"chatcmpl-{next(IDS):032x}", "created": 1})

    return answer


def compared(a: Answer, b: Answer, tokens: int = 4000) -> tuple[Asked, Statement]:
    with scripted(otherwise=a) as one, scripted(otherwise=b) as other:
        prompts = chosen_prompts([], Path(), tokens)
        asked = ask_endpoints(Address(url=one.address), Address(url=other.address), prompts, tokens, lambda *_: None)
    return asked, state(asked, 0.05, PLANTED)


def test_both_get_the_same_requests_and_the_budget_holds():
    asked, made = compared(sampler(), sampler())
    assert made.outcome == "no difference found", made
    assert made.chances["4-bit weights"] > 0.5
    assert made.apart is not None
    assert made.apart.p_logprobs == 1.0
    a, b = asked.spent
    assert (a.requests, a.tokens) == (b.requests, b.tokens)
    assert a.requests == 1 + asked.prompts * (1 + asked.repeats)
    assert 0.5 * asked.tokens < a.tokens + b.tokens <= asked.tokens


def test_other_odds_are_found_and_so_are_other_log_probs():
    _, made = compared(sampler(), sampler((1, 2, 3, 4)))
    assert made.outcome == "different"
    _, made = compared(sampler(), sampler(nats=-1.1))
    assert made.apart is not None
    assert (made.outcome, made.apart.p > made.apart.each) == ("different", True)
    assert made.apart.nats == pytest.approx(0.1)


def test_another_template_is_noted_by_its_tokens():
    _, made = compared(sampler(), sampler(read=READ + 5))
    assert any("another chat template" in note for note in made.notes)


def test_a_server_without_log_probs_is_compared_by_its_answers():
    def refuses(body: dict[str, Any]) -> Reply:
        return as_json({"error": "logprobs are not supported"}, 400) if body.get("logprobs") else sampler()(body)

    for other in (refuses, sampler(content="?"), sampler(content=[{"token": 7, "logprob": "x"}, None, 1 << 70])):
        _, made = compared(sampler(), other)
        assert (made.outcome, made.faults) == ("no difference found", ())
        assert made.apart is not None
        assert made.apart.p_logprobs is None
        assert any("only the answers are compared" in note for note in made.notes)


@pytest.mark.parametrize(
    "wire", [{"spelled": "Ġ{}"}, {"spelled": "token_id:{}"}, {"end": ["<|im_end|>"]}, {"finish": "eos_token"}]
)
def test_how_a_server_writes_an_answer_is_no_difference(wire):
    _, made = compared(sampler(), sampler(**wire))
    assert (made.outcome, made.faults) == ("no difference found", ())


def test_long_prompts_are_left_out_and_a_small_alpha_has_its_chances(tmp_path):
    cases = [{"id": f"{i}", "max_new_tokens": 8, "prompt": f"{i} " + "rain " * (0 if i else 1500)} for i in range(10)]
    (tmp_path / "set.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (tmp_path / "set.yaml").write_text("name: set\nversion: '1'\nmetrics: [format.nonempty]\n")
    assert len(chosen_prompts(["./set.yaml"], tmp_path, 7_000)) == 9
    asked, _ = compared(sampler(), sampler())
    assert state(asked, 0.01, {"other log-probs": Shift(nats=0.5)}).chances["other log-probs"] > 0.9


def mostly_stuck(body: dict[str, Any]) -> str:
    return by_prompt(body) if "rain" not in by_prompt(body) else f"{body['seed']}"


def by_prompt(body: dict[str, Any]) -> str:
    return str(body["messages"])


FAULTS = {
    "empty": (sampler(said=lambda body: "", counted=1, content=None), "answers are empty"),
    "reasoning parser": (sampler(said=lambda body: "", counted=32), "its reasoning parser"),
    "temperature ignored": (sampler(said=by_prompt), "all its answers to one prompt are alike"),
    "cached replies": (sampler(id="chatcmpl-0123456789abcdef0123456789abcdef", said=by_prompt), "a cache answers"),
    "cached, most of them": (sampler(said=mostly_stuck, content=None), "all its answers to one prompt are alike"),
    "filtered": (sampler(finish="content_filter"), "ended by the server or its filter"),
    "another model": (sampler(model="cheap-9b"), "cheap-9b answers"),
    "another quantization": (sampler(model="m-awq-int4"), "m-awq-int4 answers"),
    "a cache's mark": (sampler(model="m (from a cache)"), "a cache, a fallback"),
    "max_tokens ignored": (sampler(counted=500), "ignores `max_tokens`"),
    "counts that grow": (lambda body: sampler(read=READ + next(IDS) ** 2)(body), "count"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_server_is_named_and_nothing_is_said_of_the_models(fault):
    faulty, words = FAULTS[fault]
    _, made = compared(sampler((1, 2, 3, 4)), faulty)
    assert made.outcome == "cannot tell"
    assert made.apart is None
    assert any(words in line for line in made.faults), made.faults


def test_a_server_that_fails_ends_the_comparison_by_its_own_fault():
    with pytest.raises(InfrastructureError, match="busy"):
        compared(sampler(), lambda body: as_json({"error": "busy"}, 503, Retry_After="9999"))


def test_a_budget_that_is_too_small_says_how_much_is_needed():
    with pytest.raises(UsageError, match=r"give \d+ or more"):
        chosen_prompts([], Path(), 100)


def test_the_prompts_of_an_evalset_are_asked_in_place_of_the_open_ones():
    prompts = chosen_prompts(["transform"], Path(), 20_000)
    assert all("messages" in body and body["max_tokens"] <= 32 for body in prompts)
    assert prompts != chosen_prompts([], Path(), 20_000)
