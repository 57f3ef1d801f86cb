"""The row `metrics.agree` on a stream whose numbers are known, and on one that a definition would tell otherwise."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.verification.served.load_agrees import Recorded, by_guidellm, by_vllm, told


def line(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def said(content: str, finish: str | None = None) -> bytes:
    return line(
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": content}, "finish_reason": finish}]}
    )


USAGE = line({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}) + b"data: [DONE]\n\n"
HALF = said("c")
STREAM = Recorded(
    path="/chat/completions",
    body={"stream": True},
    began=0.5,
    chunks=((0.25, said("")), (0.5, said("a") + said("b")), (0.75, HALF[:9]), (1.0, HALF[9:]), (1.25, said("", "stop")),
            (1.5, USAGE)),
    ended=1.5,
)  # fmt: skip


def test_what_both_programs_make_of_a_stream_is_what_is_told():
    """vLLM counts events, empty ones too: at .25, .5, .5, 1, 1.25. GuideLLM what says something: at .5, .5, 1."""
    vllm, guidellm = by_vllm([STREAM]), by_guidellm([STREAM])
    assert (vllm["ttft p50"], vllm["tpot p50"], vllm["e2e p50"]) == (0.25, pytest.approx(1.0 / 3), 1.25)
    assert (guidellm["ttft p50"], guidellm["tpot p50"], guidellm["e2e p50"]) == (0.5, 0.25, 1.5)
    assert guidellm["gap p50"] == pytest.approx(0.5 / 3)
    assert vllm["tokens/s"] == guidellm["tokens/s"] == pytest.approx(4 / 1.5)
    for by, theirs in (("vllm", vllm), ("guidellm", guidellm)):
        assert told([STREAM], by) == pytest.approx(theirs)


def test_a_stream_that_is_left_open_ends_for_guidellm_and_qualgate_when_it_says_so():
    left_open = replace(STREAM, ended=9.0)
    assert told([left_open], "guidellm") == pytest.approx(by_guidellm([left_open]))
    assert by_guidellm([left_open])["e2e p50"] == 1.5


def test_streams_side_by_side_are_told_by_their_own_times():
    later = replace(STREAM, began=1.0, chunks=tuple((2 * at, chunk) for at, chunk in STREAM.chunks), ended=3.0)
    trace = [STREAM, later]
    assert told(trace, "vllm") == pytest.approx(by_vllm(trace))
    assert told(trace, "guidellm") == pytest.approx(by_guidellm(trace))
    assert told(trace, "vllm")["ttft p50"] != pytest.approx(by_guidellm(trace)["ttft p50"])
