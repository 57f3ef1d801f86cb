"""Prompts are what the model's own template and tokenizer make of a case."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from qualgate.engine.prompts import Renderer, context_length
from qualgate.errors import UsageError
from qualgate.records import Case
from tests.tiny_models import save_tiny_model


@pytest.fixture
def folder(tmp_path) -> Path:
    return save_tiny_model(tmp_path / "model")


def case(**body) -> Case:
    return Case(evalset="set", body={"id": "1", "max_new_tokens": 8} | body)


MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Größe? 数"}]
TOOLS = [{"type": "function", "function": {"name": "size", "parameters": {}}}]


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_token_ids_are_those_of_transformers(tmp_path, arch):
    folder = save_tiny_model(tmp_path / "model", arch=arch)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    rendered = Renderer(folder).render(
        [case(messages=MESSAGES), case(prompt="1 + 1"), case(messages=MESSAGES, tools=TOOLS)]
    )
    for found, tools in ((rendered[0], None), (rendered[2], TOOLS)):
        expected = tokenizer.apply_chat_template(MESSAGES, tools=tools, add_generation_prompt=True, return_dict=False)
        assert list(found) == expected
    assert list(rendered[1]) == tokenizer("1 + 1")["input_ids"]


def test_messages_without_a_chat_template_are_refused(folder):
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UsageError, match=r"set/1 has messages, but .* no chat template"):
        Renderer(folder).render([case(messages=MESSAGES)])
    assert Renderer(folder).render([case(prompt="x")])


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no system messages') }}", "no system messages"),
        ("{% for %}", "TemplateSyntaxError"),
        ("{{ messages[9].content.x }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "loop without end"),
    ],
)
def test_a_template_that_fails_names_the_case(folder, monkeypatch, template, message):
    monkeypatch.setattr("qualgate.engine.prompts.RENDER_SECONDS", 0.2)
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(UsageError, match=f"set/1: the chat template .*{message}"):
        Renderer(folder).render([case(messages=MESSAGES)])


def test_an_empty_prompt_is_refused(folder):
    with pytest.raises(UsageError, match="no tokens"):
        Renderer(folder).render([case(prompt="")])


def test_the_context_length_is_the_configs(folder):
    assert context_length(folder) == 512
    (folder / "config.json").write_text('{"model_type": "llama"}')
    assert context_length(folder) is None
