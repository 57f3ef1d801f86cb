"""Arms that are served, as a gate file says them and as a run takes them."""

from __future__ import annotations

import pytest

from qualgate.records import Served
from tests.config.gate_files import SMALL

SERVED = """\
version: 1
baseline: {endpoint: "http://127.0.0.1:8000/v1/", model: support, api_key_env: SUPPORT_KEY, tokenizer: ./ours,
           prompt_logprobs: 20}
variants:
  awq:
    serve: vllm serve ./awq --port {port}
    engine: vllm
    model: ./awq
    concurrency: 64
    stream: false
    extra_body: {chat_template_kwargs: {enable_thinking: false}}
    extra_headers: {X-Team: support, X-Area: eu}
evalsets: [arithmetic]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
"""


def test_served_arms_are_read(load, tmp_path):
    gate = load(SERVED)
    assert gate.baseline.model == "support"
    assert gate.baseline.served == Served(
        endpoint="http://127.0.0.1:8000/v1",
        api_key_env="SUPPORT_KEY",
        tokenizer=str(tmp_path / "ours"),
        prompt_logprobs=20,
    )
    assert gate.baseline.reads == str(tmp_path / "ours")
    [awq] = gate.variants
    assert awq.model == "./awq"
    assert awq.served == Served(
        command="vllm serve ./awq --port {port}",
        engine="vllm",
        concurrency=64,
        stream=False,
        extra_body='{"chat_template_kwargs": {"enable_thinking": false}}',
        extra_headers=(("X-Area", "eu"), ("X-Team", "support")),
    )
    assert awq.weights_label == "vllm (started)"


def test_what_is_made_of_the_baselines_weights_needs_them_here(faults):
    ((line, message),) = faults(SERVED.replace("evalsets:", "  int8: {quantize: int8}\nevalsets:"))
    assert line == 13
    assert message.startswith("the baseline is served, and int8 would be generated here")


BODY = "extra_body: {chat_template_kwargs: {enable_thinking: false}}"
HEADERS = "extra_headers: {X-Team: support, X-Area: eu}"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("api_key_env: SUPPORT_KEY", "api_key_env: sk-canary", "a key itself must not stand in a file"),
        ("--port {port}", "--port {port} --api-key sk-canary", "gives its server a key ('--api-key')"),
        ("--port {port}", "--port {port} --hf-token=sk-canary", "gives its server a key ('--hf-token')"),
        ("vllm serve", "env VLLM_API_KEY=sk-canary vllm serve", "gives its server a key ('VLLM_API_KEY')"),
        (
            "vllm serve ./awq --port {port}",
            "sh -c 'vllm serve ./awq --port {port} --api-key sk-canary'",
            "a key ('--api-key')",
        ),
        (HEADERS, "extra_headers: {Ocp-Apim-Subscription-Key: sk-canary}", "keys must not stand in a file"),
        (HEADERS, "extra_headers: {X-Auth: sk-canary}", "keys must not stand in a file"),
        (HEADERS, "extra_headers: {X-Team: Bearer sk-canary}", "keys must not stand in a file"),
        (BODY, "extra_body: {user: {api_key: sk-canary}}", "`extra_body` has 'api_key'"),
    ],
)
def test_a_key_is_found_wherever_a_file_may_hold_it_and_is_not_repeated(faults, before, after, said):
    assert before in SERVED
    found = str(faults(SERVED.replace(before, after, 1)))
    assert said in found
    assert "canary" not in found


def test_what_only_sounds_like_a_key_is_none(load):
    flags = "--port {port} --max-num-batched-tokens 8192 --tokenizer ./tok --ssl-keyfile ./k.pem --served-model-name m"
    body = "extra_body: {skip_special_tokens: false, stop_token_ids: [2], min_tokens: 1}"
    headers = "extra_headers: {X-Author: eu}"
    text = SERVED.replace("--port {port}", flags, 1).replace(BODY, body).replace(HEADERS, headers)
    assert "min_tokens" in load(text).variants[0].served.extra_body


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        (SERVED, True),
        (SERVED.replace("gate: {", "gate: {noise_floor: false, "), False),
        (SERVED.replace("gate: {", "gate: {noise_floor: true, "), True),
        (SERVED.replace("gate: {", "gate: {stop: early, "), False),
        (SMALL, False),
    ],
)
def test_a_served_baseline_is_asked_twice_unless_the_file_says_otherwise(load, text, twice):
    assert load(text).noise_floor is twice


def test_a_wrong_command_is_told_and_its_models_name_is_looked_for_nowhere(faults):
    text = SERVED.replace("vllm serve ./awq --port {port}", "vllm serve ./awq").replace("./awq\n", "awq\n")
    found = str(faults(text))
    assert "`serve` needs {port}" in found
    assert "no model" not in found
