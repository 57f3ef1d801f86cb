"""Gateways before two models, as public reports have them: some answer with another model's reply, some only look so.

A `Gateway` answers for every arm of a run at one address or at several. Each `Way` changes the reply that the model
which was asked for gives: by another's, or by an honest oddity of names, ids and times.
"""

from __future__ import annotations

import itertools
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qualgate.served import probes
from tests.served.scripted import Reply, as_json, as_stream, is_probe, sound

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A reply. names: of its first frame and of the others, where they differ; cut: into how many pieces it is
    streamed."""

    text: str
    id: Any
    created: Any
    model: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    names: tuple[Any, Any] | None = None
    cut: int = 2


@dataclass(slots=True)
class Gateway:
    """way: what becomes of a model's own reply. cache: by question, the first reply to it."""

    way: Callable[[Gateway, Body, Sent], Sent]
    cache: dict[Any, Sent] = field(default_factory=dict)
    count: Any = field(default_factory=itertools.count)

    def __call__(self, body: Body) -> Reply:
        own = Sent(text=text_of(body), id=f"chatcmpl-{uuid.uuid4().hex}", created=int(time.time()), model=body["model"])
        return as_reply(self.way(self, body, own), body)

    def first(self, key: Any, sent: Sent) -> Sent:
        """The reply that is stored under the key, else this one, which is then."""
        return self.cache.setdefault(key, sent)


def question(body: Body) -> str:
    return body["messages"][-1]["content"] if "messages" in body else body["prompt"]


def number(body: Body) -> int:
    """Of a case; -1 of a probe."""
    found = re.match(r"question (\d+)", question(body))
    return int(found[1]) if found else -1


def text_of(body: Body) -> str:
    """What every model here answers."""
    if number(body) >= 0:
        return f"answer {number(body)}"
    if question(body).startswith(probes.NEW):
        return f"{question(body)} is closed."
    choice = json.loads(sound({**body, "stream": False}).body)["choices"][0]
    return choice["text"] if "text" in choice else choice["message"].get("content") or "called"


def as_reply(sent: Sent, body: Body) -> Reply:
    """As JSON or as a stream, whichever was asked for."""
    plain = json.loads(sound({**body, "stream": False}).body) if is_probe(body) else {}
    usage = plain.get("usage", {"prompt_tokens": 2, "completion_tokens": 2})
    head = {"id": sent.id, "created": sent.created, "model": sent.model, **sent.more}
    head = {name: value for name, value in head.items() if value is not ...}
    if not body.get("stream"):
        choice = plain["choices"][0] if plain and not question(body).startswith(probes.NEW) else _whole(sent.text, body)
        whole = as_json({**head, "choices": [choice], "usage": usage})
        return replace(whole, headers=dict(sent.headers))
    calls = plain["choices"][0].get("message", {}).get("tool_calls") if plain else None
    size = -(-len(sent.text) // sent.cut)
    deltas = [{"content": sent.text[at : at + size]} for at in range(0, len(sent.text), size)]
    deltas = [{"tool_calls": calls}] if calls else deltas
    frames = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    frames.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if sent.names:
        frames = [{**one, "model": sent.names[at > 0]} for at, one in enumerate(frames)]
    stream = as_stream(*frames, {**head, "choices": [], "usage": usage})
    return replace(stream, headers=dict(sent.headers))


def _whole(text: str, body: Body) -> dict[str, Any]:
    said = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
    return {"index": 0, "finish_reason": "stop", **said}
