"""Headers of gateways, as they were seen or are documented, and what they say of who answered."""

from __future__ import annotations

import pytest

from qualgate.served.gateways import answerers

LITELLM = {  # 1.108.7, which writes the name that was asked for into the body
    "x-litellm-model-name": "openai/base-up",
    "x-litellm-model-id": "4de1e89a2b7ec2e00ab353f530af1324",
    "x-litellm-model-group": "half",
    "x-litellm-attempted-fallbacks": "0",
}
HITS = [
    ("x-cache", "HIT"),
    ("x-cache", "TCP_MEM_HIT from proxy"),
    ("x-openrouter-cache-status", "HIT"),
    ("cache-status", "ExampleCache; hit; ttl=376"),
    ("x-vercel-cache", "hit"),
]
NO_HITS = [("x-cache", "no-hit"), ("cache-status", "a; hit=?0"), ("cache-status", "b; fwd=miss; detail=hit-for-pass")]
FELL_BACK = {**LITELLM, "x-litellm-attempted-fallbacks": "1"}


@pytest.mark.parametrize(
    ("headers", "names"),
    [
        ({}, ("m",)),
        (LITELLM, ("openai/base-up (deployment 4de1e89a)",)),
        (FELL_BACK, ("openai/base-up (by fallback)",)),
        ({**FELL_BACK, "x-litellm-cache-key": "6de3db70"}, ("openai/base-up (from a cache)",)),
        ({**LITELLM, "x-litellm-model-id": "support-awq"}, ("openai/base-up (deployment support-awq)",)),
        *(({name: told}, ("m (from a cache)",)) for name, told in HITS),
        *(({name: told}, ("m",)) for name, told in NO_HITS),
        ({"ngrok-aig-model": "gpt-4o"}, ("gpt-4o",)),
        ({"cf-aig-cache-status": "HIT", "cf-aig-step": "0"}, ("m (from a cache)",)),
        ({"cf-aig-step": "1"}, ("m (by fallback)",)),
        ({"x-kong-llm-model": "openai/gpt-4o"}, ("openai/gpt-4o",)),
        ({"x-cache": "Miss from cloudfront", "cf-cache-status": "DYNAMIC", "x-portkey-cache-status": "MISS"}, ("m",)),
        ({"x-litellm-cache-key": "None", "x-litellm-model-name": ""}, ("m",)),
    ],
)
def test_headers_say_who_answered_behind_the_name_in_the_body(headers, names):
    assert answerers(headers, ("m",)) == names


def test_a_reply_that_names_nobody_is_counted_as_that():
    assert answerers({}, ()) == ("no name",)
