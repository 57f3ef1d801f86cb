"""A folder's tokenizer files: tokens by name, and an identity by content."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.model_files import AGAIN, TOKENIZER_FILES, ModelFiles
from qualgate.records.identity import content_hash

# Keys of tokenizer_config.json that change neither the tokens of a text nor the text of tokens; tokenizer.json has the
# added tokens, the chat template has a hash of its own, and limits are checked against the model's context.
_BOOKKEEPING = (
    "chat_template", "added_tokens_decoder", "backend", "is_local", "local_files_only", "name_or_path", "_commit_hash",
    "tokenizer_file", "special_tokens_map_file", "padding_side", "pad_to_multiple_of", "pad_token_type_id",
    "max_length", "model_max_length", "stride", "truncation_side", "truncation_strategy", "model_input_names",
    "processor_class", "transformers_version", "vocab_size",
)  # fmt: skip
_BY_DEFAULT = {  # what such a key says, or is taken to say where it is absent
    **dict.fromkeys(
        ("clean_up_tokenization_spaces", "split_special_tokens", "use_default_system_prompt", "legacy"), False
    ),
    "errors": "replace",
}
# Classes whose default it is, in transformers 4 and 5, to put a space before a text, and in 4 the bos token.
_PREFIXED = ("LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer")
# Types of models whose tokenizer transformers 5 makes of tokenizer.json alone, or by one class, whatever
# tokenizer_config.json names (5.23.0, models/auto/tokenization_auto.py).
_CLASS_NOT_READ = (
    "arctic", "ernie4_5", "ernie4_5_moe", "glm", "glm4", "glm4_moe", "glm4_moe_lite", "gpt_bigcode", "granite",
    "granitemoe", "granitemoehybrid", "granitemoeshared", "hyperclovax", "internlm2", "internlm3", "jamba",
    "kimi_linear", "mimo_v2_flash", "minicpm3", "minimax_m2", "ministral", "ministral3", "mistral", "mixtral",
    "nemotron", "olmo2", "olmo3", "olmo_hybrid", "phi3", "phimoe", "qwen2", "qwen3_5", "qwen3_5_moe",
    "qwen3_5_moe_text", "stablelm",
)  # fmt: skip
_NEVER_ASKED = ("pad_token", "mask_token")  # special tokens of training
_MORE_SPECIAL = ("additional_special_tokens", "extra_special_tokens")  # as transformers 4 and 5 call them
_MISTRAL = ("mistral", "mistral3", "ministral", "mixtral", "pixtral", "voxtral")  # whose regex fix_mistral_regex mends
_STEPS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "post_processor": "processors",
          "decoder": "decoders"}  # fmt: skip
BESIDE = ("tokenizer.model", "tekken.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt")
_LONGEST_ID = 18  # digits


def tokenizer_content(files: ModelFiles) -> str:
    """Return what turns text into tokens and back, by content and not by layout or bookkeeping.

    Every library that saves a quantized model saves its tokenizer too, with other spacing, its own notes on padding and
    places, the same special tokens in another file or under another key, and steps that do nothing. None of that
    changes a token.
    """
    if not files.has("tokenizer.json"):
        return content_hash([_file_content(files, name) for name in TOKENIZER_FILES])
    return content_hash([_content_hash(files, name, content) for name, content in _contents(files).items()])


def tokenizer_difference(files: ModelFiles, other: ModelFiles) -> str:
    """Return the first key in which two tokenizers differ: "eos_token of tokenizer_config.json is </s> against
    <|im_end|>"."""
    contents = [_contents(folder) if folder.has("tokenizer.json") else {} for folder in (files, other)]
    for file, own_keys in contents[0].items():
        other_keys = contents[1].get(file, own_keys)
        for key in sorted(own_keys.keys() | other_keys.keys()):
            if own_keys.get(key) != other_keys.get(key):
                key_path, *values = _first_difference(key, own_keys.get(key), other_keys.get(key))
                ours_text, theirs_text = _around_difference(*(str(value) for value in values))
                return f"{key_path} of {file} is {ours_text} against {theirs_text}"
    return ""


def _first_difference(key_path: str, value: Any, other_value: Any) -> tuple[str, Any, Any]:
    """Return the innermost key of the first difference between two values of one key, and both values there; None:
    missing."""
    while True:
        if isinstance(value, dict) and isinstance(other_value, dict) and value.get("type") == other_value.get("type"):
            keys: Iterable[Any] = sorted(value.keys() | other_value.keys())
            pairs = ((f"{key_path}.{key!s:.40}", value.get(key), other_value.get(key)) for key in keys)
        elif isinstance(value, list) and isinstance(other_value, list):
            pairs = (
                (f"{key_path}[{i}]", first, second) for i, (first, second) in enumerate(zip_longest(value, other_value))
            )
        else:
            return key_path, value, other_value
        different = next((pair for pair in pairs if pair[1] != pair[2]), None)
        if different is None:
            return key_path, value, other_value
        key_path, value, other_value = different


def _around_difference(left: str, right: str) -> tuple[str, str]:
    """Return two texts; if one is long, both from a little before the first character in which they differ."""
    differ = (index for index, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1])
    shared = next(differ, min(len(left), len(right)))
    start = max(0, shared - 40) if max(len(left), len(right)) > 160 else 0
    left, right = (("…" if start else "") + text[start : start + 160] for text in (left, right))
    return left, right


def differing_beside(files: ModelFiles, other: ModelFiles) -> str:
    """The first file, beside tokenizer.json, that two folders hold with unequal contents; "" where there is none."""
    shared = (name for name in BESIDE if files.has(name) and other.has(name))
    return next((name for name in shared if _beside(files, name) != _beside(other, name)), "")


def beside_difference_note(arms: Sequence[tuple[str, ModelFiles]]) -> str:
    """Return a line on files, beside tokenizer.json, that some arms' folders hold and others do not; "" where all
    agree."""
    arms = [(arm, files) for arm, files in arms if files.has("tokenizer.json")]
    listed = [
        f"{name} in the folder of {', '.join(holders)} alone"
        for name in BESIDE
        if (holders := [arm for arm, files in arms if files.has(name)]) and len(holders) < len(arms)
    ]
    if not listed:
        return ""
    return (
        f"beside tokenizer.json there is {'; '.join(listed)}: transformers 5 and vLLM read tokenizer.json, llama.cpp's "
        "converter takes tokenizer.model first, and vLLM tekken.json with --tokenizer-mode mistral"
    )


def _beside(files: ModelFiles, name: str) -> Any:
    if name.endswith(".json"):
        return files.json(name)
    if name != "merges.txt":
        return files.sha256(name)
    return [line for line in files.text(name).splitlines() if line and not line.startswith("#version")]


def _contents(files: ModelFiles) -> dict[str, dict[str, Any]]:
    """Return, by file, the keys that may change a token."""
    try:
        tokenizer = _plain_tokenizer(files.json("tokenizer.json"))
    except RecursionError:
        raise UsageError(f"{files.path / 'tokenizer.json'} is nested too deeply to be a model's. {AGAIN}") from None
    settings = {**files.json("special_tokens_map.json"), **files.json("tokenizer_config.json")}
    named = str(settings.get("tokenizer_class")).removesuffix("Fast")
    relevant: dict[str, Any] = {}
    for key, value in settings.items():
        if key.endswith("_token") and isinstance(value, dict):  # tokenizer.json says the rest of it
            value = value.get("content", value)
        nothing = value in (None, [], {}) or (key in _BY_DEFAULT and value == _BY_DEFAULT[key])
        if key in (*_MORE_SPECIAL, *_NEVER_ASKED):
            nothing = nothing or _are_special(value, tokenizer)
        if key == "add_prefix_space" and named not in _PREFIXED:
            nothing = nothing or value is False
        if key not in _BOOKKEEPING and not nothing:
            relevant[key] = value
    if "tokenizer_class" in relevant and _takes_file_as_it_is(named, files.config.get("model_type"), tokenizer):
        relevant["tokenizer_class"] = ""
    elif "tokenizer_class" in relevant:
        relevant["tokenizer_class"] = named
    # transformers 5 reads these beside no tokenizer.json (5.23.0, tokenization_utils_base.py), 4 only for some classes.
    for key, adds in zip(("add_bos_token", "add_eos_token"), ends_of_texts(files), strict=True):
        setting = relevant.pop(key, key == "add_bos_token" if named in _PREFIXED else bool(adds))
        if setting != bool(adds):
            relevant[key] = setting
    if files.config.get("model_type") not in _MISTRAL:
        relevant.pop("fix_mistral_regex", None)
    if added := _added_by_config(tokenizer.get("added_tokens"), settings.get("added_tokens_decoder")):
        relevant["added_tokens_decoder"] = added
    return {"tokenizer.json": tokenizer, "tokenizer_config.json": relevant}


def _plain_tokenizer(content: dict[str, Any]) -> dict[str, Any]:
    """Return tokenizer.json without what changes no token: places of tokens in the text, steps that do nothing."""
    relevant = {key: value for key, value in content.items() if key not in ("padding", "truncation")}
    for key in _STEPS:
        if isinstance(relevant.get(key), dict):
            steps = [
                _without_places(step) for step in steps_of(relevant[key]) if key != "post_processor" or _adds(step)
            ]
            relevant[key] = steps
        if relevant.get(key) in (None, []):
            relevant.pop(key, None)
    model = relevant.get("model")
    if isinstance(model, dict):
        unused = ("continuing_subword_prefix", "end_of_word_suffix")
        relevant["model"] = {key: value for key, value in model.items() if key not in unused or value not in (None, "")}
    return relevant


def _without_places(step: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in step.items() if key != "trim_offsets" or step.get("type") != "ByteLevel"}


def _adds(step: dict[str, Any]) -> bool:
    """Return whether a step of the post-processor may put tokens before or behind those of a text."""
    alone = [{"Sequence": {"id": "A", "type_id": 0}}]
    return step.get("type") != "ByteLevel" and not (
        step.get("type") == "TemplateProcessing" and step.get("single") == alone
    )


def steps_of(node: Any) -> list[dict[str, Any]]:
    """Return a step of tokenizer.json as a list, or the steps of a sequence, at any depth."""
    if not isinstance(node, dict):
        return []
    inner = next((node[key] for key in _STEPS.values() if key in node), None)
    if not isinstance(inner, list):
        return [node]
    return [step for part in inner for step in steps_of(part)]


def ends_of_texts(files: ModelFiles) -> tuple[bool | None, bool | None]:
    """Return whether tokenizer.json puts a token before and behind every text; None where it does not tell."""
    processor = files.json("tokenizer.json").get("post_processor")
    for step in steps_of(processor):
        if step.get("type") == "TemplateProcessing" and isinstance(step.get("single"), list) and step["single"]:
            first, last = (
                isinstance(piece, dict) and "SpecialToken" in piece for piece in (step["single"][0], step["single"][-1])
            )
            return first, last
    return (None, None) if processor is None else (False, False)


def _takes_file_as_it_is(name: str, model_type: Any, tokenizer: dict[str, Any]) -> bool:
    """Return whether transformers 5 makes the same tokenizer of tokenizer.json by this class as by the general one."""
    general = name in ("TokenizersBackend", "PreTrainedTokenizer")
    byte_level = any(
        step.get("type") == "ByteLevel" for key in ("pre_tokenizer", "decoder") for step in tokenizer.get(key) or ()
    )
    return (
        general
        or (model_type in _CLASS_NOT_READ and not name.startswith("MistralCommon"))
        or (name == "LlamaTokenizer" and byte_level)
    )


def _added_by_config(listed: Any, decoder: Any) -> dict[str, Any]:
    """Tokens that tokenizer_config.json adds, or makes special, beyond tokenizer.json's own."""
    entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    known_tokens = {str(entry.get("id")): (entry.get("content"), bool(entry.get("special"))) for entry in entries}
    added = decoder.items() if isinstance(decoder, dict) else ()
    return {
        token: entry
        for token, entry in added
        if not isinstance(entry, dict) or known_tokens.get(token) != (entry.get("content"), bool(entry.get("special")))
    }


def _are_special(tokens: Any, tokenizer: dict[str, Any]) -> bool:
    """Return whether tokenizer.json has all of `tokens` among its special tokens, so that a list of them adds
    nothing."""
    added = tokenizer.get("added_tokens")
    special = [token.get("content") for token in added if isinstance(token, dict) and token.get("special") is True] if (
        isinstance(added, list)
    ) else []  # fmt: skip
    listed = tokens.values() if isinstance(tokens, dict) else tokens if isinstance(tokens, list) else [tokens]
    return all((token.get("content") if isinstance(token, dict) else token) in special for token in listed)


def known_tokens(files: ModelFiles) -> int:
    """One more than the highest id in the tokenizer's files; 0 where that is not told."""
    return 1 + max(token_ids(files).values(), default=-1)


def eos_of_tokenizer(files: ModelFiles) -> list[int]:
    """The id of the tokenizer's eos_token; none when it is nowhere."""
    return named_token(files, "eos_token")


def named_token(files: ModelFiles, name: str) -> list[int]:
    """Return the id of the tokenizer's special token of that name, looked up where transformers writes it; none when it
    is nowhere."""
    named = files.json("tokenizer_config.json").get(name) or files.json("special_tokens_map.json").get(name)
    text = named.get("content") if isinstance(named, dict) else named
    token_id = token_ids(files).get(text) if isinstance(text, str) else None
    return [] if token_id is None else [token_id]


def token_ids(files: ModelFiles) -> dict[str, int]:
    """Return the id of each token's text, as the files have them; not to be changed. An added token hides a vocabulary
    entry of the same text."""
    return files.once(_token_ids)


def _token_ids(files: ModelFiles) -> dict[str, int]:
    tokenizer, settings = files.json("tokenizer.json"), files.json("tokenizer_config.json")
    added, model, decoder = tokenizer.get("added_tokens"), tokenizer.get("model"), settings.get("added_tokens_decoder")
    vocabulary = model.get("vocab") if isinstance(model, dict) else files.json("vocab.json")
    pairs: list[tuple[Any, Any]] = []
    if isinstance(vocabulary, dict):
        pairs += vocabulary.items()
    elif isinstance(vocabulary, list):  # Unigram: [text, score], the id is the place
        pairs += [(entry[0], index) for index, entry in enumerate(vocabulary) if isinstance(entry, list) and entry]
    if isinstance(decoder, dict):
        pairs += [
            (entry.get("content"), int(token))
            for token, entry in decoder.items()
            if isinstance(entry, dict) and is_token_id(token)
        ]
    if isinstance(added, list):
        pairs += [(entry.get("content"), entry.get("id")) for entry in added if isinstance(entry, dict)]
    return {text: token for text, token in pairs if isinstance(text, str) and type(token) is int}


def is_token_id(text: str) -> bool:
    """Whether a key of added_tokens_decoder can be an id."""
    return text.isdecimal() and len(text) <= _LONGEST_ID


def _file_content(files: ModelFiles, name: str) -> str:
    if not files.has(name) or not name.endswith(".json"):
        return files.sha256(name)
    # The template has its own hash.
    return _content_hash(files, name, {key: value for key, value in files.json(name).items() if key != "chat_template"})


def _content_hash(files: ModelFiles, name: str, value: dict[str, Any]) -> str:
    try:
        return content_hash(value)
    except (ValueError, RecursionError) as error:  # json reads Infinity and NaN, which are no JSON
        raise UsageError(f"{files.path / name} holds a value that JSON cannot ({error}). {AGAIN}") from None
