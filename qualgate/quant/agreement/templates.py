"""The chat templates of a folder: from which file each server takes them, and what they are by content.

A server renders a request that has tools with the template `tool_use` where there is one, every other with `default`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.model_files import (
    AGAIN,
    PROCESSOR_TEMPLATE_FILE,
    TEMPLATE_FILE,
    TEMPLATE_FOLDER,
    ModelFiles,
)
from qualgate.records.arms import ReadAs
from qualgate.records.identity import content_hash, sha256_text

DEFAULT = "default"
_CONFIG = "tokenizer_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one server takes where a folder has templates in several files."""

    servers: str
    takes: str
    version: str
    where: str  # in its source code


ORDERS = (
    Order(
        servers="transformers, vLLM and SGLang",
        takes=f"{TEMPLATE_FILE} and {TEMPLATE_FOLDER}/, and ignore the chat_template of {_CONFIG}",
        version="transformers 5.23.0, by which vLLM and SGLang load the tokenizer",
        where="tokenization_utils_base.py: _from_pretrained",
    ),
    Order(
        servers="llama.cpp's converter and older versions of transformers",
        takes=f"the chat_template of {_CONFIG}",
        version="gguf 0.19.0",
        where="gguf/vocab.py: SpecialVocab._try_load_from_tokenizer_json",
    ),
    Order(
        servers="vLLM and SGLang, for a model with a processor,",
        takes=f"{PROCESSOR_TEMPLATE_FILE}",
        version="vLLM main, commit 0036026",
        where="vllm/renderers: resolve_chat_template asks AutoProcessor first",
    ),
)


def templates(files: ModelFiles) -> dict[str, str]:
    """Name → text, as transformers finds them; empty where the model has none. UsageError for one that is no text."""
    return _in_files(files) or _in_config(files)


def chat_template(files: ModelFiles) -> str:
    """The text of the template `default`; "" where the model has none. UsageError for one that is no text."""
    return templates(files).get(DEFAULT, "")


def templates_sha256(files: ModelFiles) -> str:
    """Return the hash over `default` and all templates that differ from it."""
    named = {name: as_compiled(text) for name, text in templates(files).items()}
    text = named.pop(DEFAULT, "")
    others = {name: template for name, template in named.items() if template != text}
    return content_hash([text, others]) if others else sha256_text(text)


def differing_template(variant: ModelFiles, baseline: ModelFiles) -> tuple[str, str]:
    """Return what to call the first template that two folders do not share, and how to mend it."""
    variant_templates, baseline_templates = (
        {name: as_compiled(text) for name, text in templates(files).items()} for files in (variant, baseline)
    )
    names = sorted({*variant_templates, *baseline_templates} - {DEFAULT})
    differing = [
        name
        for name in names
        if variant_templates.get(name, variant_templates.get(DEFAULT))
        != baseline_templates.get(name, baseline_templates.get(DEFAULT))
    ]
    if variant_templates.get(DEFAULT) != baseline_templates.get(DEFAULT) or not differing:
        return "chat template", f"copy {TEMPLATE_FILE} from there"
    name = differing[0]
    mend = (
        f"copy {_place(baseline, name)} from there"
        if name in baseline_templates
        else f"remove it from {_place(variant, name)}"
    )
    return f"chat template {name!r}", mend


def as_read_by(files: ModelFiles, server: ReadAs | None) -> ModelFiles:
    """Return the files without the templates that `server` does not read."""
    if server != "llama.cpp" or not _in_config(files):
        return files
    return replace(files, raw={name: raw for name, raw in files.raw.items() if name not in _template_files(files)})


def check_templates(files: ModelFiles, server: ReadAs | None) -> None:
    """Raise UsageError where files of the folder hold other templates, so that servers differ in what they show the
    model, and the arm's `read_as`, `server`, does not say whose reading counts."""
    by_files, by_config = _in_files(files), _in_config(files)
    for name in sorted({*by_files, *by_config}) if by_files and by_config else ():
        compiled = [as_compiled(texts[name]) if name in texts else None for texts in (by_files, by_config)]
        if compiled[0] != compiled[1] and server is None:
            _refuse(files, name, f"{_place(files, name) if name in by_files else TEMPLATE_FILE}", ORDERS[:2])
    text = files.json(PROCESSOR_TEMPLATE_FILE).get("chat_template")
    if (
        isinstance(text, str)
        and as_compiled(text) != as_compiled(chat_template(files))
        and server in (None, "llama.cpp")
    ):
        _refuse(files, DEFAULT, PROCESSOR_TEMPLATE_FILE, (ORDERS[0], ORDERS[2]))


def _refuse(files: ModelFiles, name: str, file: str, orders: tuple[Order, ...]) -> None:
    differs = "; ".join(f"{order.servers} take {order.takes}" for order in orders)
    beside = _CONFIG if file != PROCESSOR_TEMPLATE_FILE or not _in_files(files) else TEMPLATE_FILE
    raise UsageError(
        f"{files.path}: {file} and {beside} hold different texts of the chat template {name!r}, and servers differ: "
        f"{differs}. Remove the wrong one, or say which server counts: `read_as: vllm`."
    )


def _template_files(files: ModelFiles) -> set[str]:
    named = {name for name in files.raw if name.startswith(f"{TEMPLATE_FOLDER}/")}
    return named | {TEMPLATE_FILE, PROCESSOR_TEMPLATE_FILE}


def _place(files: ModelFiles, name: str) -> str:
    if not _in_files(files):
        return _CONFIG
    return TEMPLATE_FILE if name == DEFAULT else f"{TEMPLATE_FOLDER}/{name}.jinja"


def as_compiled(text: str) -> str:
    """Normalize a template as Jinja does: one kind of line end, and none at the end."""
    return text.replace("\r\n", "\n").removesuffix("\n")


def _in_files(files: ModelFiles) -> dict[str, str]:
    texts = {DEFAULT: files.text(TEMPLATE_FILE)} if files.has(TEMPLATE_FILE) else {}
    for file in sorted(files.raw):
        if file.startswith(f"{TEMPLATE_FOLDER}/"):
            texts[file.removeprefix(f"{TEMPLATE_FOLDER}/").removesuffix(".jinja")] = files.text(file)
    return texts


def _in_config(files: ModelFiles) -> dict[str, str]:
    """Return the templates of tokenizer_config.json by name. UsageError for values of another kind."""
    value: Any = files.json(_CONFIG).get("chat_template") or {}
    if isinstance(value, str):
        return {DEFAULT: value}
    if isinstance(value, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in value
    ):
        value = {entry["name"]: entry.get("template") for entry in value}
    texts = value.values() if isinstance(value, dict) else (value,)
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(
                f"{files.path / _CONFIG}: the chat_template is {type(text).__name__}, expected a text, "
                f'or a list of {{"name", "template"}}. {AGAIN}'
            )
    return dict(value)
