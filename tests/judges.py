"""Judges as a script: they read the request as a served model does, and reply by what they like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from qualgate.records import Judge, Served
from tests.served.scripted import Reply, as_json

SHOWN = re.compile(r"<<(QUESTION|ANSWER A|ANSWER B) ([0-9a-f]{16})>>\n(.*?)\n<<END \1 \2>>", re.DOTALL)


def shown(body: dict[str, Any]) -> tuple[str, str, str]:
    """Question, answer A and answer B of a request."""
    found = {name: text for name, _, text in SHOWN.findall(body["messages"][1]["content"])}
    return found["QUESTION"], found["ANSWER A"], found["ANSWER B"]


def says(verdict: str) -> str:
    return json.dumps({"reason": "as the rubric has it", "verdict": verdict})


@dataclass(frozen=True, kw_only=True)
class Scripted:
    """Prefers the answer that is worth more. worth: of an answer; first, longer, formatted: how much more the place,
    the length or the format is worth to it; noise: sd of what it misjudges, drawn by the texts."""

    worth: Callable[[str], float]
    first: float = 0.0
    longer: float = 0.0
    formatted: float = 0.0
    noise: float = 0.0
    near: float = 0.0  # differences below are ties

    def __call__(self, body: dict[str, Any]) -> str:
        _, a, b = shown(body)
        drawn = {text: Random(f"judge {text}").gauss(0, self.noise) for text in (a, b)}
        lead = self.worth(a) + drawn[a] - self.worth(b) - drawn[b] + self.first
        lead += self.longer * ((len(a) > len(b)) - (len(a) < len(b)))
        lead += self.formatted * ((a.count("**") > b.count("**")) - (a.count("**") < b.count("**")))
        return says("tie" if abs(lead) <= self.near else "A" if lead > 0 else "B")


def as_server(judge: Callable[[dict[str, Any]], str]) -> Callable[[dict[str, Any]], Reply]:
    """How a server with this judge answers a chat request."""
    return lambda body: as_json({"choices": [{"index": 0, "message": {"role": "assistant", "content": judge(body)}}]})


def judge_at(endpoint: str = "http://127.0.0.1:1/v1", **changes: Any) -> Judge:
    return Judge(**{"model": "m", "served": Served(endpoint=endpoint), "rubric": "The right answer wins."} | changes)
