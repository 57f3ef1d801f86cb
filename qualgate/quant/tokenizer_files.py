"""What a folder's tokenizer files say: its chat template, its stop tokens, and what it is by content."""

from __future__ import annotations

from typing import Any

from qualgate.errors import UsageError
from qualgate.identity import content_hash
from qualgate.quant.model_files import AGAIN, TEMPLATE_FILE, TOKENIZER_FILES, ModelFiles

# Keys of tokenizer_config.json that change neither the tokens of a text nor the text of tokens; tokenizer.json has the
# added tokens, the chat template has a hash of its own, and limits are checked against the model's context.
_BOOKKEEPING = (
    "chat_template", "added_tokens_decoder", "backend", "is_local", "local_files_only", "name_or_path", "_commit_hash",
    "tokenizer_file", "special_tokens_map_file", "padding_side", "pad_to_multiple_of", "pad_token_type_id",
    "max_length", "model_max_length", "stride", "truncation_side", "truncation_strategy", "model_input_names",
    "processor_class", "transformers_version",
)  # fmt: skip
_OFF_BY_DEFAULT = ("clean_up_tokenization_spaces", "split_special_tokens")  # absent and false say the same
_MISTRAL = ("mistral", "mistral3", "ministral", "mixtral", "pixtral", "voxtral")  # whose regex fix_mistral_regex mends


def chat_template(files: ModelFiles) -> str:
    """The chat template's text as transformers would find it; "" when the model has none.

    Raises UsageError when it is no text.
    """
    if files.has(TEMPLATE_FILE):
        return files.text(TEMPLATE_FILE)
    template = files.json("tokenizer_config.json").get("chat_template") or ""
    if isinstance(template, list):  # several named templates; messages are rendered with "default"
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[0].get("template") if named else ""
    if not isinstance(template, str):
        raise UsageError(
            f"{files.path / 'tokenizer_config.json'}: the chat_template is {type(template).__name__}, expected a text, "
            f'or a list of {{"name", "template"}}. {AGAIN}'
        )
    return template


def stop_ids(files: ModelFiles) -> tuple[int, ...]:
    """Every end-of-turn token that generation config, config or tokenizer names in its file, in ascending order.

    Raises UsageError where an eos_token_id is none.
    """
    sources = {"generation_config.json": [files.json("generation_config.json")], "config.json": [files.config]}
    if isinstance(files.config.get("text_config"), dict):
        sources["config.json"].append(files.config["text_config"])
    found = set(_eos_of_tokenizer(files))
    for file, settings in sources.items():
        for value in (entry.get("eos_token_id") for entry in settings):
            ids = value if isinstance(value, list) else [] if value is None else [value]
            if not all(type(token) is int for token in ids):
                raise UsageError(f"{files.path / file}: eos_token_id is {value!r:.60}, expected token ids. {AGAIN}")
            found.update(ids)
    return tuple(sorted(found))


def tokenizer_content(files: ModelFiles) -> str:
    """What turns text into tokens and back, by content and not by layout or bookkeeping.

    Every library that saves a quantized model saves its tokenizer too, with other spacing, its own notes on padding and
    places, and the same special tokens in another file. None of that changes a token.
    """
    if not files.has("tokenizer.json"):
        return content_hash([_file_content(files, name) for name in TOKENIZER_FILES])
    tokenizer = {key: value for key, value in files.json("tokenizer.json").items()
                 if key not in ("padding", "truncation")}  # fmt: skip
    settings = {**files.json("special_tokens_map.json"), **files.json("tokenizer_config.json")}
    kept: dict[str, Any] = {}
    for key, value in settings.items():
        if key.endswith("_token") and isinstance(value, dict):  # tokenizer.json says the rest of it
            value = value.get("content", value)
        if key == "tokenizer_class" and isinstance(value, str):
            value = value.removesuffix("Fast")
            value = "" if value in ("TokenizersBackend", "PreTrainedTokenizer") else value
        nothing = value in (None, [], {}) or (value is False and key in _OFF_BY_DEFAULT)
        if key not in _BOOKKEEPING and not nothing:
            kept[key] = value
    if files.config.get("model_type") not in _MISTRAL:
        kept.pop("fix_mistral_regex", None)
    return content_hash(
        [_content_hash(files, "tokenizer.json", tokenizer), _content_hash(files, "tokenizer_config.json", kept)]
    )


def _eos_of_tokenizer(files: ModelFiles) -> list[int]:
    """The id of the tokenizer's eos_token, looked up where transformers writes it; none when it is nowhere."""
    settings = files.json("tokenizer_config.json")
    eos = settings.get("eos_token") or files.json("special_tokens_map.json").get("eos_token")
    text = eos.get("content") if isinstance(eos, dict) else eos
    if not isinstance(text, str):
        return []
    tokenizer = files.json("tokenizer.json")
    added, model, decoder = tokenizer.get("added_tokens"), tokenizer.get("model"), settings.get("added_tokens_decoder")
    # Latest first: an added token hides a vocabulary entry of the same text.
    known = {}
    vocabulary = model.get("vocab") if isinstance(model, dict) else files.json("vocab.json")
    if isinstance(vocabulary, dict):
        known.update(vocabulary)
    elif isinstance(vocabulary, list):  # Unigram: [text, score], the id is the place
        known.update((entry[0], place) for place, entry in enumerate(vocabulary) if isinstance(entry, list) and entry)
    if isinstance(decoder, dict):
        known.update(
            (entry.get("content"), int(token))
            for token, entry in decoder.items()
            if isinstance(entry, dict) and token.isdigit()
        )
    if isinstance(added, list):
        known.update((entry.get("content"), entry.get("id")) for entry in added if isinstance(entry, dict))
    return [known[text]] if type(known.get(text)) is int else []


def _file_content(files: ModelFiles, name: str) -> str:
    if not files.has(name) or not name.endswith(".json"):
        return files.sha256(name)
    # The template has its own hash.
    return _content_hash(files, name, {key: value for key, value in files.json(name).items() if key != "chat_template"})


def _content_hash(files: ModelFiles, name: str, value: dict[str, Any]) -> str:
    try:
        return content_hash(value)
    except (ValueError, RecursionError) as error:  # json reads Infinity and NaN, which are no JSON
        raise UsageError(f"{files.path / name} holds what JSON cannot ({error}). {AGAIN}") from None
