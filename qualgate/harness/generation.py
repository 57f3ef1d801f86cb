"""What a task of lm-eval's asks of a generation, as far as our engine can give it."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from qualgate.errors import UsageError
from qualgate.records import GREEDY, TEMPERATURES, Sampling

MAX_GEN_TOKENS = 256  # lm-eval's, where a task sets no limit
CUTS = {"top_p": (1,), "top_k": (0, -1, None), "min_p": (0,)}  # → values that leave every token in


class Generation(NamedTuple):
    """How one request of lm-eval is to be answered."""

    until: tuple[str, ...]  # texts that end an answer
    limit: int  # the most tokens of it
    sampling: Sampling


def generation_settings(settings: dict[str, Any]) -> Generation:
    """Of lm-eval's generation settings; null is as good as absent. UsageError for what our engine cannot do, sampling
    from a part of the vocabulary among it."""
    from lm_eval.models.utils import normalize_gen_kwargs

    stated = {name: value for name, value in settings.items() if value is not None}
    try:
        known = cast("dict[str, Any]", normalize_gen_kwargs(stated, MAX_GEN_TOKENS))
    except (TypeError, ValueError, OverflowError):
        raise UsageError("`temperature` and `max_gen_toks` of the task must be numbers") from None
    until, limit = known.pop("until"), known.pop("max_gen_toks")
    samples, temperature = known.pop("do_sample", False), float(known.pop("temperature", 0.0))
    if samples and not TEMPERATURES[0] <= temperature <= TEMPERATURES[1]:
        raise UsageError(
            f"the task samples (do_sample) at temperature {temperature:g}; qualgate draws at temperatures from "
            f"{TEMPERATURES[0]:g} to {TEMPERATURES[1]:g} that the task states: set one, or do_sample=False"
        )
    if samples and (cuts := [name for name, whole in CUTS.items() if known.get(name, whole[0]) not in whole]):
        raise UsageError(
            f"the task samples with {', '.join(cuts)}; qualgate draws from all tokens, at a temperature, in this "
            "version: leave these settings out, or set do_sample=False"
        )
    if strange := [name for name in known if name not in CUTS]:
        raise UsageError(f"generation settings qualgate does not know: {', '.join(sorted(strange))}")
    if limit < 1:
        raise UsageError(f"max_gen_toks must be at least 1, found {limit}")
    sampling = Sampling(temperature=temperature) if samples else GREEDY
    return Generation(tuple(str(text) for text in until if text), limit, sampling)
