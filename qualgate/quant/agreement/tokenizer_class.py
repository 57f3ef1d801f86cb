"""Tokenizer classes that transformers knows, of others each server makes something else; and special tokens that two
files name."""

from __future__ import annotations

from importlib.metadata import version

from qualgate.errors import UsageError
from qualgate.quant.model_files import ModelFiles
from qualgate.records.arms import ReadAs

# What becomes of an unknown tokenizer_class: server, what it does, version, where in its source.
UNKNOWN = (
    ("transformers 5", "takes tokenizer.json as it stands", "5.23.0", "models/auto/tokenization_auto.py"),
    ("transformers 4", "fails", "4.51.3", "models/auto/tokenization_auto.py"),
    ("vLLM and SGLang", "do as the transformers does that they are installed with", "main", "tokenizer loaders"),
    ("llama.cpp", "goes by the GGUF file's header", "master, commit 00ad355", "src/llama-vocab.cpp"),
)
_GENERAL = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend", "TokenizersBackendFast")
_RENAMED = ("BloomTokenizer", "MistralCommonTokenizer")  # of earlier versions, which it still reads


def check_special_tokens(files: ModelFiles) -> None:
    """Raise UsageError where special_tokens_map.json names other tokens than tokenizer_config.json: transformers puts
    the first over the second, unless that has `added_tokens_decoder` (5.23.0, tokenization_utils_base.py)."""
    settings = files.json("tokenizer_config.json")
    for key, value in files.json("special_tokens_map.json").items() if "added_tokens_decoder" not in settings else ():
        named, mapped = (
            token.get("content") if isinstance(token, dict) else token for token in (settings.get(key), value)
        )
        if key.endswith("_token") and named is not None and named != mapped:
            raise UsageError(
                f"{files.path / 'special_tokens_map.json'} says {key} {mapped!r:.60}, and tokenizer_config.json "
                f"{named!r:.60}: transformers, vLLM and SGLang take the first, other readers the second. Correct the "
                "one that is wrong, or remove special_tokens_map.json."
            )


def check_tokenizer_class(files: ModelFiles, server: ReadAs | None) -> None:
    """Raise UsageError where tokenizer_config.json names a class that transformers does not know, and the arm's
    `read_as`, `server`, does not say whose reading counts."""
    name = files.json("tokenizer_config.json").get("tokenizer_class")
    if name is None or name in _GENERAL or server is not None:
        return
    import transformers

    # Its rule: a name that ends in Fast is looked up without it, too. GPTQModel writes TokenizersBackendFast.
    known_classes = {*dir(transformers), *_RENAMED}
    if not isinstance(name, str) or known_classes.isdisjoint((name, name.removesuffix("Fast"))):
        does = "; ".join(f"{servers} {action}" for servers, action, *_ in UNKNOWN)
        raise UsageError(
            f"{files.path / 'tokenizer_config.json'}: transformers {version('transformers')} does not know the "
            f"tokenizer_class {name!r:.60}. Servers differ: {does}. Write the class of the model that this one was "
            "made from, or say which server counts: `read_as: transformers`."
        )


def tokenizer_class_note(name: str, files: ModelFiles) -> str:
    """Return a line on the class that GPTQModel writes into folders saved by transformers 5; "" where another is
    named."""
    if files.json("tokenizer_config.json").get("tokenizer_class") != "TokenizersBackendFast":
        return ""
    return (
        f"{name}: tokenizer_class TokenizersBackendFast is no class of transformers: version 5 reads it as "
        "TokenizersBackend, and servers with version 4 do not load the folder"
    )
