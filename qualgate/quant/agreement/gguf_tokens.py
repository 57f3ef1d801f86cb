"""The tokenizer and the chat templates in a GGUF file's header against those beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

from qualgate.quant.agreement.templates import DEFAULT, as_compiled, templates
from qualgate.quant.gguf_file import GGUFFile
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.tokenizer_files import ends_of_texts, is_token_id, named_token, steps_of, token_ids

_TOKENIZER = "tokenizer.json"
_BYTE_LEVEL, _PIECES = "gpt2", "llama"  # tokenizer.ggml.model: byte-level BPE, SentencePiece
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)  # token types
_BYTE_TEXT = re.compile(r"<0x[0-9A-F]{2}>")
_LLAMA_CPP_BOS = {_BYTE_LEVEL: 11, _PIECES: 1}  # where no key names the token
_PADDING = re.compile(r"\[PAD\d+\]|<dummy\d+>")
_BOS_BY_DEFAULT = (  # pre-tokenizers at which llama.cpp adds the beginning-of-text token where no key says so
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "tekken",
    "chameleon",
)  # fmt: skip
_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# How tokenizer.json splits text → values of tokenizer.ggml.pre at which llama.cpp splits it so.
_SPLITS = {
    _GPT4 % "{1,3}": (*_BOS_BY_DEFAULT[:9], "dbrx", "smaug-bpe"),
    _GPT4 % "": ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan"),
    "single digits, GPT-2": ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
    "GPT-2": (
        "gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
        "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4", "jina-v1-en", "jina-v2-code",
        "roberta-bpe",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A key of the header, and what the files beside it say."""

    key: str
    header: Any
    beside: Any
    file: str
    judged_by_header: bool = False  # where the arm says `read_as: llama.cpp`


def tokenizer_differences(files: ModelFiles, file: GGUFFile) -> Iterator[Contradiction]:
    """Yield each difference by which llama.cpp would make other tokens or prompts than the files beside the header."""
    yield from _template_differences(files, file)
    yield from _added_ends(files, file)
    if not files.has(_TOKENIZER):
        return
    kind, tokenizer = file.fields.get("tokenizer.ggml.model"), files.json(_TOKENIZER)
    steps = [*steps_of(tokenizer.get("pre_tokenizer")), *steps_of(tokenizer.get("decoder"))]
    byte_level = any(step.get("type") == "ByteLevel" for step in steps)
    if kind in (_BYTE_LEVEL, _PIECES) and byte_level != (kind == _BYTE_LEVEL):
        yield Contradiction("tokenizer.ggml.model", kind, _BYTE_LEVEL if byte_level else _PIECES, _TOKENIZER)
        return
    yield from _token_differences(files, file, str(kind))
    yield from _space_differences(tokenizer, file)
    yield from _score_differences(files, file)
    if kind == _BYTE_LEVEL:
        yield from _merge_differences(tokenizer, file)
        split, pre = _split(steps_of(tokenizer.get("pre_tokenizer"))), file.fields.get("tokenizer.ggml.pre")
        pre_names = _SPLITS.get(split)
        if pre in (None, "default") or (pre_names is not None and pre not in pre_names):
            expected = pre_names[0] if pre_names else "another one"
            yield Contradiction(
                "tokenizer.ggml.pre", pre or "not there", expected, f"the pre_tokenizer of {_TOKENIZER}"
            )


def _template_differences(files: ModelFiles, file: GGUFFile) -> Iterator[Contradiction]:
    """Yield each chat template that the header and the folder have differently, compared as compiled."""
    folder_templates = templates(files)
    key = "tokenizer.chat_template"
    header_templates = {
        name.removeprefix(f"{key}."): text for name, text in file.fields.items() if name.startswith(f"{key}.")
    }
    if key in file.fields:
        header_templates[DEFAULT] = file.fields[key]
    for name in [DEFAULT, *sorted({*folder_templates, *header_templates} - {DEFAULT})]:
        header_template, folder_template = header_templates.get(name), folder_templates.get(name)
        if header_template != folder_template and (
            header_template is None
            or folder_template is None
            or as_compiled(str(header_template)) != as_compiled(folder_template)
        ):
            texts = [
                "not there" if template is None else f"{len(str(template))} characters"
                for template in (header_template, folder_template)
            ]
            if texts[0] == texts[1]:
                texts[0] += " that differ"
            field = key if name == DEFAULT else f"{key}.{name}"
            yield Contradiction(field, texts[0], texts[1], "the folder's chat template")


def _added_ends(files: ModelFiles, file: GGUFFile) -> Iterator[Contradiction]:
    """Yield differences in the tokens that are put before and behind every text, and in which token comes first."""
    settings, fields = files.json("tokenizer_config.json"), file.fields
    first, last = ends_of_texts(files)
    kind = fields.get("tokenizer.ggml.model")
    by_default = {"bos": kind == _PIECES or fields.get("tokenizer.ggml.pre") in _BOS_BY_DEFAULT, "eos": False}
    for name, added in (("bos", first), ("eos", last)):
        setting = settings.get(f"add_{name}_token")
        file_value = setting if isinstance(setting, bool) else added
        bos_id = fields.get(f"tokenizer.ggml.add_{name}_token", by_default[name])
        if file_value is not None and bos_id != file_value:
            yield Contradiction(f"tokenizer.ggml.add_{name}_token", bos_id, file_value, "the tokenizer's files")
    bos_ids = named_token(files, "bos_token")
    config = [files.config.get("bos_token_id"), files.json("generation_config.json").get("bos_token_id")]
    bos_ids += [token for token in config if type(token) is int]
    bos_id = fields.get("tokenizer.ggml.bos_token_id")
    if bos_id is None and fields.get("tokenizer.ggml.add_bos_token", by_default["bos"]):
        bos_id = _LLAMA_CPP_BOS.get(str(kind))
    if bos_ids and bos_id is not None and bos_id not in bos_ids:
        listed = " or ".join(map(str, dict.fromkeys(bos_ids)))
        yield Contradiction("tokenizer.ggml.bos_token_id", bos_id, listed, "tokenizer_config.json and config.json")


def _token_differences(files: ModelFiles, file: GGUFFile, model: str) -> Iterator[Contradiction]:
    """Yield differences in the tokens' texts, and the first one in their kinds (special, added, byte).

    model: `tokenizer.ggml.model` of the header. Padding and unused tokens may be in the header alone.
    """
    header_tokens = file.array("tokenizer.ggml.tokens") or []
    types = file.array("tokenizer.ggml.token_type") or []
    special, file_tokens = _added(files), {token: text for text, token in token_ids(files).items()}
    if max(file_tokens, default=-1) >= len(header_tokens):
        yield Contradiction(
            "tokenizer.ggml.tokens", f"{len(header_tokens)} tokens", f"{max(file_tokens) + 1} tokens", _TOKENIZER
        )
    wrong = [
        token
        for token, text in enumerate(header_tokens)
        if text != (file_text := file_tokens.get(token))
        and not (file_text is None and (_kind(types, token) == _UNUSED or _PADDING.fullmatch(text)))
        and not (token in special and file_text is not None and text == file_text.replace("▁", " "))
    ]
    if wrong:
        token = wrong[0]
        remainder = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        yield Contradiction(
            f"tokenizer.ggml.tokens[{token}]{remainder}",
            f"{header_tokens[token]!r:.40}",
            f"{file_tokens.get(token)!r:.40}",
            _TOKENIZER,
        )
    for token, text in file_tokens.items() if model in _TYPES and len(types) == len(header_tokens) else ():
        kind, is_special = _kind(types, token), special.get(token)
        expected = _BYTE if is_special is None and model == _PIECES and _BYTE_TEXT.fullmatch(text) else is_special
        if kind is not None and kind not in _TYPES[model].get(expected, (_BYTE,)):
            # pyrefly: ignore[no-matching-overload]
            expected_text = {True: "special", False: "an added token", None: "no special token"}.get(expected, "a byte")
            yield Contradiction(f"tokenizer.ggml.token_type[{token}]", kind, expected_text, _TOKENIZER)
            return


# Whether tokenizer.json has a token as special (None: as no added token) → the types that say the same.
_TYPES: dict[str, dict[bool | int | None, tuple[int, ...]]] = {
    _BYTE_LEVEL: {True: (_CONTROL,), False: (_CONTROL, _USER_DEFINED), None: (_NORMAL, _UNKNOWN, _UNUSED, _BYTE)},
    _PIECES: {True: (_UNKNOWN, _CONTROL), False: (_UNKNOWN, _CONTROL, _USER_DEFINED), None: (_NORMAL,)},
}


def _space_differences(written: dict[str, Any], file: GGUFFile) -> Iterator[Contradiction]:
    """Yield differences in the space added before a text, and in the removal of spaces."""
    steps = [*steps_of(written.get("normalizer")), *steps_of(written.get("pre_tokenizer"))]
    added = any(
        step.get("type") == "Prepend"
        or (step.get("type") == "Metaspace" and step.get("prepend_scheme", step.get("add_prefix_space")) not in
            ("never", False))
        or (step.get("type") == "ByteLevel" and step.get("add_prefix_space") is True)
        for step in steps
    )  # fmt: skip
    removes_spaces = any(step.get("type") == "Replace" and step.get("pattern") == {"Regex": " {2,}"} for step in steps)
    is_pieces = file.fields.get("tokenizer.ggml.model") == _PIECES
    for key, default, expected in (
        ("add_space_prefix", is_pieces, added),
        ("remove_extra_whitespaces", False, removes_spaces),
    ):
        header_value = file.fields.get(f"tokenizer.ggml.{key}", default)
        if header_value != expected:
            yield Contradiction(f"tokenizer.ggml.{key}", header_value, expected, f"the normalizer of {_TOKENIZER}")


def _score_differences(files: ModelFiles, file: GGUFFile) -> Iterator[Contradiction]:
    """Yield the first token whose score contradicts the tokenizer.

    llama.cpp joins the pair of pieces with the highest score; BPE in tokenizer.json the one that its merges list
    first, Unigram by scores of its own.
    """
    model, key = files.json(_TOKENIZER).get("model"), "tokenizer.ggml.scores"
    header_scores = file.array(key) or [0.0] * len(file.array("tokenizer.ggml.tokens") or ())
    numbers = all(isinstance(score, int | float) for score in header_scores)
    if not numbers or not isinstance(model, dict) or file.fields.get("tokenizer.ggml.model") == _BYTE_LEVEL:
        return  # llama.cpp refuses scores of another type
    vocabulary, added = model.get("vocab"), _added(files)
    if isinstance(vocabulary, list):
        for token, entry in enumerate(vocabulary[: len(header_scores)]):
            file_score = entry[1] if isinstance(entry, list) and len(entry) == 2 else None
            if token not in added and not (
                isinstance(file_score, int | float) and isclose(header_scores[token], file_score, rel_tol=1e-5)
            ):
                yield Contradiction(f"{key}[{token}]", header_scores[token], file_score, _TOKENIZER)
                return
    merges, ids, last = model.get("merges"), token_ids(files), -1
    for merge in merges if isinstance(merges, list) else ():
        text = "".join(map(str, merge)) if isinstance(merge, list) else str(merge).replace(" ", "")
        token = ids.get(text, -1)
        spaces = not text.strip("▁")  # to runs of them Mistral's trainer gives one score
        if token == last or token in added or spaces or not 0 <= token < len(header_scores):
            continue
        if last >= 0 and not header_scores[token] < header_scores[last]:
            order = f"below that of token {last}, whose merge comes first"
            yield Contradiction(f"{key}[{token}]", header_scores[token], order, _TOKENIZER)
            return
        last = token


def _added(files: ModelFiles) -> dict[int, bool]:
    """Return, for each added token's id, whether the token is special."""
    decoder, added = (
        files.json("tokenizer_config.json").get("added_tokens_decoder"),
        files.json(_TOKENIZER).get("added_tokens"),
    )
    listed = (
        [(int(token), entry) for token, entry in decoder.items() if is_token_id(token)]
        if isinstance(decoder, dict)
        else []
    )
    listed += (
        [(entry.get("id"), entry) for entry in added if isinstance(entry, dict)] if isinstance(added, list) else []
    )
    return {
        token: entry.get("special") is True for token, entry in listed if isinstance(entry, dict) and type(token) is int
    }


def _kind(types: Sequence[Any], token: int) -> Any:
    return types[token] if 0 <= token < len(types) else None


def _merge_differences(written: dict[str, Any], file: GGUFFile) -> Iterator[Contradiction]:
    """Yield the first difference between the merges of the header and of tokenizer.json."""
    header_merges, model = file.array("tokenizer.ggml.merges"), written.get("model")
    file_merges = model.get("merges") if isinstance(model, dict) else None
    if header_merges is None or not isinstance(file_merges, list):
        return
    file_merges = [" ".join(map(_spelled, merge)) if isinstance(merge, list) else merge for merge in file_merges]
    if header_merges != file_merges:
        index = next((i for i, (a, b) in enumerate(zip(header_merges, file_merges, strict=False)) if a != b), -1)
        texts = [
            f"{merges[index]!r:.40}" if index >= 0 else f"{len(merges)} merges"
            for merges in (header_merges, file_merges)
        ]
        yield Contradiction(
            "tokenizer.ggml.merges" + (f"[{index}]" if index >= 0 else ""), texts[0], texts[1], _TOKENIZER
        )


def _spelled(part: Any) -> str:
    """Return a part of a merge as gguf/vocab.py writes it: its spaces moved up by 256."""
    return str(part).replace(" ", chr(ord(" ") + 256))


def _split(steps: Sequence[dict[str, Any]]) -> str:
    """Return the key of _SPLITS for these pre-tokenizer steps; "" for another way of splitting."""
    patterns = [step.get("pattern") for step in steps if step.get("type") == "Split"]
    if len(patterns) == 1 and isinstance(patterns[0], dict) and len(steps) <= 2:
        return str(patterns[0].get("Regex", ""))
    last_step = steps[-1] if steps else {}
    if last_step.get("type") != "ByteLevel" or last_step.get("use_regex") is False or patterns:
        return ""
    if len(steps) == 1:
        return "GPT-2"
    digits = steps[0].get("type") == "Digits" and steps[0].get("individual_digits") is True
    return "single digits, GPT-2" if digits and len(steps) == 2 else ""
