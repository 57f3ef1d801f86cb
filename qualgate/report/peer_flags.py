"""Flags for other servers that speculate the same way, as far as they can; where a server has no equal a note says so.

vLLM 0.32 was run with the flags for n-grams, draft models and acceptance rules. Its other flags, and SGLang's, come
from documentation of November 2026.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from shlex import quote
from typing import Any

from qualgate.records import QuantizeRecipe, Speculation
from qualgate.records.speculation import OWN

MODEL, MADE = "MODEL", "DRAFT"  # placeholders for the target's folder and for the quantized draft's
MATCHED = 2, 8  # fewest and most tokens of our n-grams
FIXED = ("mxfp4", "mxfp8", "nvfp4")  # methods whose groups have one size


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerFlags:
    """A server's flags for one command line ("" if it has no equal), and notes on differences, a clause each."""

    server: str
    flags: str
    notes: tuple[str, ...] = ()


def peer_flags(spec: Speculation, tokens: int) -> tuple[PeerFlags, ...]:
    """Return the flags for vLLM and for SGLang. tokens: γ, one or more."""
    return _vllm(spec, tokens), _sglang(spec, tokens)


def draft_command(spec: Speculation) -> str:
    """Return the command that makes the draft's folder named in the flags; "" if none is needed."""
    draft = spec.draft
    if draft.quantize is None:
        return ""
    return f"qualgate quantize {quote(draft.model) if draft.model else MODEL} {_options(draft.quantize)} --out {MADE}"


def _vllm(spec: Speculation, tokens: int) -> PeerFlags:
    """Return vLLM's flags, or none with a note if it lacks the acceptance rule. tokens: γ."""
    draft, notes = spec.draft, _depth_notes(spec)
    config: dict[str, Any] = {"method": "draft_model", "num_speculative_tokens": tokens}
    match draft.kind:
        case "head" if draft.head == OWN:
            config["method"] = "mtp"
        case "head":
            config |= {"method": "eagle3", "model": draft.head}
        case "ngram":
            config |= {"method": "ngram", "prompt_lookup_min": MATCHED[0], "prompt_lookup_max": MATCHED[1]}
        case "suffix":
            config["method"] = "suffix"
            adapts = f"its drafts adapt their length, {tokens} tokens at most"
            notes = (*notes, adapts, "it asks for the package arctic-inference beside it")
        case _:
            config["model"] = draft.model if draft.quantize is None else MADE
    match spec.rule:
        case "typical" | "lenient":
            return PeerFlags(server="vLLM", flags="", notes=(f"it has no `{spec.rule}` rule of acceptance",))
        case "block_verification":
            config["rejection_sample_method"] = "block"
        case "speculative_sampling" if config["method"] == "draft_model":
            config["draft_sample_method"] = "probabilistic"
        case "keyed":
            notes = (*notes, "drawn tokens are others of the same distribution")
    return PeerFlags(server="vLLM", flags=f"--speculative-config {quote(json.dumps(config))}", notes=notes)


def _sglang(spec: Speculation, tokens: int) -> PeerFlags:
    """Return SGLang's flags, or none with a note if it lacks the acceptance rule. tokens: γ."""
    draft, notes = spec.draft, _depth_notes(spec)
    if spec.rule in ("typical", "lenient", "block_verification"):
        missing = f"it has no `{spec.rule}` rule of acceptance"
        return PeerFlags(server="SGLang", flags="", notes=(missing,))
    match draft.kind:
        case "head" if draft.head == OWN:
            flags = _chain("EAGLE", "", tokens)
        case "head":
            flags = _chain("EAGLE3", quote(draft.head), tokens)
        case "ngram" | "suffix":
            flags = f"--speculative-algorithm NGRAM {_verified(tokens)}"
            notes = (*notes, "on CUDA alone", "the nearest it has: a tree of n-grams of this and earlier answers")
        case _:
            folder = quote(draft.model) if draft.quantize is None else MADE
            flags = _chain("STANDALONE", folder, tokens)
            if draft.quantize is None:
                notes = (
                    *notes,
                    "add `--speculative-draft-model-quantization unquant` where only the target is quantized",
                )
    if spec.rule == "keyed":
        notes = (*notes, "drawn tokens are others of the same distribution")
    return PeerFlags(server="SGLang", flags=flags, notes=notes)


def _chain(algorithm: str, folder: str, tokens: int) -> str:
    """Return SGLang's flags for a draft tree with one branch of `tokens`. folder: "" if the target drafts itself."""
    named = f"--speculative-draft-model-path {folder} " if folder else ""
    return (
        f"--speculative-algorithm {algorithm} {named}"
        f"--speculative-num-steps {tokens} --speculative-eagle-topk 1 {_verified(tokens)}"
    )


def _verified(tokens: int) -> str:
    return f"--speculative-num-draft-tokens {tokens + 1}"  # the token before the draft is one of them


def _depth_notes(spec: Speculation) -> tuple[str, ...]:
    under = spec.draft.under
    return () if under is None else (f"its drafts have none of their own: {' < '.join(under.names)} is left out",)


def _options(recipe: QuantizeRecipe) -> str:
    """Return the options of `qualgate quantize` for a recipe."""
    options = [f"--method {recipe.method}"]
    if recipe.bits:
        options.append(f"--bits {recipe.bits}")
    if recipe.method not in FIXED:
        options.append(f"--group-size {recipe.group_size}")
    if recipe.calibration:
        options.append(f"--calibration {quote(recipe.calibration)}")
    options += [f"--keep {quote(f'{pattern}={precision}')}" for pattern, precision in recipe.keep]
    written = ("method", "bits", "group_size", "calibration", "calibration_sha256", "keep")
    other_options = {name: value for name, value in recipe.content.items() if name not in written}
    return " ".join(
        [*options, *(f"--option {quote(f'{name}={_option_value(value)}')}" for name, value in other_options.items())]
    )


def _option_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
