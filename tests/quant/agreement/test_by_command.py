"""Folders that servers read differently, by the command: refused (64) with the file, or judged as the arm names it."""

from __future__ import annotations

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.quant.agreement.shipped import CONFIG, GENERATION, OTHER, TOKENIZER, edited
from tests.tiny_sets import write_set

ENDS = {GENERATION: {"eos_token_id": 0}}
CASES = {  # edits of the variant's folder, keys beside its `model`, what is said
    "stop tokens": (ENDS, "", "transformers 0; vllm, sglang 0 and 2"),
    "a template beside another": ({TOKENIZER: {"chat_template": OTHER}}, "", "hold different texts"),
    "the same, for a server": ({TOKENIZER: {"chat_template": OTHER}}, ", read_as: sglang", ""),
    "one for tools": ({"additional_chat_templates/tool_use.jinja": OTHER}, "", "'tool_use'"),
    "an unknown tokenizer": ({TOKENIZER: {"tokenizer_class": "SupportTokenizer"}}, "", "tokenizer_class"),
    "special tokens in two files": (
        {TOKENIZER: {"added_tokens_decoder": None}, "special_tokens_map.json": {"eos_token": "<|endoftext|>"}}, "",
        "says eos_token '<|endoftext|>', and tokenizer_config.json '<|im_end|>'",
    ),
    "a token that the config adds": (
        {TOKENIZER: {"added_tokens_decoder": {"700": {"content": "x", "special": True}}}}, "",
        "(added_tokens_decoder of tokenizer_config.json is {'700': {'content': 'x'",
    ),
    "an end that SGLang alone reads, for vLLM": ({CONFIG: {"eos_token_id": [2, 0]}}, ", read_as: vllm", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_config_check_refuses_what_servers_read_differently(tmp_path, name):
    edits, keys, message = CASES[name]
    variant = edited(tmp_path / "variant", edits)
    write_set(tmp_path, "own", ["Say yes."])
    (tmp_path / "gate.yaml").write_text(
        f"version: 1\nbaseline: {{model: reference}}\nvariants:\n  v: {{model: {variant}{keys}}}\n"
        "evalsets: [./own.yaml]\ngate: {rules: [{metric: exact_match, max_drop: 0.1}]}\n"
    )
    done = qualgate("config", "check", "gate.yaml", cwd=tmp_path)
    assert done.returncode == (Exit.USAGE if message else 0), done.stderr
    assert message in done.stderr
