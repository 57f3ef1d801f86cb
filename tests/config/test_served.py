"""Arms that are served, as a gate file says them and as a run takes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.records import Served

SERVED = """\
version: 1
baseline: {endpoint: "http://127.0.0.1:8000/v1/", model: support, api_key_env: SUPPORT_KEY, tokenizer: ./tok,
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


@pytest.fixture
def gate_file(tmp_path: Path) -> Path:
    (tmp_path / "tok").mkdir()
    return tmp_path / "gate.yaml"


def test_served_arms_are_read(gate_file):
    gate_file.write_text(SERVED)
    gate = load_gate_file(gate_file)
    assert gate.baseline.model == "support"
    assert gate.baseline.served == Served(
        endpoint="http://127.0.0.1:8000/v1",
        api_key_env="SUPPORT_KEY",
        tokenizer=str(gate_file.parent / "tok"),
        prompt_logprobs=20,
    )
    assert gate.baseline.reads == str(gate_file.parent / "tok")
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


def test_what_is_made_of_the_baselines_weights_needs_them_here(gate_file):
    gate_file.write_text(SERVED.replace("evalsets:", "  int8: {quantize: int8}\nevalsets:"))
    with pytest.raises(UsageError, match=r"gate.yaml:13: the baseline is served, and int8 would be generated here"):
        load_gate_file(gate_file)


def test_a_key_in_the_file_is_not_repeated(gate_file):
    gate_file.write_text(SERVED.replace("api_key_env: SUPPORT_KEY", "api_key_env: sk-canary"))
    with pytest.raises(UsageError) as found:
        load_gate_file(gate_file)
    assert "a key itself must not stand in a file" in str(found.value)
    assert "sk-canary" not in str(found.value)


BODY = "extra_body: {chat_template_kwargs: {enable_thinking: false}}"
HEADERS = "extra_headers: {X-Team: support, X-Area: eu}"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("--port {port}", "--port {port} --api-key sk-canary", "gives its server a key ('--api-key')"),
        ("--port {port}", "--port {port} --hf-token=sk-canary", "gives its server a key ('--hf-token')"),
        ("vllm serve", "env VLLM_API_KEY=sk-canary vllm serve", "gives its server a key ('VLLM_API_KEY')"),
        (
            "vllm serve ./awq --port {port}",
            "sh -c 'vllm serve ./awq --port {port} --api-key sk-canary'",
            "a key ('--api-key')",
        ),
        (HEADERS, "extra_headers: {Ocp-Apim-Subscription-Key: sk-canary}", "no key stands in a file"),
        (HEADERS, "extra_headers: {X-Auth: sk-canary}", "no key stands in a file"),
        (HEADERS, "extra_headers: {X-Team: Bearer sk-canary}", "no key stands in a file"),
        (BODY, "extra_body: {user: {api_key: sk-canary}}", "`extra_body` has 'api_key'"),
    ],
)
def test_a_key_is_found_wherever_a_file_may_hold_it_and_is_not_repeated(before, after, said, gate_file):
    assert before in SERVED
    gate_file.write_text(SERVED.replace(before, after, 1))
    with pytest.raises(UsageError) as found:
        load_gate_file(gate_file)
    assert said in str(found.value)
    assert "canary" not in str(found.value)


def test_what_only_sounds_like_a_key_is_none(gate_file):
    flags = "--port {port} --max-num-batched-tokens 8192 --tokenizer ./tok --ssl-keyfile ./k.pem --served-model-name m"
    body = "extra_body: {skip_special_tokens: false, stop_token_ids: [2], min_tokens: 1}"
    headers = "extra_headers: {X-Author: eu}"
    gate_file.write_text(SERVED.replace("--port {port}", flags, 1).replace(BODY, body).replace(HEADERS, headers))
    served = [arm.served for arm in load_gate_file(gate_file).variants if arm.served]
    assert "min_tokens" in served[0].extra_body


@pytest.mark.parametrize(
    ("said", "twice"),
    [("", True), ("noise_floor: false, ", False), ("noise_floor: true, ", True), ("stop: early, ", False)],
)
def test_a_served_baseline_is_asked_twice_unless_the_file_says_otherwise(said, twice, gate_file):
    gate_file.write_text(SERVED.replace("gate: {", f"gate: {{{said}"))
    assert load_gate_file(gate_file).noise_floor is twice


def test_a_baseline_that_is_generated_here_is_not(gate_file):
    gate_file.write_text(
        "version: 1\nbaseline: {model: reference}\nvariants: {int8: {quantize: int8}}\nevalsets: [arithmetic]\n"
        "gate: {rules: [{metric: exact_match, max_drop: 0.02}]}\n"
    )
    assert load_gate_file(gate_file).noise_floor is False


def test_a_wrong_command_is_told_and_its_models_name_is_looked_for_nowhere(gate_file):
    gate_file.write_text(
        SERVED.replace("vllm serve ./awq --port {port}", "vllm serve ./awq").replace("./awq\n", "awq\n")
    )
    with pytest.raises(UsageError) as told:
        load_gate_file(gate_file)
    assert "`serve` is a command with {port}" in str(told.value)
    assert "no model" not in str(told.value)
