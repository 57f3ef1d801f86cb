"""What an arm is, by the content of its files. Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from qualgate.errors import UsageError
from qualgate.identity import content_hash, file_hash, sha256_text
from qualgate.quant.formats import read_json
from qualgate.quant.shards import weights_hash
from qualgate.records import ArmIdentity, ArmSpec
from qualgate.version import own_version

Device = Literal["cpu", "cuda"]
_AGAIN = "Fetch or save this model again."
QUANTIZE_FILES = ("quantize_config.json", "quant_config.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)

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


def identify(spec: ArmSpec, sampling: dict[str, Any], device: Device) -> ArmIdentity:
    """The identity of `spec` on `device`, as its files are now. Raises UsageError when they cannot be read."""
    folder = Path(spec.model)
    with readable(folder):
        return _identity(folder, spec, sampling, device)


def _identity(folder: Path, spec: ArmSpec, sampling: dict[str, Any], device: Device) -> ArmIdentity:
    recipe = spec.quantize.content if spec.quantize else None
    return ArmIdentity(
        weights=content_hash([weights_hash(folder), spec.dtype, recipe]),
        config=content_hash(
            [_hash_if_there(folder / name) for name in ("config.json", "generation_config.json")]
            # What AutoGPTQ and AutoAWQ write beside it says how the weights are to be read.
            + [file_hash(folder / name) for name in QUANTIZE_FILES if (folder / name).is_file()]
        ),
        tokenizer=tokenizer_content(folder),
        template=sha256_text(chat_template(folder)),
        # Arms that stop at different tokens answer a different question: such a pair is not comparable.
        sampling=content_hash({**sampling, "stop_ids": stop_ids(folder)}),
        engine=engine_version(device),
    )


def engine_version(device: Device) -> str:
    """Versions and arithmetic. All arms compute in float32, whatever dtype their weights were rounded to."""
    return (
        f"qualgate {own_version()}, torch {version('torch')}, transformers {version('transformers')}, {device} float32"
    )


def choose_device(devices: str) -> Device:
    """Where a run computes, decided once, without torch. devices: the gate file's "auto" or "cpu".

    "cuda" where a GPU's device file is visible and torch was built for it; should torch then not find it usable,
    loading says so.
    """
    if devices == "cpu":
        return "cpu"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    gpu = Path("/dev/nvidiactl").exists() and not hidden and "+cpu" not in version("torch")
    return "cuda" if gpu else "cpu"


def chat_template(folder: Path) -> str:
    """The chat template's text as transformers would find it; "" when the model has none.

    Raises UsageError when it is no text.
    """
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{file} is not UTF-8 text ({error.reason} at byte {error.start}). {_AGAIN}") from None
    file = folder / "tokenizer_config.json"
    template = read_json(file).get("chat_template") or ""
    if isinstance(template, list):  # several named templates; messages are rendered with "default"
        named = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named[0].get("template") if named else ""
    if not isinstance(template, str):
        raise UsageError(
            f"{file}: the chat_template is {type(template).__name__}, expected a text, or a list of "
            f'{{"name", "template"}}. {_AGAIN}'
        )
    return template


def stop_ids(folder: Path) -> tuple[int, ...]:
    """Every end-of-turn token that generation config, config or tokenizer names in its file, in ascending order."""
    config = read_json(folder / "config.json")
    sources = {"generation_config.json": [read_json(folder / "generation_config.json")], "config.json": [config]}
    if isinstance(config.get("text_config"), dict):
        sources["config.json"].append(config["text_config"])
    found = set(_eos_of_tokenizer(folder))
    for file, settings in sources.items():
        for value in (entry.get("eos_token_id") for entry in settings):
            ids = value if isinstance(value, list) else [] if value is None else [value]
            if not all(type(token) is int for token in ids):
                raise UsageError(f"{folder / file}: eos_token_id is {value!r:.60}, expected token ids. {_AGAIN}")
            found.update(ids)
    return tuple(sorted(found))


def _eos_of_tokenizer(folder: Path) -> list[int]:
    """The id of the tokenizer's eos_token, looked up where transformers writes it; none when it is nowhere."""
    settings = read_json(folder / "tokenizer_config.json")
    eos = settings.get("eos_token") or read_json(folder / "special_tokens_map.json").get("eos_token")
    text = eos.get("content") if isinstance(eos, dict) else eos
    if not isinstance(text, str):
        return []
    tokenizer = read_json(folder / "tokenizer.json")
    added, model, decoder = tokenizer.get("added_tokens"), tokenizer.get("model"), settings.get("added_tokens_decoder")
    # Latest first: an added token hides a vocabulary entry of the same text.
    known = {}
    vocabulary = model.get("vocab") if isinstance(model, dict) else read_json(folder / "vocab.json")
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


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """A file of the model that cannot be opened or read inside the block is the user's to mend: UsageError."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{error.filename or folder} cannot be read ({error.strerror or error}). Check it and its permissions."
        ) from None


def tokenizer_content(folder: Path) -> str:
    """What turns text into tokens and back, by content and not by layout or bookkeeping.

    Every library that saves a quantized model saves its tokenizer too, with other spacing, its own notes on padding and
    places, and the same special tokens in another file. None of that changes a token.
    """
    whole = folder / "tokenizer.json"
    if not whole.is_file():
        return content_hash([_tokenizer_hash(folder / name) for name in TOKENIZER_FILES])
    tokenizer = {key: value for key, value in read_json(whole).items() if key not in ("padding", "truncation")}
    file = folder / "tokenizer_config.json"
    settings = {**read_json(folder / "special_tokens_map.json"), **read_json(file)}
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
    if read_json(folder / "config.json").get("model_type") not in _MISTRAL:
        kept.pop("fix_mistral_regex", None)
    return content_hash([_content_hash(whole, tokenizer), _content_hash(file, kept)])


def _tokenizer_hash(file: Path) -> str:
    if not file.is_file() or file.suffix != ".json":
        return _hash_if_there(file)
    value = read_json(file)
    value.pop("chat_template", None)  # has its own hash
    return _content_hash(file, value)


def _content_hash(file: Path, value: dict[str, Any]) -> str:
    try:
        return content_hash(value)
    except (ValueError, RecursionError) as error:  # json reads Infinity and NaN, which are no JSON
        raise UsageError(f"{file} holds what JSON cannot ({error}). {_AGAIN}") from None


def _hash_if_there(file: Path) -> str:
    return file_hash(file) if file.is_file() else ""
