"""Faults that are planted in a server are caught and named before its first case; a sound one shows none."""

from __future__ import annotations

import itertools
import json
import time
from functools import partial
from typing import Any

import pytest

from qualgate.errors import Exit
from qualgate.records import ArmSpec, Budget, Case, Probe, Prompt, Sampling, Served, UnitKey
from qualgate.served import probes as questions
from qualgate.served.asked import asked_of
from qualgate.served.ledger import Ledger
from qualgate.served.probes import Contradicted, probe
from tests.served.scripted import Reply, Scripted, as_json, as_stream, scripted, sound

TOOLS = [{"type": "function", "function": {"name": "cancel", "parameters": {"type": "object"}}}]
CHAT: dict[str, Any] = {"id": "c", "messages": [{"role": "user", "content": "Cancel A1."}], "tools": TOOLS}
TEXT: dict[str, Any] = {"id": "c", "prompt": "p"}
ALL = (
    "own answers", "tokens", "temperature", "seed", "max_tokens", "context", "stop", "tools", "log-probs", "stream",
    "model",
)  # fmt: skip


def found(
    server: Scripted, body: dict[str, Any] = CHAT, sampling: Sampling | None = None, **more: Any
) -> dict[str, Probe]:
    arm = ArmSpec(name="v", model="m", served=Served(endpoint=server.address))
    case = Case(evalset="s", body=body)
    prompt = Prompt(
        key=UnitKey("v", "s", "c"), case_hash="h", token_ids=(), max_new_tokens=4,
        asked=asked_of(case, Served(endpoint="x"), "hermes"), sampling=sampling or Sampling(),
    )  # fmt: skip
    return {one.name: one for one in probe(arm, [prompt], 4, **more)}


def shown(body: dict[str, Any] = CHAT, sampling: Sampling | None = None, **planted: Any) -> dict[str, Probe]:
    with scripted(probes=partial(sound, **planted)) as server:
        return found(server, body, sampling)


SCHEMA = {"type": "object", "properties": {f"name_{n}": {"type": "string"} for n in range(300)}}


@pytest.mark.parametrize("case", [{"prompt": "東京" * 750}, {"prompt": "p", "constraint": {"json_schema": SCHEMA}}])
def test_a_context_is_tried_by_prompts_as_long_as_the_longest_case_and_no_longer(case):
    """A server that cuts off what is longer reads all of these whole."""
    assert shown({"id": "c", **case}, context=1_000)["context"].fault == ""
    with pytest.raises(Contradicted, match="reads a long prompt in part"):
        shown({"id": "c", **case}, context=400)


def faults(probes: dict[str, Probe]) -> set[str]:
    return {name for name, one in probes.items() if one.fault}


@pytest.mark.parametrize("body", [CHAT, TEXT])
def test_a_sound_server_shows_no_fault(body):
    probes = shown(body, Sampling(temperature=0.7))
    assert faults(probes) == set()
    assert tuple(probes) == tuple(name for name in ALL if name != "tools" or body is CHAT)
    assert probes["tokens"].values == (11.0, 9.0, 10.0)
    assert len(probes["log-probs"].values) == 11


PLANTED = [
    ({"greedy": True}, "temperature", "ignores `temperature`"),
    ({"unsteady": True}, "temperature", "does not say the same twice at temperature 0"),
    ({"seedless": True}, "seed", "ignores `seed`"),
    ({"parser": "off"}, "tools", "its tool parser is off"),
    ({"unstopped": True}, "stop", "it ignores `stop`"),
    ({"stale": True}, "own answers", "it answers different questions alike"),
]


@pytest.mark.parametrize(("planted", "name", "said"), PLANTED)
def test_a_planted_fault_is_named(planted, name, said):
    probes = shown(sampling=Sampling(temperature=0.7), **planted)
    assert faults(probes) == {name}
    assert said in probes[name].fault
    assert probes[name].asked
    assert probes[name].saw


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ({"crossed": True}, "the answer to another one"),
        ({"beyond": 5}, "ignores `max_tokens`"),
        ({"context": 300}, "reads a long prompt in part"),
        ({"context": 60}, "in part, or miscounts it: it counts 60 tokens in each of prompts"),
    ],
)
def test_what_no_answer_may_rest_on_ends_the_run(planted, said, monkeypatch):
    monkeypatch.setattr("tests.served.scripted.COUNTED", itertools.count())
    with pytest.raises(Contradicted, match=said) as raised:
        shown(**planted)
    assert raised.value.exit == Exit.USAGE


@pytest.mark.parametrize("wavers", [False, True])
def test_thoughts_that_begin_alike_accuse_nobody(wavers):
    """Wavering, the first question is answered together with others as the fourth is alone, as batches may have it."""
    asked = itertools.count()

    def thinking(body: dict[str, Any]) -> Reply:
        text = body["messages"][-1]["content"]
        if text not in questions.WORDED:
            return sound(body)
        at, together = questions.WORDED.index(text), next(asked) < len(questions.WORDED)
        opening = "Hmm" if wavers and at == (0 if together else 3) else "Okay"
        thought = f"{opening}, so I need to {'think again and ' * 50}write {text}"
        message = {"role": "assistant", "content": " ".join(thought.split()[: body["max_tokens"]])}
        usage = {"prompt_tokens": len(text.split()), "completion_tokens": body["max_tokens"]}
        return as_json({"choices": [{"index": 0, "message": message, "finish_reason": "length"}], "usage": usage})

    with scripted(probes=thinking) as server:
        assert found(server)["own answers"].fault == ""


def test_a_seed_that_is_ignored_matters_only_where_answers_are_drawn():
    assert faults(shown(seedless=True)) == set()


def test_a_context_as_long_as_the_longest_case_is_looked_at():
    long = {"id": "c", "messages": [{"role": "user", "content": "word " * 4000}]}
    assert faults(shown(context=1000)) == set()
    with pytest.raises(Contradicted, match="Raise its context length"):
        shown(long, context=1000)


def refusing(what: str):
    def answer(body: dict[str, Any]) -> Reply:
        asked = {"seed": "seed" in body, "tools": "tools" in body, "echo": "echo" in body}
        asked["long"] = len(str(body)) > 2000
        return as_json({"error": {"message": f"{what} is not known"}}, 400) if asked[what] else sound(body)

    return answer


@pytest.mark.parametrize(
    ("what", "name", "wrong"),
    [
        ("seed", "temperature", set()),
        ("echo", "log-probs", set()),
        ("long", "context", set()),
        ("tools", "tools", {"tools"}),
    ],
)
def test_a_refusal_is_seen_and_is_a_fault_only_of_what_cases_need(what, name, wrong):
    with scripted(probes=refusing(what)) as server:
        probes = found(server)
    assert faults(probes) == wrong
    assert "refuses" in probes[name].saw or "does not tell" in probes[name].saw


def test_a_server_that_tells_no_counts_is_not_held_to_them():
    def silent(body: dict[str, Any]) -> Reply:
        said = f"by {body.get('seed')}, to {body.get('messages')}".partition(body.get("stop", ["\0"])[0])[0]
        message = {"role": "assistant", "content": said}
        return as_json({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    with scripted(probes=silent) as server:
        probes = found(server)
    assert faults(probes) == set()
    for name in ("tokens", "max_tokens", "context", "log-probs"):
        assert "does not tell" in probes[name].saw


def test_one_that_does_not_answer_is_left_to_its_cases():
    busy = as_json({"error": "busy"}, 503, Retry_After="9999")
    with scripted(probes=lambda body: busy) as server:
        probes = found(server)
    assert faults(probes) == {"probes"}
    assert "they were not made" in probes["probes"].fault


def test_a_server_that_stands_still_between_two_probes_is_not_called_silent(monkeypatch):
    """A server on a busy machine, seen to answer for some seconds and then to rest for minutes."""
    monkeypatch.setattr("qualgate.served.probes.SECONDS", 2.0)

    def rests(body: dict[str, Any]) -> Reply:
        if body["max_tokens"] == 1:
            time.sleep(4)
        return sound(body)

    with scripted(probes=rests) as server:
        probes = found(server)
    assert probes["probes"].fault == "they were not all made"
    assert "within 2 s" in probes["probes"].saw


def test_a_server_that_counts_tokens_where_it_is_asked_to_leaves_no_probe_uncounted(tmp_path):
    """llama.cpp's counts those of a stream only where `include_usage` is asked for, as OpenAI does."""

    def counting(body: dict[str, Any]) -> Reply:
        reply = json.loads(sound(body).body)
        usage = reply.pop("usage", {"prompt_tokens": 1, "completion_tokens": 1})
        if not body.get("stream"):
            return as_json({**reply, "usage": usage})
        [choice] = reply["choices"]
        piece = {**choice, "delta": choice["message"]}
        counts = [{"choices": [], "usage": usage}] if body.get("stream_options", {}).get("include_usage") else []
        return as_stream({"choices": [piece]}, *counts)

    ledger = Ledger(tmp_path / "spent", Budget())
    with scripted(probes=counting) as server:
        probes = found(server, ledger=ledger, nonce="n")
    assert "cache" in probes
    assert faults(probes) == set()
    assert ledger.spent()["v"].estimated == 0


def test_a_probe_without_an_answer_takes_no_other_away():
    """Neither what ends the run nor what was shown."""

    def broken(planted: dict[str, Any]) -> Any:
        return lambda body: as_json({}, 500) if body["temperature"] > 0 else sound(body, **planted)

    with scripted(probes=broken({"beyond": 3})) as server, pytest.raises(Contradicted):
        found(server)
    with scripted(probes=broken({})) as server:
        probes = found(server)
    assert {"own answers", "tokens", "max_tokens", "probes"} <= set(probes)
    assert faults(probes) == {"probes"}
    assert "some of them" in probes["probes"].fault
