"""The request for a prompt: its path and its body.

Token ids where a tokenizer of ours made them, so that every arm reads the same tokens; else the case's messages, which
the server puts through its own template, or its prompt as text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from qualgate.records import ArmSpec, Case, Prompt, Served
from qualgate.served import sglang
from qualgate.served.engines import tells_tokens
from qualgate.served.told_odds import TOLD

CALLS_AS = "dialect"  # in `Prompt.asked`: how calls that a server's parser read are written; never sent


def asked_of(case: Case, served: Served, dialect: str) -> str:
    """Return `Prompt.asked`: the parts of a case that its tokens lack. dialect: of its tool calls, "" for none."""
    fields: dict[str, Any] = {}
    if not served.tokenizer:
        fields = {name: case.body[name] for name in ("messages", "prompt", "tools") if name in case.body}
        fields |= {CALLS_AS: dialect} if dialect else {}
    if "constraint" in case.body:
        schema = case.body["constraint"]["json_schema"]
        fields["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": schema, "strict": True},
        }
    return json.dumps(fields) if fields else ""


def dialect_asked(prompt: Prompt) -> str:
    """Return the dialect in which calls that a server's parser read are written; "" if none are expected."""
    return json.loads(prompt.asked).get(CALLS_AS, "") if prompt.asked else ""


def gives_calls(prompt: Prompt) -> bool:
    """Return whether the request offers tools, so that the server's own parser reads the answer."""
    return bool(prompt.asked) and "tools" in json.loads(prompt.asked)


def request_of(prompt: Prompt, arm: ArmSpec, seed: int, *, odds: bool = False) -> tuple[str, dict[str, Any]]:
    """Return path and body. seed: of the run; each case and repeat derives its own, the same for every arm. odds:
    whether to request log-probs of the answer's tokens too, which costs the server time."""
    served = arm.served
    assert served is not None, "asked of served arms alone"
    fields = json.loads(prompt.asked) if prompt.asked else {}
    fields = {name: value for name, value in fields.items() if name != CALLS_AS}
    body: dict[str, Any] = {"model": arm.model, **fields, "max_tokens": prompt.max_new_tokens}
    body |= _sampling(prompt, seed)
    if prompt.until:
        body["stop"] = list(prompt.until)
    if prompt.token_ids:
        body["prompt"] = list(prompt.token_ids)
        if tells_tokens(served.engine):
            body |= {"return_token_ids": True, **({"logprobs": TOLD} if odds else {})}
    if served.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    body |= json.loads(served.extra_body or "{}")
    return ("/chat/completions" if "messages" in fields else "/completions"), body


def reading_of(prompt: Prompt, answer: Sequence[int], arm: ArmSpec) -> tuple[str, dict[str, Any]]:
    """Return path and body that read an answer behind the prompt. vLLM generates a token at least, which is dropped."""
    served = arm.served
    assert served is not None, "asked of served arms alone"
    tokens, extra_body = [*prompt.token_ids, *answer], json.loads(served.extra_body or "{}")
    if served.engine == "sglang":
        return sglang.PATH, sglang.reading(tokens, len(prompt.token_ids), served.prompt_logprobs) | extra_body
    body: dict[str, Any] = {
        "model": arm.model,
        "prompt": tokens,
        "max_tokens": 1,
        "temperature": 0.0,
        "prompt_logprobs": served.prompt_logprobs,
    }
    return "/completions", body | extra_body


def _sampling(prompt: Prompt, seed: int) -> dict[str, Any]:
    """Return a request's sampling parameters, with a seed of its own if the answer is sampled."""
    sampling = prompt.sampling
    body: dict[str, Any] = {"temperature": sampling.temperature, **sampling.cuts, **sampling.penalties}
    if sampling.drawn:
        key = prompt.key
        seed_source = f"{seed}\0{key.evalset}\0{key.case_id}\0{key.repeat}".encode("utf-8", "surrogatepass")
        body["seed"] = int.from_bytes(sha256(seed_source).digest()[:4], "big") >> 1  # what every server takes: 31 bits
    return body
