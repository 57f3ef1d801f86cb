"""Chat templates: those that a server would show are compared, wherever the folder has them, and its own are used."""

from __future__ import annotations

import re

import pytest

from qualgate.engine.prompts import Renderer
from qualgate.errors import UsageError
from qualgate.pipeline.checks import check_same_question
from qualgate.pipeline.folder_notes import folder_notes
from qualgate.quant.agreement.templates import as_read_by, templates
from qualgate.quant.model_files import read_files
from qualgate.quant.model_folder import read_model_folder, read_tokenizer_folder
from qualgate.records import ArmSpec, Case
from tests.quant.agreement.shipped import OTHER, TEMPLATE, TOKENIZER, edited

FILE, TOOL_FILE = "chat_template.jinja", "additional_chat_templates/tool_use.jinja"


def named(tool_use: str, default: str = TEMPLATE) -> dict:
    texts = [{"name": "default", "template": default}, {"name": "tool_use", "template": tool_use}]
    return {FILE: None, TOKENIZER: {"chat_template": texts}}


IN_CONFIG = {FILE: None, TOKENIZER: {"chat_template": TEMPLATE}}
IN_LIST = {FILE: None, TOKENIZER: {"chat_template": [{"name": "default", "template": TEMPLATE}]}}
BESIDE = {TOKENIZER: {"chat_template": OTHER}}
PROCESSOR = {"chat_template.json": {"chat_template": OTHER}}
CASES = {  # baseline, variant, read_as, what is said
    "in another file": ({}, IN_CONFIG, None, ""),
    "in a list": ({}, IN_LIST, None, ""),
    "twice": ({}, {TOKENIZER: {"chat_template": TEMPLATE}}, None, ""),
    "twice, a line end apart": ({}, {TOKENIZER: {"chat_template": TEMPLATE + "\n"}}, None, ""),
    "one more line end": ({}, {FILE: TEMPLATE + "\n"}, None, ""),
    "one more line end, of one for tools": (named(OTHER), named(OTHER + "\n"), None, ""),
    "two more line ends": ({}, {FILE: TEMPLATE + "\n\n"}, None, "the chat template in"),
    "the same for tools": ({}, named(TEMPLATE), None, ""),
    "for tools, in two ways": (named(OTHER), {TOOL_FILE: OTHER}, None, ""),
    "for a processor": ({}, {"chat_template.json": {"chat_template": TEMPLATE}}, None, ""),
    "another for tools": ({}, named(OTHER), None, "'tool_use' in"),
    "another for tools, in a folder": ({}, {TOOL_FILE: OTHER}, None, f"remove it from {TOOL_FILE}"),
    "none for tools": (named(OTHER), {}, None, "copy tokenizer_config.json from there"),
    "another of another name": ({}, {"additional_chat_templates/rag.jinja": OTHER}, None, "chat template 'rag'"),
    "another": ({}, {FILE: OTHER}, None, "the chat template in"),
    "two that differ": ({}, BESIDE, None, f"{FILE} and {TOKENIZER} hold different texts"),
    "two that differ, for vLLM": ({}, BESIDE, "vllm", ""),
    "two that differ, for llama.cpp": ({}, BESIDE, "llama.cpp", "the chat template in"),
    "a list that is lost": ({}, {TOKENIZER: named(OTHER)[TOKENIZER]}, None, "the chat template 'tool_use', and"),
    "another for a processor": ({}, PROCESSOR, None, "chat_template.json and"),
    "another for a processor, for transformers": ({}, PROCESSOR, "transformers", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_templates_are_compared_by_name_and_text_and_contradictions_are_refused(tmp_path, name):
    baseline, variant, read_as, message = CASES[name]
    theirs = read_model_folder(edited(tmp_path / "baseline", baseline), hashed=False, read_as=read_as)

    def compare() -> None:
        ours = read_model_folder(edited(tmp_path / "variant", variant), hashed=False, read_as=read_as)
        check_same_question(ArmSpec(name="v", model=""), ours, theirs)

    if not message:
        return compare()
    with pytest.raises(UsageError, match=re.escape(message)):
        compare()


@pytest.mark.parametrize("edits", [named(OTHER), {TOOL_FILE: OTHER}], ids=["in a list", "in a folder"])
def test_a_case_with_tools_gets_the_template_for_tools_of_its_own_folder(tmp_path, edits):
    folder = edited(tmp_path / "model", edits)
    renderer = Renderer(read_model_folder(folder, hashed=False).files)
    (folder / FILE).unlink(missing_ok=True)  # what was read is used, however the folder changes
    chat = {"messages": [{"role": "user", "content": "Hello"}]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    assert renderer.text(Case(evalset="s", body=chat | {"tools": tools})) == "Hello"
    assert "<|im_start|>user" in renderer.text(Case(evalset="s", body=chat))


def test_a_served_arm_is_asked_by_tokens_that_transformers_makes_of_its_folder(tmp_path):
    folder = read_tokenizer_folder(edited(tmp_path / "model", BESIDE))
    assert templates(folder.files) == {"default": TEMPLATE}


def test_for_llama_cpp_the_template_of_the_tokenizer_config_is_shown(tmp_path):
    folder = read_model_folder(edited(tmp_path / "model", BESIDE), hashed=False, read_as="llama.cpp")
    chat = Case(evalset="s", body={"messages": [{"role": "user", "content": "Hello"}]})
    assert Renderer(folder.files).text(chat) == "Hello"


@pytest.mark.parametrize(
    ("kind", "message"),
    [("LlamaTokenizerFast", ""), ("Qwen2TokenizerFast", ""), ("TokenizersBackendFast", ""),
     ("SupportTokenizer", "not know the tokenizer_class 'SupportTokenizer'"), (["LlamaTokenizer"], "does not know")],
)  # fmt: skip
def test_a_tokenizer_class_that_transformers_does_not_know_is_refused(tmp_path, kind, message):
    folder = edited(tmp_path / "model", {TOKENIZER: {"tokenizer_class": kind}})
    assert read_model_folder(folder, hashed=False, read_as="transformers")
    if not message:
        notes = list(folder_notes([("v", read_model_folder(folder, hashed=False))]))
        assert len(notes) == (kind == "TokenizersBackendFast")
        return
    with pytest.raises(UsageError, match=re.escape(message)):
        read_model_folder(folder, hashed=False)


@pytest.mark.parametrize(
    "edits", [{}, IN_CONFIG, IN_LIST, BESIDE, named(OTHER), {TOOL_FILE: OTHER}, {**named(OTHER), TOOL_FILE: TEMPLATE}]
)
def test_the_libraries_themselves_take_the_template_that_the_table_says(tmp_path, edits):
    gguf, transformers = pytest.importorskip("gguf"), pytest.importorskip("transformers")
    folder = edited(tmp_path / "model", edits)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder).chat_template
    assert templates(read_files(folder)) == (theirs if isinstance(theirs, dict) else {"default": theirs})
    theirs = gguf.SpecialVocab(folder).chat_template
    theirs = {one["name"]: one["template"] for one in theirs} if isinstance(theirs, list) else {"default": theirs}
    assert templates(as_read_by(read_files(folder), "llama.cpp")) == theirs
