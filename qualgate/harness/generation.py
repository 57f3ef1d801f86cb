"""Translate generation settings of lm-eval's tasks, as far as our engine supports them."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from qualgate.errors import UsageError
from qualgate.records import GREEDY, TEMPERATURES, Sampling

MAX_GEN_TOKENS = 256  # lm-eval's default limit
CUTS = "top_k", "top_p", "min_p"  # settings that restrict the tokens to draw from
ALL_TOKENS = -1  # vLLM's top_k for no cut, as 0


class Generation(NamedTuple):
    """Settings for one request of lm-eval."""

    until: tuple[str, ...]  # texts that end an answer
    limit: int  # the most tokens of it
    sampling: Sampling


def generation_settings(settings: dict[str, Any]) -> Generation:
    """Translate lm-eval's generation settings; null counts as absent. UsageError for what our engine cannot do.

    Without `do_sample`, top_k, top_p and min_p have no effect, as in lm-eval's hf model. A cut that the task leaves out
    is off; in the hf model it comes from generation_config.json or transformers' default, top_k 50.
    """
    from lm_eval.models.utils import normalize_gen_kwargs

    stated = {name: value for name, value in settings.items() if value is not None}
    try:
        remaining = cast("dict[str, Any]", normalize_gen_kwargs(stated, MAX_GEN_TOKENS))
    except (TypeError, ValueError, OverflowError):
        raise UsageError("`temperature` and `max_gen_toks` of the task must be numbers") from None
    until, limit = remaining.pop("until"), remaining.pop("max_gen_toks")
    samples, temperature = remaining.pop("do_sample", False), float(remaining.pop("temperature", 0.0))
    if samples and not TEMPERATURES[0] <= temperature <= TEMPERATURES[1]:
        raise UsageError(
            f"the task samples (do_sample) at temperature {temperature:g}; qualgate draws at temperatures from "
            f"{TEMPERATURES[0]:g} to {TEMPERATURES[1]:g} that the task states: set one, or do_sample=False"
        )
    cuts = {name: remaining.pop(name) for name in CUTS if name in remaining}
    if unknown := list(remaining):
        raise UsageError(f"generation settings qualgate does not know: {', '.join(sorted(unknown))}")
    if limit < 1:
        raise UsageError(f"max_gen_toks must be at least 1, found {limit}")
    sampling = _sampling(temperature, cuts) if samples else GREEDY
    return Generation(tuple(str(text) for text in until if text), limit, sampling)


def _sampling(temperature: float, cuts: dict[str, Any]) -> Sampling:
    """Return the sampling of a task that draws. cuts: top_k, top_p and min_p where stated. UsageError for values out of
    range."""
    if cuts.get("top_k") == ALL_TOKENS:
        del cuts["top_k"]
    try:
        shares: dict[str, Any] = {name: float(cuts.pop(name)) for name in ("top_p", "min_p") if name in cuts}
    except (TypeError, ValueError, OverflowError):
        raise UsageError("`top_p` and `min_p` of the task must be numbers") from None
    try:
        return Sampling(temperature=temperature, **shares, **cuts)
    except ValueError as error:
        raise UsageError(f"the task samples with {error}") from None
