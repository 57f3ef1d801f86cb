from __future__ import annotations

import pytest

from qualgate.config import load_gate_file
from qualgate.config.listed_name import listed_name
from qualgate.errors import UsageError


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("vllm serve ./support-awq --port {port} --quantization awq", "./support-awq"),
        ("uvx vllm serve --model ./support --port {port}", "./support"),
        ("env/bin/vllm serve ./support --served-model-name support other --port {port}", "support"),
        ("python -m vllm.entrypoints.openai.api_server --model=./support --port {port}", "./support"),
        ("python -m sglang.launch_server --model-path ./support --port {port}", "./support"),
        ("docker run --name gate --rm image vllm serve ./support --port {port}", "./support"),
        ("llama-server -m support.gguf --alias support --port {port}", "support"),
        ("qualgate serve ./models/support --port {port}", "support"),
        ("qualgate serve reference --name mine --port {port}", "mine"),
        ("llama-server -m support.gguf --port {port}", ""),
        ("trtllm-serve ./support --port {port}", ""),
        ("vllm serve --port {port}", ""),
        ("vllm serve", ""),
        ("qualgate serve --port {port}", ""),
        ("a quote ' that does not end", ""),
        ("", ""),
    ],
)
def test_a_command_tells_the_name_that_its_server_lists_or_does_not(command, name):
    assert listed_name(command) == name


def gate(baseline: str, variant: str) -> str:
    rules = "gate: {rules: [{metric: exact_match, max_drop: 0.02}]}"
    return f"version: 1\nbaseline: {baseline}\nvariants: {{v: {variant}}}\nevalsets: [arithmetic]\n{rules}\n"


def test_a_model_that_the_command_names_need_not_be_said_again(tmp_path):
    served = '{serve: "vllm serve ./awq --port {port}", engine: vllm}'
    (file := tmp_path / "gate.yaml").write_text(gate('{serve: "qualgate serve ./m/support --port {port}"}', served))
    found = load_gate_file(file)
    assert [arm.model for arm in (found.baseline, *found.variants)] == ["support", "./awq"]


@pytest.mark.parametrize("variant", ['{serve: "llama-server -m f.gguf --port {port}"}', '{endpoint: "http://h/v1"}'])
def test_where_nothing_tells_it_the_file_is_refused(variant, tmp_path):
    (file := tmp_path / "gate.yaml").write_text(gate("{model: reference}", variant))
    with pytest.raises(UsageError, match="`endpoint` and `serve` need `model`: the name under which"):
        load_gate_file(file)
