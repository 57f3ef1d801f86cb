"""Prompts are what the model's own template and tokenizer make of a case."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from qualgate.engine import chat_template
from qualgate.engine.prompts import Renderer, _of_files, load_tokenizer
from qualgate.errors import UsageError
from qualgate.quant.model_files import read_files
from qualgate.records import Case
from tests.depth import with_proofs


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(saved(), tmp_path / "model"))


def case(**body) -> Case:
    return Case(evalset="set", body={"id": "1", "max_new_tokens": 8} | body)


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Größe? 数"}]
TOOLS = [{"type": "function", "function": {"name": "size", "parameters": {}}}]


def test_token_ids_are_those_of_transformers(saved):
    tokenizer = AutoTokenizer.from_pretrained(saved())
    rendered = Renderer(read_files(saved())).render(
        [case(messages=MESSAGES), case(prompt="1 + 1"), case(messages=MESSAGES, tools=TOOLS)]
    )
    for found, tools in ((rendered[0], None), (rendered[2], TOOLS)):
        expected = tokenizer.apply_chat_template(MESSAGES, tools=tools, add_generation_prompt=True, return_dict=False)
        assert list(found) == expected
    assert list(rendered[1]) == tokenizer("1 + 1")["input_ids"]


CALL = {"id": "000100000", "type": "function", "function": {"name": "size", "arguments": '{"of": "Größe"}'}}
CALLED = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [CALL]},
          {"role": "tool", "tool_call_id": "000100000", "name": "size", "content": "9"}]  # fmt: skip
SHOWS_CALLS = """{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}{{
 {"name": c.function.name, "arguments": c.function.arguments} | tojson }}{% endfor %}{% endfor %}"""


def test_recorded_calls_are_written_with_their_arguments_as_an_object_and_not_left_out(folder):
    """As published templates expect them, and as vLLM hands them over; in a case they are text, as OpenAI has it."""
    (folder / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    said = r"set/2: an earlier message calls tools, and .* shows nothing of `tool_calls`"
    with pytest.raises(UsageError, match=said):
        Renderer(read_files(folder)).render([case(messages=MESSAGES), case(id="2", messages=CALLED)])
    (folder / "chat_template.jinja").write_text(SHOWS_CALLS)
    found = Renderer(read_files(folder)).text(case(messages=CALLED))
    assert found.endswith('<assistant>{"name": "size", "arguments": {"of": "Größe"}}<tool>9')


def test_messages_without_a_chat_template_and_an_empty_prompt_are_refused(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UsageError, match=r"set/1 has messages, but .* no chat template"):
        Renderer(read_files(folder)).render([case(messages=MESSAGES)])
    assert Renderer(read_files(folder)).render([case(prompt="x")])
    with pytest.raises(UsageError, match="no tokens"):
        Renderer(read_files(folder)).render([case(prompt="")])


FAILING = {
    "{{ raise_exception('no system messages') }}": "no system messages",
    "{{ messages[9].content.x }}": "UndefinedError",
    "{{ ''.__class__.__mro__ }}": "SecurityError",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "loop without end",
    "{{ 'x' * 3000000000 }}": "more than 512 MiB",
    "{% for %}": "TemplateSyntaxError",
    "{{ '%03000000000d' % 1 }}": "more than 512 MiB",
    "{{ 'x' * 17000000 }}": "more than 16,777,216 characters",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "RecursionError",
    "{{ range(10 ** 9) | list }}": "OverflowError",
}


@pytest.mark.parametrize("template", with_proofs(FAILING, list(FAILING)[5:]))  # a process each
def test_a_template_that_fails_names_the_case(folder, monkeypatch, template):
    bounds = replace(chat_template.BOUNDS, cpu_seconds=1.5)
    monkeypatch.setattr(chat_template, "BOUNDS", bounds)
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(UsageError, match=f"set/1: the chat template .*{FAILING[template]}"):
        Renderer(read_files(folder)).render([case(messages=MESSAGES)])


PLAIN = {
    "as saved": {},
    "a token of its own": {"unk_token": "<new>"},
    "added tokens": {"added_tokens_decoder": {"258": {"content": "<|end|>", "special": True}, "400": {"content": "x"}}},
    "template in the config": {"chat_template": "{{ messages[0].content }}"},
    "named templates": {"chat_template": [{"name": "default", "template": "a"}, {"name": "tools", "template": "b"}]},
    "notes": {"backend": "tokenizers", "is_local": False, "padding_side": "left", "model_input_names": ["input_ids"]},
}


def _state(tokenizer) -> dict:
    """All it holds but the backend, which is compared as it is saved; an argument that is None is one left out."""
    given = {name: value for name, value in tokenizer.init_kwargs.items() if value is not None}
    return vars(tokenizer) | {"_tokenizer": "", "init_kwargs": given}


@pytest.mark.parametrize("said", PLAIN)
@pytest.mark.parametrize("file", ["", "{{ messages[0].role }}\r\nand\rmore"])
def test_a_plain_tokenizer_made_of_what_was_read_is_transformers_own(folder, said, file):
    (folder / "chat_template.jinja").unlink()
    if file:
        (folder / "chat_template.jinja").write_bytes(file.encode())
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | PLAIN[said]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    made, theirs = _of_files(read_files(folder)), AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert made is not None
    assert type(made) is type(theirs)
    assert _state(made) == _state(theirs)
    assert made.backend_tokenizer.to_str() == theirs.backend_tokenizer.to_str()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "extra_special_tokens": ["<x>"]}),
        ("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": {"content": "<|end|>"}}),
        ("special_tokens_map.json", {"unk_token": "<new>"}),
        ("added_tokens.json", {"<new>": 500}),
    ],
)
def test_a_tokenizer_that_is_not_plain_is_left_to_transformers(folder, file, content):
    (folder / file).write_text(json.dumps(content))
    assert _of_files(read_files(folder)) is None
    if file != "tokenizer_config.json":
        assert load_tokenizer(read_files(folder)).get_vocab() == AutoTokenizer.from_pretrained(folder).get_vocab()


def test_the_context_length_is_the_configs(folder):
    assert read_files(folder).context_length == 512
    (folder / "config.json").write_text('{"model_type": "llama"}')
    assert read_files(folder).context_length is None
