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
    """Where llama.cpp would make other tokens or other prompts than the files beside the header."""
    yield from _template_differences(files, file)
    yield from _added_ends(files, file)
    if not files.has(_TOKENIZER):
        return
    kind, written = file.fields.get("tokenizer.ggml.model"), files.json(_TOKENIZER)
    steps = [*steps_of(written.get("pre_tokenizer")), *steps_of(written.get("decoder"))]
    byte_level = any(step.get("type") == "ByteLevel" for step in steps)
    if kind in (_BYTE_LEVEL, _PIECES) and byte_level != (kind == _BYTE_LEVEL):
        yield Contradiction("tokenizer.ggml.model", kind, _BYTE_LEVEL if byte_level else _PIECES, _TOKENIZER)
        return
    yield from _token_differences(files, file, str(kind))
    yield from _space_differences(written, file)
    yield from _score_differences(files, file)
    if kind == _BYTE_LEVEL:
        yield from _merge_differences(written, file)
        split, pre = _split(steps_of(written.get("pre_tokenizer"))), file.fields.get("tokenizer.ggml.pre")
        known = _SPLITS.get(split)
        if pre in (None, "default") or (known is not None and pre not in known):
            wanted = known[0] if known else "another one"
            yield Contradiction("tokenizer.ggml.pre", pre or "not there", wanted, f"the pre_tokenizer of {_TOKENIZER}")


def _template_differences(files: ModelFiles, file: GGUFFile) -> Iterator[Contradiction]:
    ours = templates(files)
    key = "tokenizer.chat_template"
    theirs = {name.removeprefix(f"{key}."): text for name, text in file.fields.items() if name.startswith(f"{key}.")}
    if key in file.fields:
        theirs[DEFAULT] = file.fields[key]
    for name in [DEFAULT, *sorted({*ours, *theirs} - {DEFAULT})]:
        left, right = theirs.get(name), ours.get(name)
        if left != right and (left is None or right is None or as_compiled(str(left)) != as_compiled(right)):
            shown = [
                "not there" if template is None else f"{len(str(template))} characters" for template in (left, right)
            ]
            if shown[0] == shown[1]:
                shown[0] += " that differ"
            place = key if name == DEFAULT else f"{key}.{name}"
            yield Contradiction(place, shown[0], shown[1], "the folder's chat template")


def _added_ends(files: ModelFiles, file: GGUFFile) -> Iterator[Contradiction]:
    """Tokens that are put before and behind every text, and which one is put before."""
    settings, fields = files.json("tokenizer_config.json"), file.fields
    first, last = ends_of_texts(files)
    kind = fields.get("tokenizer.ggml.model")
    by_default = {"bos": kind == _PIECES or fields.get("tokenizer.ggml.pre") in _BOS_BY_DEFAULT, "eos": False}
    for name, added in (("bos", first), ("eos", last)):
        setting = settings.get(f"add_{name}_token")
        ours = setting if isinstance(setting, bool) else added
        theirs = fields.get(f"tokenizer.ggml.add_{name}_token", by_default[name])
        if ours is not None and theirs != ours:
            yield Contradiction(f"tokenizer.ggml.add_{name}_token", theirs, ours, "the tokenizer's files")
    known = named_token(files, "bos_token")
    config = [files.config.get("bos_token_id"), files.json("generation_config.json").get("bos_token_id")]
    known += [token for token in config if type(token) is int]
    theirs = fields.get("tokenizer.ggml.bos_token_id")
    if theirs is None and fields.get("tokenizer.ggml.add_bos_token", by_default["bos"]):
        theirs = _LLAMA_CPP_BOS.get(str(kind))
    if known and theirs is not None and theirs not in known:
        shown = " or ".join(map(str, dict.fromkeys(known)))
        yield Contradiction("tokenizer.ggml.bos_token_id", theirs, shown, "tokenizer_config.json and config.json")


def _token_differences(files: ModelFiles, file: GGUFFile, model: str) -> Iterator[Contradiction]:
    theirs = file.array("tokenizer.ggml.tokens") or []
    types = file.array("tokenizer.ggml.token_type") or []
    special, ours = _added(files), {token: text for text, token in token_ids(files).items()}
    if max(ours, default=-1) >= len(theirs):
        yield Contradiction("tokenizer.ggml.tokens", f"{len(theirs)} tokens", f"{max(ours) + 1} tokens", _TOKENIZER)
    wrong = [
        token
        for token, text in enumerate(theirs)
        if text != (known := ours.get(token))
        and not (known is None and (_kind(types, token) == _UNUSED or _PADDING.fullmatch(text)))
        and not (token in special and known is not None and text == known.replace("▁", " "))
    ]
    if wrong:
        token = wrong[0]
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        yield Contradiction(
            f"tokenizer.ggml.tokens[{token}]{more}", f"{theirs[token]!r:.40}", f"{ours.get(token)!r:.40}", _TOKENIZER
        )
    for token, text in ours.items() if model in _TYPES and len(types) == len(theirs) else ():
        kind, is_special = _kind(types, token), special.get(token)
        wanted = _BYTE if is_special is None and model == _PIECES and _BYTE_TEXT.fullmatch(text) else is_special
        if kind is not None and kind not in _TYPES[model].get(wanted, (_BYTE,)):
            shown = {True: "special", False: "an added token", None: "no special token"}.get(wanted, "a byte")
            yield Contradiction(f"tokenizer.ggml.token_type[{token}]", kind, shown, _TOKENIZER)
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
    taken = any(step.get("type") == "Replace" and step.get("pattern") == {"Regex": " {2,}"} for step in steps)
    is_pieces = file.fields.get("tokenizer.ggml.model") == _PIECES
    for key, default, ours in (("add_space_prefix", is_pieces, added), ("remove_extra_whitespaces", False, taken)):
        theirs = file.fields.get(f"tokenizer.ggml.{key}", default)
        if theirs != ours:
            yield Contradiction(f"tokenizer.ggml.{key}", theirs, ours, f"the normalizer of {_TOKENIZER}")


def _score_differences(files: ModelFiles, file: GGUFFile) -> Iterator[Contradiction]:
    """llama.cpp joins the pair of pieces of the highest score; BPE in tokenizer.json the one that its merges have
    first, Unigram by scores of its own."""
    model, key = files.json(_TOKENIZER).get("model"), "tokenizer.ggml.scores"
    theirs = file.array(key) or [0.0] * len(file.array("tokenizer.ggml.tokens") or ())
    numbers = all(isinstance(score, int | float) for score in theirs)
    if not numbers or not isinstance(model, dict) or file.fields.get("tokenizer.ggml.model") == _BYTE_LEVEL:
        return  # llama.cpp refuses scores of another type
    vocabulary, added = model.get("vocab"), _added(files)
    if isinstance(vocabulary, list):
        for token, entry in enumerate(vocabulary[: len(theirs)]):
            ours = entry[1] if isinstance(entry, list) and len(entry) == 2 else None
            if token not in added and not (
                isinstance(ours, int | float) and isclose(theirs[token], ours, rel_tol=1e-5)
            ):
                yield Contradiction(f"{key}[{token}]", theirs[token], ours, _TOKENIZER)
                return
    merges, ids, last = model.get("merges"), token_ids(files), -1
    for merge in merges if isinstance(merges, list) else ():
        text = "".join(map(str, merge)) if isinstance(merge, list) else str(merge).replace(" ", "")
        token = ids.get(text, -1)
        spaces = not text.strip("▁")  # to runs of them Mistral's trainer gives one score
        if token == last or token in added or spaces or not 0 <= token < len(theirs):
            continue
        if last >= 0 and not theirs[token] < theirs[last]:
            order = f"below that of token {last}, whose merge comes first"
            yield Contradiction(f"{key}[{token}]", theirs[token], order, _TOKENIZER)
            return
        last = token


def _added(files: ModelFiles) -> dict[int, bool]:
    """Each added token's id → whether it is special."""
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
    theirs, model = file.array("tokenizer.ggml.merges"), written.get("model")
    ours = model.get("merges") if isinstance(model, dict) else None
    if theirs is None or not isinstance(ours, list):
        return
    ours = [" ".join(map(_spelled, merge)) if isinstance(merge, list) else merge for merge in ours]
    if theirs != ours:
        place = next((i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), -1)
        shown = [f"{merges[place]!r:.40}" if place >= 0 else f"{len(merges)} merges" for merges in (theirs, ours)]
        yield Contradiction(
            "tokenizer.ggml.merges" + (f"[{place}]" if place >= 0 else ""), shown[0], shown[1], _TOKENIZER
        )


def _spelled(part: Any) -> str:
    """A part of a merge as gguf/vocab.py writes it: its spaces moved up by 256."""
    return str(part).replace(" ", chr(ord(" ") + 256))


def _split(steps: Sequence[dict[str, Any]]) -> str:
    """A key of _SPLITS; "" for another way."""
    patterns = [step.get("pattern") for step in steps if step.get("type") == "Split"]
    if len(patterns) == 1 and isinstance(patterns[0], dict) and len(steps) <= 2:
        return str(patterns[0].get("Regex", ""))
    last = steps[-1] if steps else {}
    if last.get("type") != "ByteLevel" or last.get("use_regex") is False or patterns:
        return ""
    if len(steps) == 1:
        return "GPT-2"
    digits = steps[0].get("type") == "Digits" and steps[0].get("individual_digits") is True
    return "single digits, GPT-2" if digits and len(steps) == 2 else ""
