from __future__ import annotations

import pytest

from qualgate.config.listed_name import listed_name
from tests.config.gate_files import changed


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
        ("llama-server -m support.gguf --port {port}", ""),
        ("trtllm-serve ./support --port {port}", ""),
        ("vllm serve --port {port}", ""),
        ("vllm serve", ""),
        ("a quote ' that does not end", ""),
        ("", ""),
    ],
)
def test_a_command_tells_the_name_that_its_server_lists_or_does_not(command, name):
    assert listed_name(command) == name


def test_a_model_that_the_command_names_need_not_be_said_again(load):
    baseline = 'baseline: {serve: "vllm serve ./m/support --port {port}"}'
    served = 'variants: {v: {serve: "vllm serve ./awq --port {port}", engine: vllm}}'
    found = load(changed(2, baseline).replace("variants: {int8: {quantize: int8}}", served))
    assert [arm.model for arm in (found.baseline, *found.variants)] == ["./m/support", "./awq"]


@pytest.mark.parametrize("variant", ['{serve: "llama-server -m f.gguf --port {port}"}', '{endpoint: "http://h/v1"}'])
def test_where_nothing_tells_it_the_file_is_refused(faults, variant):
    found = faults(changed(3, f"variants: {{v: {variant}}}"))
    assert any("`endpoint` and `serve` need `model`: the name under which" in message for _, message in found)
