"""What a task of lm-eval's asks of a generation, as far as a greedy engine can give it."""

from __future__ import annotations

from typing import Any, cast

from qualgate.errors import UsageError

MAX_GEN_TOKENS = 256  # lm-eval's, where a task sets no limit
WITHOUT_SAMPLING = ("top_p", "top_k", "min_p", "temperature")  # change nothing then


def generation_settings(settings: dict[str, Any]) -> tuple[tuple[str, ...], int]:
    """(texts that end an answer, the most tokens of it) of lm-eval's generation settings. UsageError for sampling."""
    from lm_eval.models.utils import normalize_gen_kwargs

    known = cast("dict[str, Any]", normalize_gen_kwargs(settings, MAX_GEN_TOKENS))
    until, limit = known.pop("until"), known.pop("max_gen_toks")
    samples = known.pop("do_sample", False)
    if samples or known.get("temperature"):
        raise UsageError("the task samples (do_sample); qualgate answers greedily in this version: set do_sample=False")
    if strange := [name for name in known if name not in WITHOUT_SAMPLING]:
        raise UsageError(f"generation settings qualgate does not know: {', '.join(sorted(strange))}")
    if limit < 1:
        raise UsageError(f"max_gen_toks must be at least 1, found {limit}")
    return tuple(str(text) for text in until if text), limit
